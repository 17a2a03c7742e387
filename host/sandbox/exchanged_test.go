package sandbox_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/carrelhost/carrel/host/sandbox"
	"github.com/carrelhost/carrel/host/sandbox/wasmtest"
)

// exchange gives the two entries of a cache each other's name.
func exchange(t *testing.T, dir string) {
	t.Helper()
	both := entries(t, dir)
	if len(both) != 2 {
		t.Fatalf("there is %q", both)
	}
	a, b, between := filepath.Join(dir, both[0]), filepath.Join(dir, both[1]), filepath.Join(dir, "between")
	if err := errors.Join(os.Rename(a, between), os.Rename(b, a), os.Rename(between, b)); err != nil {
		t.Fatal(err)
	}
}

// TestASnapshotIsNotThatOfAnotherPlugin exchanges what two plugins of the same
// code begin with, which would fit.
func TestASnapshotIsNotThatOfAnotherPlugin(t *testing.T) {
	cfg, log := remembering(t)
	wasm := scribbler(initialised)
	setups := []sandbox.Setup{warmed("grow", "\x5a"), warmed("grow", "\xa5")}
	started(t, cfg, func(s *sandbox.Sandbox) {
		for _, setup := range setups {
			admit(t, s, wasm, setup)
		}
	})
	exchange(t, cfg.SnapshotDir)
	for _, setup := range setups {
		want, _ := begins(t, sandbox.Config{}, wasm, setup)
		got, _ := begins(t, cfg, wasm, setup)
		sameState(t, got, want)
	}
	if n := strings.Count(log.String(), "is damaged"); n != 2 {
		t.Errorf("the log says %d times that one is damaged:\n%s", n, log)
	}
}

// TestExchangedCodeIsNotCompiledInThisProcess exchanges the code of two modules
// and takes the compiler away.
func TestExchangedCodeIsNotCompiledInThisProcess(t *testing.T) {
	cfg := inChildren(t)
	use(t, cfg, numbered(1), numbered(2))
	exchange(t, cfg.CacheDir)
	without := cfg
	without.CompileCommand = []string{filepath.Join(t.TempDir(), "none")}
	started(t, without, func(s *sandbox.Sandbox) {
		if _, err := s.Open(t.Context(), numbered(1), sandbox.Setup{}); err == nil {
			t.Error("without a compiler there is code")
		}
	})
	use(t, cfg, numbered(1), numbered(2))
	use(t, without, numbered(1), numbered(2)) // the cache is mended
}

// full is a guest whose initialisation leaves no page of so many zero.
func full(pages uint32) []byte {
	m := wasmtest.New()
	m.Memory(pages)
	f := m.Func(nil, nil)
	f.Const(0).Const(7).Unsigned(pages*sandbox.PageBytes).Raw(0xfc, 11, 0)
	m.Export("_initialize", 0, f.Index)
	m.Method("run").Const(0)
	return m.Bytes()
}

// TestASnapshotIsReadWithoutCopies opens a plugin of which almost all is its
// snapshot.
func TestASnapshotIsReadWithoutCopies(t *testing.T) {
	const pages = 512
	cfg, log := remembering(t)
	wasm, setup := full(pages), sandbox.Setup{MemoryMiB: pages * sandbox.PageBytes >> 20}
	started(t, cfg, func(s *sandbox.Sandbox) { admit(t, s, wasm, setup) })
	started(t, cfg, func(s *sandbox.Sandbox) {
		if by, _ := s.Memory(); by == "copy" {
			t.Skip("images are copies here")
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		p := openWith(t, s, wasm, setup)
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > pages*sandbox.PageBytes/4 {
			t.Errorf("to open it took %d bytes of the heap; its memory has %d", took, pages*sandbox.PageBytes)
		}
		if state := sandbox.Next(t, p); len(state.Memory) != pages*sandbox.PageBytes || state.Memory[0] != 7 || state.Memory[len(state.Memory)-1] != 7 {
			t.Error("its memory is another one")
		}
	})
	if log.Len() > 0 {
		t.Errorf("the log says %s", log)
	}
}

// TestSnapshotsAreReadAFewAtATime has every place for openings taken while
// nothing is left to do but to read a snapshot.
func TestSnapshotsAreReadAFewAtATime(t *testing.T) {
	cfg, _ := remembering(t)
	wasm, setup := scribbler(initialised), warmed("grow", "\x5a")
	setup.Share = "mine"
	started(t, cfg, func(s *sandbox.Sandbox) { admit(t, s, wasm, setup) })
	started(t, cfg, func(s *sandbox.Sandbox) {
		restored := sandbox.Restore(t, s, wasm, setup)
		places := sandbox.Openings(s)
		if err := places.Acquire(t.Context(), "mine", nil); err != nil { // all that one share may have
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- restored() }()
		for held, waiting := places.Of("mine"); waiting == 0; held, waiting = places.Of("mine") {
			select {
			case err := <-done:
				t.Fatalf("with %d places taken it does not wait: %v", held, err)
			default:
				runtime.Gosched()
			}
		}
		places.Release("mine")
		if err := <-done; err != nil {
			t.Error(err)
		}
		if held, waiting := places.Of("mine"); held != 0 || waiting != 0 {
			t.Errorf("it holds %d places, and %d wait", held, waiting)
		}
	})
}
