package scaffold

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/plugins"
)

const manifestFile = "manifest.json"

const clangRemedy = "get clang and lld (Debian, Ubuntu: apt-get install clang lld; macOS: brew install llvm lld; Windows: https://releases.llvm.org)"

// clangArgs returns the arguments that make a module of C sources: without a
// C library and so without WASI, bulk memory for copies, the stack below the
// data so that an overflow traps.
func clangArgs(out string, sources []string) []string {
	args := []string{
		"--target=wasm32", "-std=c99", "-O2", "-Wall", "-ffreestanding", "-fno-builtin", "-mbulk-memory", "-nostdlib",
		"-Wl,--no-entry", "-Wl,--stack-first", "-Wl,-z,stack-size=65536", "-o", out,
	}
	return append(args, sources...)
}

// compileC compiles and links C sources of a folder.
func compileC(ctx context.Context, dir string, sources []string) (string, []byte, error) {
	manifest, err := os.ReadFile(filepath.Join(dir, manifestFile)) //nolint:gosec // a file of the user's project
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil, carrel.Fail(buildOp, abi.BadRequest, dir+" has C sources and no "+manifestFile+", which declares the plugin; `carrel new --lang c` shows one")
	}
	if err != nil {
		return "", nil, fmt.Errorf("read manifest: %w", err)
	}
	m, err := plugins.ParseManifest(manifest, plugins.Known{})
	if err != nil {
		return "", nil, fmt.Errorf("read %s: %w", manifestFile, err)
	}
	clang, err := findTool("clang", clangRemedy)
	if err != nil {
		return "", nil, err
	}
	if _, err := findTool("wasm-ld", clangRemedy); err != nil {
		return "", nil, err
	}
	tmp, err := os.MkdirTemp("", "carrel-build-")
	if err != nil {
		return "", nil, fmt.Errorf("make a place to build: %w", err)
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	// Without the folder's name, which must not show in the module, and not to
	// be taken for options.
	names := make([]string, 0, len(sources))
	for _, s := range sources {
		names = append(names, "./"+s)
	}
	out := filepath.Join(tmp, "guest.wasm")
	if err := (tool{path: clang, dir: dir}).run(ctx, clangArgs(out, names)...); err != nil {
		return "", nil, err
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, manifest); err != nil {
		return "", nil, fmt.Errorf("read manifest: %w", err)
	}
	wasm, err := embedded(out, compact.Bytes())
	return m.Name, wasm, err
}
