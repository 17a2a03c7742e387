package sqlite_test

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// canaries are strings that occur nowhere by chance, by what they are.
type canaries map[string]string

func (c canaries) new(what string) string {
	c[what] = rand.Text()
	return c[what]
}

// found returns how often each canary is in the files of a directory.
func (c canaries) found(t *testing.T, dir string) map[string]int {
	t.Helper()
	n := make(map[string]int)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		for what, canary := range c {
			for _, form := range forms(canary) {
				n[what] += bytes.Count(content, form)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// forms are text as it is and as it is within base64, which is how arguments
// of tool calls are stored, wherever it begins there.
func forms(text string) [][]byte {
	all := [][]byte{[]byte(text)}
	for before := range 3 {
		encoded := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("\x00", before) + text))
		all = append(all, []byte(encoded[(before*8+5)/6:(before+len(text))*8/6]))
	}
	return all
}
