package scaffold

import (
	"bytes"
	"embed"
	"fmt"
	"io/fs"
	"strings"
	"text/template"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/sdk"
)

//go:embed templates
var templates embed.FS

// blanks are what templates fill in.
type blanks struct {
	Name    string // the plugin's
	Service string // of its only service
	Command string // by which a module of C is built
}

// project returns the files of a new project by their paths.
func project(name string, lang Language) (map[string][]byte, error) {
	b := blanks{
		Name: name, Service: serviceName(name),
		Command: "clang " + strings.Join(clangArgs(name+".wasm", []string{name + ".c"}), " "),
	}
	from := map[Language]map[string]string{
		Prompt: {"README.md": "README.md", ".gitignore": "gitignore", name + ".md": "plugin.md"},
		C:      {"README.md": "README.md", ".gitignore": "gitignore", "manifest.json": "manifest.json"},
		Go: {"README.md": "README.md", ".gitignore": "gitignore", "go.mod": "go.mod",
			"plugin.go": "plugin.go", "plugin_test.go": "plugin_test.go"},
	}
	files := map[string][]byte{}
	for path, source := range from[lang] {
		var err error
		if files[path], err = b.fill("templates/" + string(lang) + "/" + source + ".tmpl"); err != nil {
			return nil, err
		}
	}
	var err error
	switch lang {
	case Go:
		err = addSDK(files, sdkFolder+"/")
	case C:
		files["carrel.h"], err = sdk.C.ReadFile("c/carrel.h")
		if err == nil {
			files[name+".c"], err = sdk.C.ReadFile("c/examples/hello/hello.c")
		}
	case Prompt:
	}
	if err != nil {
		return nil, fmt.Errorf("copy the SDK: %w", err)
	}
	return files, nil
}

// addSDK adds the files of the Go SDK's copy below a prefix, at the paths of
// its module.
func addSDK(files map[string][]byte, prefix string) error {
	mod, err := blanks{}.fill("templates/" + string(Go) + "/sdk.mod.tmpl")
	if err != nil {
		return err
	}
	files[prefix+"go.mod"] = mod
	if err := copyInto(files, abi.Sources, prefix+"abi/"); err != nil {
		return err
	}
	return copyInto(files, sdk.Go, prefix+"sdk/")
}

// fill fills in a template. The marks are not those of prompts.
func (b blanks) fill(path string) ([]byte, error) {
	text, err := templates.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read template: %w", err)
	}
	t, err := template.New(path).Delims("[[", "]]").Option("missingkey=error").Parse(string(text))
	if err != nil {
		return nil, fmt.Errorf("read template: %w", err)
	}
	var out bytes.Buffer
	if err := t.Execute(&out, b); err != nil {
		return nil, fmt.Errorf("fill in template: %w", err)
	}
	return out.Bytes(), nil
}

// copyInto adds the files of from below a prefix, without tests.
func copyInto(files map[string][]byte, from fs.FS, prefix string) error {
	return fs.WalkDir(from, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasSuffix(path, "_test.go") {
			return err
		}
		content, err := fs.ReadFile(from, path)
		files[prefix+path] = content
		return err
	})
}

// serviceName makes a service's name of a plugin's: my-plugin becomes
// com.example.MyPlugin.
func serviceName(plugin string) string {
	var b strings.Builder
	b.WriteString("com.example.")
	for part := range strings.SplitSeq(plugin, "-") {
		if part != "" {
			b.WriteString(strings.ToUpper(part[:1]) + part[1:])
		}
	}
	return b.String()
}
