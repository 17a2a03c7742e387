package scaffold

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox/module"
	"github.com/carrelhost/carrel/plugins"
)

const buildOp = "scaffold.Build"

// Build builds the project in dir and writes the module, its manifest
// embedded, to NAME.wasm there, where NAME is the plugin's; it returns that
// path. A project is a folder with go.mod (Go), with manifest.json and *.c
// (C), or with one Markdown file that has front matter or one YAML file (a
// prompt plugin). The bytes written are a pure function of the sources and the
// toolchain. A module that is there already is replaced only by a good one.
//
// A toolchain that is not installed is a *MissingTool. What a compiler says
// about the sources is in the error's text. Faults of manifests and modules
// are those of plugins.Pack and module.Read; a folder that is no project is
// bad_request. If ctx ends, the tools are stopped.
func Build(ctx context.Context, dir string) (string, error) {
	name, wasm, err := compile(ctx, dir)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, name+".wasm")
	if err := replace(path, wasm); err != nil {
		return "", fmt.Errorf("write module: %w", err)
	}
	return path, nil
}

// compile returns a project's module and its plugin's name.
func compile(ctx context.Context, dir string) (name string, wasm []byte, err error) {
	goMod, err := exists(filepath.Join(dir, "go.mod"))
	if err != nil {
		return "", nil, err
	}
	if goMod {
		return compileGo(ctx, dir)
	}
	sources, err := filepath.Glob(filepath.Join(dir, "*.c"))
	if err != nil {
		return "", nil, fmt.Errorf("find sources: %w", err)
	}
	if len(sources) > 0 {
		return compileC(ctx, dir, sources)
	}
	source, err := promptSource(dir)
	if err != nil {
		return "", nil, err
	}
	return packPrompt(source)
}

func exists(path string) (bool, error) {
	_, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

func packPrompt(path string) (string, []byte, error) {
	src, err := os.ReadFile(path) //nolint:gosec // a file of the user's project
	if err != nil {
		return "", nil, fmt.Errorf("read source: %w", err)
	}
	wasm, m, err := plugins.Pack(filepath.Base(path), src)
	if err != nil {
		return "", nil, fmt.Errorf("pack %s: %w", path, err)
	}
	return m.Name, wasm, nil
}

// promptSource finds the one file that can be a prompt plugin's source.
func promptSource(dir string) (string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", fmt.Errorf("find sources: %w", err)
	}
	var markdown, yaml []string
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		switch strings.ToLower(filepath.Ext(e.Name())) {
		case ".md", ".markdown":
			has, err := hasFrontMatter(path)
			if err != nil {
				return "", err
			}
			if has {
				markdown = append(markdown, path)
			}
		case ".yaml", ".yml":
			yaml = append(yaml, path)
		}
	}
	found := markdown
	if len(found) == 0 {
		found = yaml
	}
	switch len(found) {
	case 0:
		return "", carrel.Fail(buildOp, abi.BadRequest, fmt.Sprintf("%s is no plugin's project: it has neither go.mod, nor manifest.json and "+
			"C sources, nor a Markdown file with front matter or a YAML file; `carrel new` makes one", dir))
	case 1:
		return found[0], nil
	default:
		return "", carrel.Fail(buildOp, abi.BadRequest, fmt.Sprintf(
			"%d files could be the plugin (%s); name one with `carrel pack`", len(found), strings.Join(found, ", ")))
	}
}

func hasFrontMatter(path string) (bool, error) {
	src, err := os.ReadFile(path) //nolint:gosec // a file of the user's project
	if err != nil {
		return false, fmt.Errorf("read source: %w", err)
	}
	line, _, _ := bytes.Cut(bytes.TrimPrefix(src, []byte("\ufeff")), []byte("\n"))
	return string(bytes.TrimRight(line, " \t\r")) == "---", nil
}

// embedded returns a compiled module with its manifest. The engine is not
// asked: module.Read names unknown imports and broken limits.
func embedded(wasmPath string, manifest []byte) ([]byte, error) {
	wasm, err := os.ReadFile(wasmPath) //nolint:gosec // a file that a compiler has just written for us
	if err != nil {
		return nil, fmt.Errorf("read module: %w", err)
	}
	wasm, err = plugins.Embed(wasm, manifest, module.DefaultLimits())
	if err != nil {
		return nil, fmt.Errorf("embed manifest: %w", err)
	}
	return wasm, nil
}

// replace writes a file whole or not at all.
func replace(path string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
