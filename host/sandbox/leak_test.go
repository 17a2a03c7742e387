package sandbox_test

import (
	"context"
	"runtime"
	"runtime/debug"
	"strconv"
	"testing"
	"time"

	"github.com/carrelhost/carrel/host/sandbox"
	"github.com/carrelhost/carrel/host/sandbox/wasmtest"
	"github.com/carrelhost/carrel/internal/testproc"
)

// TestNothingOfACallStays makes many calls that end in every way and looks at
// what the process holds afterwards.
func TestNothingOfACallStays(t *testing.T) {
	s := newSandbox(t, sandbox.Config{})
	var builders []*sandbox.Plugin
	for _, name := range []string{"it spins", "it executes unreachable", "it exits", "it grows its memory by all there is for ever", "it sleeps for 584 years"} {
		builders = append(builders, open(t, s, hostileModule(hostile[name].build)))
	}
	good := open(t, s, caller())
	round := func(n int) {
		for i := range n {
			if _, err := good.Call(t.Context(), sandbox.Call{Export: "run", Host: echo()}); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			if _, err := builders[i%len(builders)].Call(ctx, sandbox.Call{Export: "run"}); err == nil {
				t.Fatal("a hostile guest ended well")
			}
			cancel()
		}
	}
	round(100)
	rss, heap, goroutines := footprint(t)
	round(1000)
	rss2, heap2, goroutines2 := footprint(t)
	t.Logf("RSS %d → %d KiB, heap %d → %d KiB, %d → %d goroutines", rss>>10, rss2>>10, heap>>10, heap2>>10, goroutines, goroutines2)
	if heap2 > heap+1<<20 {
		t.Errorf("the heap grew from %d to %d bytes", heap, heap2)
	}
	if rss2 > rss+48<<20 {
		t.Errorf("the process grew from %d to %d bytes", rss, rss2)
	}
	if goroutines2 > goroutines {
		t.Errorf("%d goroutines became %d", goroutines, goroutines2)
	}
}

// TestNothingOfAnUploadStays does the same for admissions and openings of
// modules that differ.
func TestNothingOfAnUploadStays(t *testing.T) {
	s := newSandbox(t, sandbox.Config{})
	n := 0
	round := func(times int) {
		for range times {
			n++
			m := counter()
			// Types that no upload before had: an engine may remember them.
			for i := range 50 {
				params := make([]byte, 17)
				for bit := range params {
					params[bit] = wasmtest.I32 - byte((50*n+i)>>bit&1)
				}
				m.Type(params, nil)
			}
			m.Custom("n", []byte(strconv.Itoa(n)))
			if _, err := s.Admit(t.Context(), sandbox.Candidate{Module: m.Bytes()}); err != nil {
				t.Fatal(err)
			}
			p := open(t, s, m.Bytes())
			if _, err := p.Call(t.Context(), sandbox.Call{Export: "run"}); err != nil {
				t.Fatal(err)
			}
			if err := p.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	round(50)
	rss, heap, goroutines := footprint(t)
	round(300)
	rss2, heap2, goroutines2 := footprint(t)
	t.Logf("RSS %d → %d KiB, heap %d → %d KiB, %d → %d goroutines", rss>>10, rss2>>10, heap>>10, heap2>>10, goroutines, goroutines2)
	if heap2 > heap+1<<20 || rss2 > rss+32<<20 || goroutines2 > goroutines {
		t.Errorf("something stayed")
	}
}

// footprint returns the resident bytes of the process (0 where the system
// does not tell), those of the heap, and the number of goroutines, when all
// is collected that can be.
func footprint(t *testing.T) (rss, heap uint64, goroutines int) {
	t.Helper()
	// Finalizers unmap machine code: what they free is only seen by the next
	// collection.
	for range 3 {
		runtime.GC()
	}
	debug.FreeOSMemory()
	// The engine's watchers of contexts end a moment after their calls.
	for range 100 {
		runtime.Gosched()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return uint64(testproc.Memory(t, testproc.Resident)), m.HeapAlloc, runtime.NumGoroutine()
}
