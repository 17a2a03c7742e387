//go:build !portable

package sandbox_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox"
	"github.com/carrelhost/carrel/host/sandbox/image"
	"github.com/carrelhost/carrel/host/sandbox/wasmtest"
	"github.com/carrelhost/carrel/internal/testproc"
)

const (
	wantedPages = 400      // that starved guests grow by: 25 MiB, less than a plugin has
	scarceBytes = 12 << 20 // that the system has for all of them, and for the process
)

// grows has the memory grow, and leaves 1 if that failed, else 0.
func grows(c *wasmtest.Code) *wasmtest.Code { return c.Const(wantedPages).Grow().Const(-1).Raw(0x46) }

// needy is a guest whose method run grows its memory and writes 1 if that
// failed, else 0. Its initialisation, its carrel_describe and its method learn
// are what the case makes of them.
func needy(more func(m *wasmtest.Module, begin *wasmtest.Func)) []byte {
	m := wasmtest.New()
	write := m.Carrel("output_write")
	m.Memory(1)
	begin := m.Func(nil, nil)
	m.Export(abi.InitializeExport, wasmtest.FuncKind, begin.Index)
	if more != nil {
		more(m, begin)
	}
	run := m.Method("run").Const(100)
	grows(run).Store().Const(100).Const(4).Call(write)
	m.Method("fail").Const(wantedPages).Grow()
	trap := m.Method("trap")
	grows(&trap.Code).Drop().Unreachable()
	return m.Bytes()
}

// mapsMemory skips the test where guests' memory is the process's own.
func mapsMemory(t *testing.T, s *sandbox.Sandbox) {
	t.Helper()
	if by, _ := s.Memory(); by == image.Copy.String() {
		t.Skip("guests' memory is the process's own")
	}
}

// wantToComeAgain fails the test unless the error says that the host lacks
// memory now, and its operator how much of what.
func wantToComeAgain(t *testing.T, what string, err error) {
	t.Helper()
	failure, ok := errors.AsType[*carrel.Error](err)
	if !ok || failure.Code != abi.Overloaded || !strings.Contains(failure.Msg, "try again") || !strings.Contains(err.Error(), "ulimit -d, ") {
		t.Errorf("%s: %v", what, err)
	}
}

// TestAnAdmissionThatIsRefusedMemoryIsToComeAgain admits guests while the system
// has too little for them, and later: whatever they make of it, nothing of that
// is their fault, or kept.
func TestAnAdmissionThatIsRefusedMemoryIsToComeAgain(t *testing.T) {
	if !testproc.Apart(t) {
		return
	}
	warm := warmed("learn", "")
	for name, tc := range map[string]struct {
		more  func(m *wasmtest.Module, begin *wasmtest.Func)
		setup sandbox.Setup
	}{
		"a warm-up that goes on without": {func(m *wasmtest.Module, _ *wasmtest.Func) {
			grows(&m.Method("learn").Code).Drop().Const(0)
		}, warm},
		"a warm-up that returns a failure": {func(m *wasmtest.Module, _ *wasmtest.Func) { grows(&m.Method("learn").Code) }, warm},
		"a warm-up that gives up": {func(m *wasmtest.Module, _ *wasmtest.Func) {
			grows(&m.Method("learn").Code).If().Unreachable().End().Const(0)
		}, warm},
		"an initialisation that goes on without": {func(_ *wasmtest.Module, begin *wasmtest.Func) { grows(&begin.Code).Drop() }, sandbox.Setup{}},
		"an initialisation that gives up": {func(_ *wasmtest.Module, begin *wasmtest.Func) {
			grows(&begin.Code).If().Unreachable().End()
		}, sandbox.Setup{}},
		"a description that goes on without": {func(m *wasmtest.Module, _ *wasmtest.Func) {
			grows(&m.Method(abi.DescribeExport).Code).Drop().Const(0)
		}, sandbox.Setup{}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, log := remembering(t)
			wasm := needy(tc.more)
			started(t, cfg, func(s *sandbox.Sandbox) {
				mapsMemory(t, s)
				testproc.WithData(t, scarceBytes, func() {
					_, err := s.Admit(t.Context(), sandbox.Candidate{Module: wasm, Plan: func(sandbox.Report) (sandbox.Setup, error) { return tc.setup, nil }})
					wantToComeAgain(t, "with little memory", err)
				})
				if got := entries(t, cfg.SnapshotDir); len(got) > 0 || log.Len() > 0 || sandbox.Programs(s) > 0 {
					t.Errorf("%q are kept, %d programs are left, and the log says %s", got, sandbox.Programs(s), log)
				}
				if r := admit(t, s, wasm, tc.setup); r.Warmup != nil && !r.Warmup.Kept {
					t.Errorf("with room its warm-up is %+v", r.Warmup)
				}
			})
		})
	}
}

