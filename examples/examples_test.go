package examples_test

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"testing"

	"github.com/carrelhost/carrel/examples"
	"github.com/carrelhost/carrel/internal/testenv"
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

// TestPromptsReachNothing: the reports on all examples without code, as a host
// answers with them. Those with code are judged where they are built.
func TestPromptsReachNothing(t *testing.T) {
	acme := testenv.New(t, testenv.Config()).Tenant("acme")
	sources, err := filepath.Glob("*/*.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, source := range sources {
		if path.Base(source) == "README.md" || source == "leak/leak.md" { // which hosts refuse
			continue
		}
		found++
		t.Run(source, func(t *testing.T) {
			text, err := os.ReadFile(source)
			if err != nil {
				t.Fatal(err)
			}
			r := acme.In(t).Report(acme.In(t).Install(string(text)).Plugin)
			if r.Class != "inert" || r.Path != "prompt" || !slices.Equal(r.Why, []string{"the module has no code"}) || !slices.Equal(r.Models, []string{"default"}) {
				t.Errorf("got %+v", r)
			}
			if r.ModuleBytes != 8+r.CustomBytes || r.ManifestBytes >= r.CustomBytes || r.CodeBytes != 0 || r.Image != nil || r.Measured != nil || r.Imports != nil {
				t.Errorf("there is code in %+v", r)
			}
		})
	}
	if found < 5 {
		t.Errorf("there are %d examples without code", found)
	}
}
