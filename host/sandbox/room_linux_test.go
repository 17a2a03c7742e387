//go:build !portable

package sandbox_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox"
	"github.com/carrelhost/carrel/host/sandbox/image"
	"github.com/carrelhost/carrel/internal/testproc"
)

// TestAnOpeningWithoutFilesIsToComeAgain opens a plugin whose code and state
// are in the cache, with each number of files that may be too small. It opens
// as it was admitted, or there is no room; the cache loses nothing.
func TestAnOpeningWithoutFilesIsToComeAgain(t *testing.T) {
	cfg, log := remembering(t)
	wasm, setup := scribbler(initialised), warmed("grow", "\x5a")
	started(t, cfg, func(s *sandbox.Sandbox) { admit(t, s, wasm, setup) })
	want, _ := begins(t, cfg, wasm, setup)
	code, states := entries(t, cfg.CacheDir), entries(t, cfg.SnapshotDir)
	var refused, opened int
	for more := range uint64(24) {
		started(t, cfg, func(s *sandbox.Sandbox) {
			var p *sandbox.Plugin
			var err error
			testproc.WithFiles(t, more, func() { p, err = s.Open(t.Context(), wasm, setup) })
			if err == nil {
				opened++
				sameState(t, sandbox.Next(t, p), want)
				return
			}
			refused++
			if failure, ok := errors.AsType[*carrel.Error](err); !ok || failure.Code != abi.Overloaded || !strings.Contains(failure.Msg, "try again") {
				t.Errorf("with %d files: %v", more, err)
			}
			if opened > 0 {
				t.Errorf("%d files are too few, though fewer were enough", more)
			}
			sameState(t, sandbox.Next(t, openWith(t, s, wasm, setup)), want)
		})
	}
	if refused < 2 || opened < 2 {
		t.Errorf("%d openings were refused and %d were not", refused, opened)
	}
	if !slices.Equal(entries(t, cfg.CacheDir), code) || !slices.Equal(entries(t, cfg.SnapshotDir), states) || strings.Contains(log.String(), "anew") {
		t.Errorf("the cache had %q and %q; the log says %s", code, states, log)
	}
}

// TestACallWithoutRoomClosesWhatWaits calls a plugin where the system has no
// address space for another instance, but others wait.
func TestACallWithoutRoomClosesWhatWaits(t *testing.T) {
	if !testproc.Apart(t) {
		return
	}
	const instances = 8
	s := newSandbox(t, sandbox.Config{Slots: instances})
	if by, _ := s.Memory(); by == image.Copy.String() {
		t.Skip("guests' memory is the process's own")
	}
	waits, called := open(t, s, pupil(nil)), open(t, s, pupil(nil))
	sandbox.Stock(t, waits, instances, "run", nil)
	// Less than an instance needs, and enough for the process.
	testproc.WithAddresses(t, abi.DefaultMemoryMiB<<20/2, func() {
		if _, err := called.Call(t.Context(), sandbox.Call{Export: "run", Host: &host{}}); err != nil {
			t.Error(err)
		}
	})
	if n, _ := sandbox.Idle(waits); n != instances/2 {
		t.Errorf("%d of %d instances wait", n, instances)
	}
	if n, _ := sandbox.Idle(called); n != 1 {
		t.Errorf("of what was called %d wait", n)
	}
}

// TestAnUploadWithoutRoomClosesWhatWaits is the same for an admission.
func TestAnUploadWithoutRoomClosesWhatWaits(t *testing.T) {
	if !testproc.Apart(t) {
		return
	}
	const instances = 8
	s := newSandbox(t, sandbox.Config{Slots: instances})
	if by, _ := s.Memory(); by == image.Copy.String() {
		t.Skip("guests' memory is the process's own")
	}
	waits := open(t, s, pupil(nil))
	sandbox.Stock(t, waits, instances, "run", nil)
	// Less than the instance needs that is initialised.
	testproc.WithAddresses(t, abi.MaxMemoryMiB<<20/2, func() {
		if _, err := s.Admit(t.Context(), sandbox.Candidate{Module: pupil(nil)}); err != nil {
			t.Error(err)
		}
	})
	if n, _ := sandbox.Idle(waits); n != instances/2 {
		t.Errorf("%d of %d instances wait", n, instances)
	}
}

// TestAnEngineWithoutMemoryIsNoFault opens a plugin where the engine panics for
// want of address space.
func TestAnEngineWithoutMemoryIsNoFault(t *testing.T) {
	if !testproc.Apart(t) {
		return
	}
	s := newSandbox(t, sandbox.Config{})
	open(t, s, pupil(nil))
	var err error
	testproc.WithAddresses(t, 0, func() { _, err = s.Open(t.Context(), scribbler(initialised), sandbox.Setup{}) })
	if carrel.CodeOf(err) != abi.Overloaded {
		t.Errorf("got %v", err)
	}
	open(t, s, scribbler(initialised))
}