// TestWhatAFailedInitialisationNeedsIsNotGuessed admits a guest that fails at
// its own limit, while the system has too little to find out whether it would
// with more.
func TestWhatAFailedInitialisationNeedsIsNotGuessed(t *testing.T) {
	if !testproc.Apart(t) {
		return
	}
	s := newSandbox(t, sandbox.Config{})
	mapsMemory(t, s)
	upload := sandbox.Candidate{
		Module: needy(func(_ *wasmtest.Module, begin *wasmtest.Func) { grows(&begin.Code).If().Unreachable().End() }),
		Plan:   func(sandbox.Report) (sandbox.Setup, error) { return sandbox.Setup{MemoryMiB: 1}, nil },
	}
	testproc.WithData(t, scarceBytes, func() {
		_, err := s.Admit(t.Context(), upload)
		wantToComeAgain(t, "with little memory", err)
	})
	_, err := s.Admit(t.Context(), upload)
	wantCode(t, err, abi.LimitExceeded)
	if got := asError(t, err).Limit; got != "memoryMiB" {
		t.Errorf("with room it names the limit %q", got)
	}
}

// TestAnOpeningThatIsRefusedMemoryIsToComeAgain loses the state of a plugin and
// opens it while the system has too little for making it anew.
func TestAnOpeningThatIsRefusedMemoryIsToComeAgain(t *testing.T) {
	if !testproc.Apart(t) {
		return
	}
	wasm := needy(func(m *wasmtest.Module, _ *wasmtest.Func) { grows(&m.Method("learn").Code).Drop().Const(0) })
	setup := warmed("learn", "")
	cfg, _ := remembering(t)
	started(t, cfg, func(s *sandbox.Sandbox) {
		mapsMemory(t, s)
		admit(t, s, wasm, setup)
	})
	want, _ := begins(t, cfg, wasm, setup)
	if err := os.RemoveAll(cfg.SnapshotDir); err != nil {
		t.Fatal(err)
	}
	started(t, cfg, func(s *sandbox.Sandbox) {
		testproc.WithData(t, scarceBytes, func() {
			_, err := s.Open(t.Context(), wasm, setup)
			wantToComeAgain(t, "with little memory", err)
		})
		if got := entries(t, cfg.SnapshotDir); len(got) > 0 || sandbox.Programs(s) > 0 {
			t.Errorf("%q are kept, and %d programs are left", got, sandbox.Programs(s))
		}
		sameState(t, sandbox.Next(t, openWith(t, s, wasm, setup)), want)
	})
}

// TestACallThatIsRefusedMemoryIsToComeAgain calls a plugin while the system has
// too little for what it does, and later.
func TestACallThatIsRefusedMemoryIsToComeAgain(t *testing.T) {
	if !testproc.Apart(t) {
		return
	}
	for export, ends := range map[string]abi.Code{"run": abi.OK, "fail": abi.GuestFailed, "trap": abi.GuestTrap} {
		// Each closes its own: what a call grew by is given back after it.
		started(t, sandbox.Config{}, func(s *sandbox.Sandbox) {
			mapsMemory(t, s)
			p := open(t, s, needy(nil))
			testproc.WithData(t, scarceBytes, func() {
				_, err := p.Call(t.Context(), sandbox.Call{Export: export})
				wantToComeAgain(t, export+" with little memory", err)
			})
			if n, _ := sandbox.Idle(p); n > 0 {
				t.Errorf("after %s %d instances wait", export, n)
			}
			r, err := p.Call(t.Context(), sandbox.Call{Export: export})
			if carrel.CodeOf(err) != ends || ends == abi.OK && binaryWord(r.Output) != 0 {
				t.Errorf("%s with room: it writes %x and ends with %v", export, r.Output, err)
			}
		})
	}
}

// TestACallThatIsRefusedMemoryClosesWhatWaits has the next try find what
// instances of another plugin held.
func TestACallThatIsRefusedMemoryClosesWhatWaits(t *testing.T) {
	if !testproc.Apart(t) {
		return
	}
	const instances = 4
	s := newSandbox(t, sandbox.Config{Slots: instances})
	mapsMemory(t, s)
	waits, p := open(t, s, pupil(nil)), open(t, s, needy(nil))
	sandbox.Stock(t, waits, instances, "run", nil)
	testproc.WithData(t, scarceBytes, func() {
		_, err := p.Call(t.Context(), sandbox.Call{Export: "run"})
		wantToComeAgain(t, "with little memory", err)
	})
	if n, _ := sandbox.Idle(waits); n != instances/2 {
		t.Errorf("%d of %d instances wait", n, instances)
	}
}
