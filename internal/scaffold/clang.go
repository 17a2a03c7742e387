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
	"slices"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox"
	"github.com/carrelhost/carrel/plugins"
	"github.com/carrelhost/carrel/plugins/manifest"
	"github.com/carrelhost/carrel/plugins/pack"
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
func compileC(ctx context.Context, dir string, sources []string) (m abi.Manifest, wasm []byte, err error) {
	raw, err := os.ReadFile(filepath.Join(dir, manifestFile)) //nolint:gosec // a file of the user's project
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil, carrel.Fail(buildOp, abi.BadRequest, dir+" has C sources and no "+manifestFile+", which declares the plugin; `carrel new --lang c` shows one")
	}
	if err != nil {
		return m, nil, fmt.Errorf("read manifest: %w", err)
	}
	m, err = manifest.Parse(raw, manifest.Known{})
	if err != nil {
		return m, nil, inManifestFile(raw, err)
	}
	clang, err := findTool("clang", clangRemedy)
	if err != nil {
		return m, nil, err
	}
	if _, err := findTool("wasm-ld", clangRemedy); err != nil {
		return m, nil, err
	}
	tmp, err := os.MkdirTemp("", "carrel-build-")
	if err != nil {
		return m, nil, fmt.Errorf("make a place to build: %w", err)
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
		return m, nil, err
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, raw); err != nil {
		return m, nil, fmt.Errorf("read manifest: %w", err)
	}
	if wasm, err = embedded(out, compact.Bytes()); err != nil {
		return m, nil, err
	}
	err = admit(ctx, wasm)
	if carrel.CodeOf(err) == abi.InvalidManifest {
		err = inManifestFile(raw, err)
	}
	return m, wasm, err
}

// inManifestFile says of a fault of the manifest in which file and line it is.
func inManifestFile(raw []byte, err error) error {
	e, ok := errors.AsType[*carrel.Error](err)
	if !ok {
		return err
	}
	out := *e
	lines, broken := pack.JSONLines(raw)
	if broken > 0 {
		at := fmt.Sprintf(" (line %d)", broken)
		out.Msg += at
		out.Faults = slices.Clone(e.Faults)
		for i := range out.Faults {
			out.Faults[i].Message += at
		}
	} else {
		out.Msg, out.Faults = lines.Add(e.Msg, e.Faults)
	}
	out.Msg = manifestFile + ": " + out.Msg
	return &out
}

// admit checks a module as a host would: that it exports what the manifest
// names, for one. For Go the build itself writes the exports.
func admit(ctx context.Context, wasm []byte) (err error) {
	box, err := sandbox.New(ctx, sandbox.Config{Module: Limits()})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, box.Close()) }()
	_, err = plugins.NewAdmit(manifest.Known{}, box)(ctx, plugins.Candidate{Module: wasm})
	return err
}
