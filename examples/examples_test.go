package examples_test

import (
	"io/fs"
	"os"
	"path"
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
		for _, file := range []string{"README.md", name + ".md", name + "_test.go"} {
			if _, err := os.Stat(path.Join(name, file)); err != nil {
				t.Errorf("the example %s lacks %s", name, file)
			}
		}
		for _, file := range []string{"README.md", name + ".md"} {
			if _, err := fs.Stat(examples.Files, path.Join(name, file)); err != nil {
				t.Errorf("%s is not in the binary: %v", path.Join(name, file), err)
			}
		}
	}
	if found == 0 {
		t.Error("there is no example")
	}
}
