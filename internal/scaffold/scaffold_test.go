package scaffold_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/internal/scaffold"
)

// files returns the paths below dir, with slashes, sorted.
func files(t *testing.T, dir string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			rel, _ := filepath.Rel(dir, path)
			out = append(out, filepath.ToSlash(rel))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(out)
	return out
}

func TestNewWritesWhatTheLanguageNeeds(t *testing.T) {
	for name, tc := range map[string]struct {
		lang scaffold.Language
		want []string
	}{
		"a prompt needs one file": {scaffold.Prompt, []string{".gitignore", "README.md", "my-plugin.md"}},
		"C needs its header":      {scaffold.C, []string{".gitignore", "README.md", "carrel.h", "manifest.json", "my-plugin.c"}},
		"Go needs the SDK": {scaffold.Go, []string{".gitignore", "README.md", "go.mod", "plugin.go", "plugin_test.go",
			"carrel-sdk/go.mod", "carrel-sdk/abi/manifest.go", "carrel-sdk/sdk/go/plugin.go", "carrel-sdk/sdk/go/carreltest/host.go"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "below", "new")
			if err := scaffold.New(dir, "my-plugin", tc.lang); err != nil {
				t.Fatal(err)
			}
			got := files(t, dir)
			for _, want := range tc.want {
				if !slices.Contains(got, want) {
					t.Errorf("there is no %s in %v", want, got)
				}
			}
			for _, path := range got {
				if tc.lang != scaffold.Go && !slices.Contains(tc.want, path) || strings.HasPrefix(path, "carrel-sdk/") && strings.HasSuffix(path, "_test.go") {
					t.Errorf("%s is not needed", path)
				}
				content, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(path)))
				if err != nil {
					t.Fatal(err)
				}
				if strings.Contains(string(content), "[[") && !strings.HasPrefix(path, "carrel") {
					t.Errorf("%s has a mark of its template", path)
				}
			}
		})
	}
}

func TestNewRefusesWhatItCannotName(t *testing.T) {
	for name, tc := range map[string]struct {
		plugin string
		lang   scaffold.Language
		want   string
	}{
		"no name":                      {"", scaffold.Go, "a plugin's name"},
		"a path":                       {"../up", scaffold.Go, "a plugin's name"},
		"capitals":                     {"Hello", scaffold.Go, "a plugin's name"},
		"a language that is not there": {"hello", "cobol", `no language "cobol"`},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "new")
			err := scaffold.New(dir, tc.plugin, tc.lang)
			if carrel.CodeOf(err) != abi.BadRequest || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v", err)
			}
			if _, err := os.Stat(dir); !os.IsNotExist(err) {
				t.Error("the folder is there")
			}
		})
	}
}

func TestNewTakesAnEmptyFolderAndNoOther(t *testing.T) {
	dir := t.TempDir()
	if err := scaffold.New(dir, "hello", scaffold.Prompt); err != nil {
		t.Fatal(err)
	}
	before := files(t, dir)
	err := scaffold.New(dir, "other", scaffold.Go)
	if carrel.CodeOf(err) != abi.BadRequest || !strings.Contains(err.Error(), "is not empty") {
		t.Errorf("got %v", err)
	}
	if after := files(t, dir); !slices.Equal(before, after) {
		t.Errorf("it changed from %v to %v", before, after)
	}
	file := filepath.Join(dir, "README.md")
	if err := scaffold.New(file, "other", scaffold.Prompt); err == nil {
		t.Error("a project was written into a file")
	}
}

func TestNamesOfServicesAreIdentifiers(t *testing.T) {
	for plugin, want := range map[string]string{
		"hello": "com.example.Hello", "my-plugin": "com.example.MyPlugin", "a-2b--c-": "com.example.A2bC",
	} {
		dir := filepath.Join(t.TempDir(), "new")
		if err := scaffold.New(dir, plugin, scaffold.Prompt); err != nil {
			t.Fatal(err)
		}
		src, err := os.ReadFile(filepath.Join(dir, plugin+".md"))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(src), "- name: "+want+"\n") {
			t.Errorf("%s: want %s in\n%s", plugin, want, src)
		}
	}
}

func TestEveryLanguageIsParsed(t *testing.T) {
	for _, l := range scaffold.Languages() {
		if got, err := scaffold.ParseLanguage(string(l)); got != l || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
	}
}
