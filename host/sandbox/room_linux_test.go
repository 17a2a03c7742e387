//go:build !portable

package sandbox_test

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox"
	"github.com/carrelhost/carrel/host/sandbox/image"
)

// withFiles runs f in a process that may open so many files more.
func withFiles(t *testing.T, more uint64, f func()) {
	t.Helper()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	next := uint64(null.Fd()) // the lowest number that is free
	var was unix.Rlimit
	if err := errors.Join(null.Close(), unix.Getrlimit(unix.RLIMIT_NOFILE, &was)); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: next + more, Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
			t.Error(err)
		}
	}()
	f()
}

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
			withFiles(t, more, func() { p, err = s.Open(t.Context(), wasm, setup) })
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

// roomVar tells a process of tests that it may use up its address space.
const roomVar = "CARREL_TEST_ROOM"

// TestACallWithoutRoomClosesWhatWaits calls a plugin where the system has no
// address space for another instance, but others wait.
func TestACallWithoutRoomClosesWhatWaits(t *testing.T) {
	if !cramped(t) {
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
	withAddresses(t, abi.DefaultMemoryMiB<<20/2, func() {
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

// TestAnEngineWithoutMemoryIsNoFault opens a plugin where the engine panics for
// want of address space.
func TestAnEngineWithoutMemoryIsNoFault(t *testing.T) {
	if !cramped(t) {
		return
	}
	s := newSandbox(t, sandbox.Config{})
	open(t, s, pupil(nil))
	var err error
	withAddresses(t, 0, func() { _, err = s.Open(t.Context(), scribbler(initialised), sandbox.Setup{}) })
	if carrel.CodeOf(err) != abi.Overloaded {
		t.Errorf("got %v", err)
	}
	open(t, s, scribbler(initialised))
}

// cramped runs the test at hand once more, in a process that may end for want of
// room. It reports whether this is that process.
func cramped(t *testing.T) bool {
	t.Helper()
	if os.Getenv(roomVar) != "" {
		return true
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), roomVar+"=1")
	said, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(said), "--- PASS: "+t.Name()) && !strings.Contains(string(said), "--- SKIP: "+t.Name()) {
		t.Errorf("alone it ended with %v\n%s", err, said)
	}
	return false
}

// withAddresses runs f in a process that has so many bytes of address space
// more.
func withAddresses(t *testing.T, more uint64, f func()) {
	t.Helper()
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	size, _, _ := strings.Cut(string(statm), " ")
	pages, err := strconv.ParseUint(size, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_AS, &was); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_AS, &unix.Rlimit{Cur: pages*uint64(os.Getpagesize()) + more, Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Setrlimit(unix.RLIMIT_AS, &was); err != nil {
			t.Error(err)
		}
	}()
	f()
}
