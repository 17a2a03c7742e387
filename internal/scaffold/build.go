package scaffold

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox/module"
	"github.com/carrelhost/carrel/plugins"
	"github.com/carrelhost/carrel/plugins/pack"
)

const buildOp = "scaffold.Build"

// Build builds the project in dir and writes the module, its manifest
// embedded, to NAME.wasm there, where NAME is the plugin's; it returns that
// path. A project is a folder with *.go (Go: a package main in a module that
// holds the SDK or requires it), with *.c and manifest.json (C), or with one
// Markdown file that has front matter or one YAML file (a prompt plugin). The
// bytes written are a pure function of the sources and the toolchain. A module
// that is there already is replaced only by a good one: Newer tells.
//
// A toolchain that is not installed is a *MissingTool. What a compiler says
// about the sources is in the error's text. Faults of manifests and modules
// are those of pack.Prompt and module.Read; a folder that is no project is
// bad_request. If ctx ends, the tools are stopped.
func Build(ctx context.Context, dir string) (string, error) {
	m, wasm, err := compile(ctx, dir)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, m.Name+".wasm")
	if err := replace(path, wasm); err != nil {
		return "", fmt.Errorf("write module: %w", err)
	}
	return path, nil
}

// Limits returns those that a built module is read with: what compilers and
// guests of every host need, and no bound on the file, which is for each
// host's operator to set (limits.moduleBytes).
func Limits() module.Limits {
	l := module.DefaultLimits()
	l.Bytes = math.MaxInt
	return l
}

// compile returns a project's module and its manifest.
func compile(ctx context.Context, dir string) (m abi.Manifest, wasm []byte, err error) {
	by, err := filesOf(dir)
	if err != nil {
		return m, nil, err
	}
	switch {
	case len(by[".go"]) > 0:
		return compileGo(ctx, dir)
	case len(by[".c"]) > 0:
		return compileC(ctx, dir, by[".c"])
	}
	source, err := promptSource(dir, by)
	if err != nil {
		return m, nil, err
	}
	return packPrompt(filepath.Join(dir, source))
}

func packPrompt(path string) (abi.Manifest, []byte, error) {
	src, err := os.ReadFile(path) //nolint:gosec // a file of the user's project
	if err != nil {
		return abi.Manifest{}, nil, fmt.Errorf("read source: %w", err)
	}
	wasm, m, err := pack.Prompt(filepath.Base(path), src)
	if err != nil {
		return m, nil, fmt.Errorf("pack %s: %w", path, err)
	}
	return m, wasm, nil
}

// promptSource finds the one file that can be a prompt plugin's source.
func promptSource(dir string, by map[string][]string) (string, error) {
	markdown, yaml := slices.Concat(by[".md"], by[".markdown"]), slices.Concat(by[".yaml"], by[".yml"])
	var found []string
	for _, name := range markdown {
		has, err := hasFrontMatter(filepath.Join(dir, name))
		if err != nil {
			return "", err
		}
		if has {
			found = append(found, name)
		}
	}
	if len(found) == 0 {
		found = yaml
	}
	switch len(found) {
	case 0:
		return "", carrel.Fail(buildOp, abi.BadRequest, fmt.Sprintf("%s is no plugin's project: it has neither Go "+
			"sources, nor C sources and manifest.json, nor a Markdown file with front matter or a YAML file; `carrel new` makes one", dir))
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
	wasm, err = plugins.Embed(wasm, manifest, Limits())
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
