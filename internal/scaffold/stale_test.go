package scaffold_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/carrelhost/carrel/internal/scaffold"
)

func TestNewerFindsASourceThatChangedAfterItsModule(t *testing.T) {
	const prompt = "---\nservices: [{name: A}]\n---\n"
	built := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, tc := range map[string]struct {
		files map[string]string
		newer string // the file that is changed a minute after the module was built
		want  string
	}{
		"a prompt":                   {map[string]string{"a.md": prompt, "README.md": "# A\n"}, "a.md", "a.md"},
		"its README is no source":    {map[string]string{"a.md": prompt, "README.md": "# A\n"}, "README.md", ""},
		"Go":                         {map[string]string{"plugin.go": "", "go.mod": ""}, "plugin.go", "plugin.go"},
		"Go's requirements":          {map[string]string{"plugin.go": "", "go.mod": ""}, "go.mod", "go.mod"},
		"a test is no source":        {map[string]string{"plugin.go": "", "plugin_test.go": ""}, "plugin_test.go", ""},
		"what the build itself made": {map[string]string{"plugin.go": "", "carrel_exports.go": ""}, "carrel_exports.go", ""},
		"a header of C":              {map[string]string{"a.c": "", "carrel.h": ""}, "carrel.h", "carrel.h"},
		"the manifest of C":          {map[string]string{"a.c": "", "manifest.json": ""}, "manifest.json", "manifest.json"},
		"several prompts, of which none is the module's": {map[string]string{"a.md": prompt, "b.md": prompt}, "b.md", ""},
		"a folder of a module alone":                     {nil, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, map[string]string{"a.wasm": ""})
			write(t, dir, tc.files)
			entries, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range entries {
				at := built
				if e.Name() == tc.newer {
					at = built.Add(time.Minute)
				}
				if err := os.Chtimes(filepath.Join(dir, e.Name()), at, at); err != nil {
					t.Fatal(err)
				}
			}
			want := tc.want
			if want != "" {
				want = filepath.Join(dir, want)
			}
			if got, err := scaffold.Newer(filepath.Join(dir, "a.wasm")); err != nil || got != want {
				t.Errorf("got %q, %v, want %q", got, err, want)
			}
		})
	}
}
