package examples_test

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"testing"

	"github.com/carrelhost/carrel/examples"
)

func TestEveryExampleIsWhole(t *testing.T) {
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		found++
		name := e.Name()
		for _, file := range []string{"README.md", name + "_test.go"} {
			if _, err := os.Stat(path.Join(name, file)); err != nil {
				t.Errorf("the example %s lacks %s", name, file)
			}
		}
		if prompts, code := glob(t, name, "*.md"), glob(t, name, "plugin.go"); prompts == 1 && code == 0 { // of Markdown only the README
			t.Errorf("the example %s has no source", name)
		}
		if _, err := fs.Stat(examples.Files, path.Join(name, "README.md")); err != nil {
			t.Errorf("%s is not in the binary: %v", name, err)
		}
	}
	if found == 0 {
		t.Error("there is no example")
	}
}

// glob counts an example's files of a name.
func glob(t *testing.T, dir, name string) int {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return len(found)
}
