package sandbox_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox"
	"github.com/carrelhost/carrel/host/sandbox/wasmtest"
)

func TestWhatWasAdmittedIsOpenedAtOnce(t *testing.T) {
	s := newSandbox(t, sandbox.Config{})
	wasm, setup := scribbler(initialised), warmed("grow", "\x5a")
	var stages []sandbox.Stage
	_, err := s.Admit(t.Context(), sandbox.Candidate{
		Module: wasm, Plan: func(sandbox.Report) (sandbox.Setup, error) { return setup, nil },
		Stage: func(s sandbox.Stage) { stages = append(stages, s) },
	})
	if err != nil || !slices.Equal(stages, []sandbox.Stage{sandbox.StageLint, sandbox.StageCompile, sandbox.StageInitialise, sandbox.StageWarm}) {
		t.Errorf("got %v, %v", stages, err)
	}
	if n := sandbox.Programs(s); n != 1 {
		t.Fatalf("there are %d programs", n)
	}
	same, other := openWith(t, s, wasm, setup), openWith(t, s, wasm, warmed("grow", "\x5b"))
	cold := open(t, s, wasm)
	if n := sandbox.Programs(s); n != 3 || sandbox.SameProgram(same, other) || sandbox.SameProgram(same, cold) {
		t.Errorf("there are %d programs", n)
	}
	if !sandbox.SameProgram(same, openWith(t, s, wasm, warmed("grow", "\x5a"))) {
		t.Error("one setup has two programs")
	}
	admit(t, s, numbered(1), sandbox.Setup{}) // another one is the latest
	for _, p := range []*sandbox.Plugin{same, other, cold} {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
	if n := sandbox.Programs(s); n != 2 { // one plugin is open still
		t.Errorf("%d programs are left", n)
	}
}

// TestSetupsHaveSnapshotsOfTheirOwn opens one module as several plugins.
func TestSetupsHaveSnapshotsOfTheirOwn(t *testing.T) {
	cfg, log := remembering(t)
	more := warmed("scribble", "\x5a")
	more.MemoryMiB++
	cold := sandbox.Setup{MemoryMiB: abi.DefaultMemoryMiB}
	setups := []sandbox.Setup{cold, warmed("scribble", "\x5a"), warmed("scribble", "\x5b"), warmed("grow", "\x5a"), more}
	wasm := scribbler(initialised)
	var want []sandbox.State
	started(t, cfg, func(s *sandbox.Sandbox) {
		for _, setup := range setups {
			admit(t, s, wasm, setup)
		}
		for i, setup := range setups {
			state := sandbox.Fresh(t, s, wasm, abi.DefaultMemoryMiB)
			if setup.Warmup != nil {
				state = sandbox.Warmed(t, s, wasm, setup)
			}
			want = append(want, state)
			for j := range i {
				if setup.MemoryMiB == setups[j].MemoryMiB && bytes.Equal(want[j].Memory, state.Memory) {
					t.Errorf("setups %d and %d come to the same", i, j)
				}
			}
		}
	})
	if got := entries(t, cfg.SnapshotDir); len(got) != len(setups) {
		t.Fatalf("there are %d snapshots", len(got))
	}
	if got := entries(t, cfg.CacheDir); len(got) != 1 {
		t.Errorf("the code was compiled %d times", len(got))
	}
	started(t, cfg, func(s *sandbox.Sandbox) {
		for i, setup := range setups {
			sameState(t, sandbox.Next(t, openWith(t, s, wasm, setup)), want[i])
		}
	})
	// Bounds that a guest can notice are part of the name as well.
	cfg.OutputBytes = 77
	started(t, cfg, func(s *sandbox.Sandbox) { openWith(t, s, wasm, cold) })
	cfg.OutputBytes, cfg.Fuel = 0, 1_000_000
	started(t, cfg, func(s *sandbox.Sandbox) { openWith(t, s, wasm, cold) })
	if n := strings.Count(log.String(), madeAnew); n != 2 {
		t.Errorf("%d were made anew:\n%s", n, log)
	}
}

// hungry is a guest whose _initialize needs so many MiB, and traps without.
func hungry(mib int32) []byte {
	m := wasmtest.New()
	m.Memory(1)
	f := m.Func(nil, nil)
	m.Export(abi.InitializeExport, wasmtest.FuncKind, f.Index)
	f.Const(mib*16 - 1).Grow().Const(-1).Raw(0x46).If().Unreachable().End()
	m.Method("run").Const(0)
	m.Custom(abi.ManifestSection, []byte("{}"))
	return m.Bytes()
}

func TestAnInitialisationThatNeedsMoreMemoryIsToldSo(t *testing.T) {
	for name, tc := range map[string]struct {
		needs   int32
		has     int
		code    abi.Code
		message string
	}{
		"it has what it needs":             {48, 48, abi.OK, ""},
		"it has less":                      {48, 47, abi.LimitExceeded, "more than the 47 MiB of memory"},
		"it has the default":               {33, 0, abi.LimitExceeded, "raise limits.memoryMiB"},
		"no plugin can have what it needs": {65, 40, abi.GuestTrap, "unreachable"},
		"nor if it has the most":           {65, 64, abi.GuestTrap, "unreachable"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSandbox(t, sandbox.Config{})
			_, err := s.Admit(t.Context(), sandbox.Candidate{
				Module: hungry(tc.needs), Plan: func(sandbox.Report) (sandbox.Setup, error) { return sandbox.Setup{MemoryMiB: tc.has}, nil },
			})
			wantCode(t, err, tc.code)
			if err != nil && !strings.Contains(err.Error(), tc.message) {
				t.Errorf("got %v", err)
			}
		})
	}
	t.Run("before it is initialised", func(t *testing.T) {
		s := newSandbox(t, sandbox.Config{})
		m := wasmtest.New()
		m.Memory(33)
		m.Method("run").Const(0)
		_, err := s.Admit(t.Context(), sandbox.Candidate{
			Module: m.Bytes(), Plan: func(sandbox.Report) (sandbox.Setup, error) { return sandbox.Setup{MemoryMiB: 2}, nil },
		})
		if e := asError(t, err); e.Limit != "memoryMiB" {
			t.Errorf("got %v", err)
		}
	})
}

// TestWhatTheLinterOverlooksIsRefused compiles a block of a type that there is
// not, which the rewriter looks up without asking.
func TestWhatTheLinterOverlooksIsRefused(t *testing.T) {
	m := wasmtest.New()
	m.Method("run").Raw(0x02, 0xe3, 0x00).End().Const(0) // block (type 99)
	s := newSandbox(t, sandbox.Config{})
	if _, err := s.Admit(t.Context(), sandbox.Candidate{Module: m.Bytes()}); carrel.CodeOf(err) != abi.InvalidModule {
		t.Fatalf("the linter says %v", err)
	}
	wantCode(t, sandbox.CompileUnlinted(t, s, m.Bytes()), abi.InvalidModule)
	good := wasmtest.New() // the place in the queue was given back
	good.Method("run").Const(0)
	if _, err := open(t, s, good.Bytes()).Call(t.Context(), sandbox.Call{Export: "run"}); err != nil {
		t.Error(err)
	}
}
