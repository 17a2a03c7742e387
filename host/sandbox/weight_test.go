package sandbox_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/carrelhost/carrel/host/sandbox"
	"github.com/carrelhost/carrel/host/sandbox/wasmtest"
	"github.com/carrelhost/carrel/internal/testproc"
)

// weighEnv names the directory that has the guest of Go, for a process that
// weighs it.
const weighEnv = "SANDBOX_TEST_WEIGH"

// alone runs the test at hand once more, in a process that runs nothing else:
// what earlier tests left and other tests take would be weighed, too. It
// reports whether this is that process, with the Go guest if it is to be had.
func alone(t *testing.T, ofGo bool) (guest []byte, here bool) {
	t.Helper()
	if slowness > 1 {
		t.Skip("the race detector takes memory, too")
	}
	if !ofGo {
		return nil, testproc.Apart(t)
	}
	if !testproc.Inside(t) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "guest.wasm"), goModule(t), 0o600); err != nil {
			t.Fatal(err)
		}
		return nil, testproc.Apart(t, weighEnv+"="+dir)
	}
	guest, err := os.ReadFile(filepath.Join(os.Getenv(weighEnv), "guest.wasm"))
	if err != nil {
		t.Fatal(err)
	}
	return guest, true
}

// anonymous returns how many bytes of resident memory are the process's own:
// pages of guests' images are not.
func anonymous(t *testing.T) int64 {
	t.Helper()
	footprint(t) // collects what can be
	n := testproc.Memory(t, testproc.Anonymous)
	if n == 0 {
		t.Skip("this system does not tell")
	}
	return n
}

// within reports whether what is said is between half and twice what is, give
// or take what the process does by itself.
func within(said, is int64) bool {
	const noise = 2 << 20
	return said >= is/2-noise && said <= 2*is+noise
}

func TestIdleInstancesAreCountedAsTheProcessHasThem(t *testing.T) {
	const n = 60
	for name, tc := range map[string]struct {
		wasm   []byte // nil: the Go guest
		export string
		input  string
	}{
		"small":         {smallGuest(), "noop", ""},
		"a large table": {tabled(5000), "run", ""},
		"Go":            {nil, "json", benchInput},
	} {
		t.Run(name, func(t *testing.T) {
			guest, here := alone(t, tc.wasm == nil)
			if !here {
				return
			}
			if tc.wasm != nil {
				guest = tc.wasm
			}
			s := newSandbox(t, sandbox.Config{Slots: n})
			p := open(t, s, guest)
			sandbox.Stock(t, p, 1, tc.export, []byte(tc.input))
			own := anonymous(t)
			before := sandbox.IdleBytes(s)
			sandbox.Stock(t, p, n-1, tc.export, []byte(tc.input))
			said, is := sandbox.IdleBytes(s)-before, anonymous(t)-own
			t.Logf("each is said to keep %d KiB, the process has %d KiB more", said/(n-1)>>10, is/(n-1)>>10)
			if !within(said, is) {
				t.Errorf("%d instances are said to keep %d bytes, the process has %d more", n, said, is)
			}
		})
	}
}

// tabled is a module with a table of functions.
func tabled(n int) []byte {
	m := wasmtest.New()
	f := m.Func(nil, nil)
	m.Table(uint32(n))
	m.Elements(0, slices.Repeat([]uint32{f.Index}, n)...)
	m.Method("run").Const(0)
	return m.Bytes()
}

func TestLoadedCodeIsCountedAsTheProcessHasIt(t *testing.T) {
	for name, tc := range map[string]struct {
		n    int
		ofGo bool
		dir  bool
	}{
		"small, from files": {100, false, true},
		"small, in memory":  {100, false, false},
		"Go, from files":    {1, true, true},
		"Go, in memory":     {1, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			guest, here := alone(t, tc.ofGo)
			if !here {
				return
			}
			wasm := numbered
			if tc.ofGo {
				wasm = func(int) []byte { return guest }
			}
			var cfg sandbox.Config
			if tc.dir {
				cfg.CacheDir = t.TempDir()
			}
			s := newSandbox(t, cfg)
			closing(t, open(t, s, numbered(-1)))
			if tc.dir {
				for i := range tc.n { // what is loaded from a file takes another way
					closing(t, open(t, s, wasm(i)))
				}
			}
			before, said := anonymous(t), s.LoadedBytes()
			var all []*sandbox.Plugin
			for i := range tc.n {
				all = append(all, open(t, s, wasm(i)))
			}
			said, is := s.LoadedBytes()-said, anonymous(t)-before
			t.Logf("each is said to take %d KiB, the process has %d KiB more", said/int64(tc.n)>>10, is/int64(tc.n)>>10)
			if !within(said, is) {
				t.Errorf("%d plugins are said to take %d bytes, the process has %d more", tc.n, said, is)
			}
			for _, p := range all {
				closing(t, p)
			}
			if got := s.LoadedBytes(); got != 0 {
				t.Errorf("%d bytes are left when all are closed", got)
			}
		})
	}
}
