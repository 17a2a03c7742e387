package sandbox_test

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox"
	"github.com/carrelhost/carrel/host/sandbox/wasmtest"
)

// tooShort is over whenever a guest is asked, on any machine. A guest is asked
// when its first slice of fuel is used up: what needs no more is never late.
const tooShort = time.Nanosecond

// What is said to be late.
const (
	lateToBegin = "_initialize and carrel_describe"
	lateToLearn = "the warm-up did not end within 1ns"
)

// dawdle goes round two hundred million times, with a local that is 0: for
// thousands of slices of fuel.
func dawdle(c *wasmtest.Code) {
	c.Loop().Get(0).Const(1).Add().Set(0).Get(0).Const(200_000_000).Raw(0x48).BrIf(0).End()
}

// slowToLearn is a pupil whose warm-up adds 7, and takes its time. Its
// initialisation is a few instructions long.
func slowToLearn() []byte {
	return pupil(func(s school) {
		s.learns(func(c *wasmtest.Code) { c.Const(7) })
		s.Locals(1, wasmtest.I32)
		dawdle(&s.Code)
		s.Const(0)
	})
}

// slowToBegin is a guest whose initialisation takes its time; run writes 1001.
func slowToBegin() []byte {
	m := wasmtest.New()
	write := m.Carrel("output_write")
	m.Memory(1)
	begin := m.Func(nil, nil)
	m.Export(abi.InitializeExport, wasmtest.FuncKind, begin.Index)
	begin.Locals(1, wasmtest.I32)
	dawdle(&begin.Code)
	begin.Const(100).Const(1000).Store()
	m.Method("run").Const(100).Const(100).Load().Const(1).Add().Store().Const(100).Const(4).Call(write)
	return m.Bytes()
}

// What calls begin with must not depend on how busy the host was at an upload:
// others may have uploaded the same bytes at another time.
func TestAWarmupThatDoesNotEndInTimeRefusesTheUpload(t *testing.T) {
	cfg, log := remembering(t)
	cfg.AdmitTimeout = tooShort
	wasm, setup := slowToLearn(), warmed("learn", "")
	started(t, cfg, func(s *sandbox.Sandbox) {
		var stages []sandbox.Stage
		_, err := s.Admit(t.Context(), sandbox.Candidate{
			Module: wasm, Plan: func(sandbox.Report) (sandbox.Setup, error) { return setup, nil },
			Stage: func(s sandbox.Stage) { stages = append(stages, s) },
		})
		refused, ok := errors.AsType[*carrel.Error](err)
		if !ok || refused.Code != abi.LimitExceeded || refused.Limit != "sandbox.admitTimeout" {
			t.Fatalf("got %v", err)
		}
		for _, part := range []string{lateToLearn, "do less in the warm-up, or upload again when the host is less busy"} {
			if !strings.Contains(refused.Msg, part) {
				t.Errorf("the message lacks %q: %s", part, refused.Msg)
			}
		}
		if !slices.Contains(stages, sandbox.StageWarm) {
			t.Errorf("the stages were %v", stages)
		}
		if n := sandbox.Programs(s); n != 0 {
			t.Errorf("%d programs are left of it", n)
		}
	})
	if got := entries(t, cfg.SnapshotDir); len(got) > 0 || log.Len() > 0 {
		t.Errorf("%q are kept, and the log says %s", got, log)
	}
	cfg.AdmitTimeout = time.Minute // a calm hour
	started(t, cfg, func(s *sandbox.Sandbox) {
		if r := admit(t, s, wasm, setup); !r.Warmup.Kept {
			t.Errorf("got %+v", r.Warmup)
		}
		runsTo(t, openWith(t, s, wasm, setup), 1008)
	})
	// Now a busy one, in which somebody else uploads the same.
	cfg.AdmitTimeout = tooShort
	started(t, cfg, func(s *sandbox.Sandbox) {
		_, err := s.Admit(t.Context(), sandbox.Candidate{Module: wasm, Plan: func(sandbox.Report) (sandbox.Setup, error) { return setup, nil }})
		if carrel.CodeOf(err) != abi.LimitExceeded || !strings.Contains(err.Error(), lateToLearn) {
			t.Errorf("got %v", err)
		}
		runsTo(t, openWith(t, s, wasm, setup), 1008)
	})
}

// TestAllInitialisationsOfAnUploadHaveOneLimit has a module initialised where
// others of the same upload took some of the time, and all of it.
func TestAllInitialisationsOfAnUploadHaveOneLimit(t *testing.T) {
	const all = time.Hour
	s := newSandbox(t, sandbox.Config{AdmitTimeout: all})
	wasm := slowToBegin()
	const before = time.Minute
	spent, took, err := sandbox.Rehearse(t, s, wasm, before)
	if err != nil || took <= 0 || spent < before+took {
		t.Errorf("after %v and another %v, %v are spent, and it ends with %v", before, took, spent, err)
	}
	_, _, err = sandbox.Rehearse(t, s, wasm, all)
	refused, ok := errors.AsType[*carrel.Error](err)
	if !ok || refused.Code != abi.LimitExceeded || refused.Limit != "sandbox.admitTimeout" || !strings.Contains(refused.Msg, "as often as an upload runs them") {
		t.Errorf("when all is spent it ends with %v", err)
	}
}

// TestAnOpeningThatLacksTimeGoesOnWithoutIt opens what was admitted after its
// state was lost, twice where time is short, then where it is not.
func TestAnOpeningThatLacksTimeGoesOnWithoutIt(t *testing.T) {
	const noTime = "what had no time now, until it is opened again"
	for name, tc := range map[string]struct {
		wasm       []byte
		setup      sandbox.Setup
		what       string // is late
		late, then uint32
	}{
		"for the warm-up":        {slowToLearn(), warmed("learn", ""), lateToLearn, 1001, 1008},
		"for the initialisation": {slowToBegin(), sandbox.Setup{}, lateToBegin, 1001, 1001},
	} {
		t.Run(name, func(t *testing.T) {
			long, _ := remembering(t)
			long.AdmitTimeout = time.Minute
			started(t, long, func(s *sandbox.Sandbox) { admit(t, s, tc.wasm, tc.setup) })
			if err := os.RemoveAll(long.SnapshotDir); err != nil {
				t.Fatal(err)
			}
			short, log := remembering(t)
			short.CacheDir, short.SnapshotDir, short.AdmitTimeout = long.CacheDir, long.SnapshotDir, tooShort
			started(t, short, func(s *sandbox.Sandbox) {
				for range 2 { // the second does not get what the first made
					runsTo(t, openWith(t, s, tc.wasm, tc.setup), tc.late)
				}
				if n, m := strings.Count(log.String(), noTime), strings.Count(log.String(), tc.what); n != 2 || m != 2 {
					t.Errorf("of two openings the log says %s", log)
				}
				if got := entries(t, short.SnapshotDir); len(got) > 0 {
					t.Errorf("a state that came of a lack of time is kept: %q", got)
				}
				if n := sandbox.Programs(s); n != 0 {
					t.Errorf("others may get %d programs that lack something", n)
				}
			})
			want, _ := begins(t, long, tc.wasm, tc.setup)
			log.Reset()
			started(t, short, func(s *sandbox.Sandbox) {
				p := openWith(t, s, tc.wasm, tc.setup)
				sameState(t, sandbox.Next(t, p), want)
				runsTo(t, p, tc.then)
			})
			if log.Len() > 0 {
				t.Errorf("of the last opening the log says %s", log)
			}
		})
	}
}
