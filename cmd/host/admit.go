package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/carrelhost/carrel/host/sandbox"
	"github.com/carrelhost/carrel/plugins"
	"github.com/carrelhost/carrel/plugins/manifest"
)

// admitAlone admits a module as a host would, without one. It is compiled in
// a child process with a host's limits, so that a hostile one harms nothing
// else. What that leaves is in a directory which is gone at the end, also if
// ctx ends before.
func admitAlone(ctx context.Context, e env, cfg sandbox.Config, wasm []byte) (a plugins.Admission, err error) {
	if cfg.CompileCommand = compileCommand(e); cfg.CompileCommand == nil {
		fmt.Fprintln(e.stderr, "this program does not find itself: the module is compiled in its process, without limits on time and memory")
	} else {
		dir, err := os.MkdirTemp("", "carrel-inspect-")
		if err != nil {
			return a, fmt.Errorf("a directory for compiled code (TMPDIR names its place): %w", err)
		}
		defer os.RemoveAll(dir) //nolint:errcheck // the system clears its scratch space, too
		cfg.CacheDir = filepath.Join(dir, "code")
	}
	box, err := sandbox.New(ctx, cfg)
	if err != nil {
		return a, err
	}
	defer func() {
		if e := box.Close(); err == nil {
			err = e
		}
	}()
	return plugins.NewAdmit(manifest.Known{}, box)(ctx, plugins.Candidate{Module: wasm})
}
