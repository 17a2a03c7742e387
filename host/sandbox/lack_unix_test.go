//go:build unix

package sandbox_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox"
	"github.com/carrelhost/carrel/internal/testproc"
)

// TestALackOfFilesIsNoDamage opens plugins, whose code or snapshot is in the
// cache, while no file can be opened, and later.
func TestALackOfFilesIsNoDamage(t *testing.T) {
	cfg, log := remembering(t)
	wasm, one, other := scribbler(initialised), warmed("grow", "\x5a"), warmed("grow", "\xa5")
	started(t, cfg, func(s *sandbox.Sandbox) {
		admit(t, s, wasm, one)
		admit(t, s, wasm, other)
	})
	started(t, cfg, func(s *sandbox.Sandbox) {
		lacks := func(what string, setup sandbox.Setup) {
			t.Helper()
			testproc.WithFiles(t, 0, func() {
				if _, err := s.Open(t.Context(), wasm, setup); carrel.CodeOf(err) != abi.Overloaded {
					t.Errorf("without files for %s there is %v", what, err)
				}
			})
		}
		lacks("the code", one)
		openWith(t, s, wasm, one)
		lacks("the snapshot", other) // the code is there
		openWith(t, s, wasm, other)
	})
	if said := log.String(); strings.Contains(said, "anew") {
		t.Errorf("the log says %s", said)
	}
	if code, snapshots := entries(t, cfg.CacheDir), entries(t, cfg.SnapshotDir); len(code) != 1 || len(snapshots) != 2 {
		t.Errorf("the caches have %q and %q", code, snapshots)
	}
}

// TestWithoutAnyDirectoryCodeIsInMemory has no directory in which the engine
// shows how it names its files, and then one.
func TestWithoutAnyDirectoryCodeIsInMemory(t *testing.T) {
	cfg, log := remembering(t)
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "missing"))
	for _, dir := range []string{cfg.CacheDir, cfg.SnapshotDir} {
		if err := os.WriteFile(dir, nil, 0o600); err != nil { // not even root can write below
			t.Fatal(err)
		}
	}
	files := []string{cfg.CacheDir, cfg.SnapshotDir}
	cfg.CacheDir, cfg.SnapshotDir = filepath.Join(cfg.CacheDir, "below"), filepath.Join(cfg.SnapshotDir, "below")
	wasm, setup := scribbler(initialised), warmed("grow", "\x5a")
	started(t, cfg, func(s *sandbox.Sandbox) {
		admit(t, s, wasm, setup)
		sameState(t, sandbox.Next(t, openWith(t, s, wasm, setup)), sandbox.Warmed(t, s, wasm, setup))
		if n := strings.Count(log.String(), "cannot be written"); n < 1 || n > 2 { // once of each
			t.Errorf("it was said %d times:\n%s", n, log)
		}
		if err := errors.Join(os.Remove(files[0]), os.Remove(files[1])); err != nil {
			t.Fatal(err)
		}
		admit(t, s, numbered(1), sandbox.Setup{})
		if got := entries(t, cfg.CacheDir); len(got) != 1 {
			t.Errorf("with room there is %q", got)
		}
	})
}
