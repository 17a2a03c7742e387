package sandbox_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox"
	"github.com/carrelhost/carrel/host/sandbox/module"
	"github.com/carrelhost/carrel/host/sandbox/wasmtest"
	"github.com/carrelhost/carrel/internal/testproc"
)

// spinner has an export that never ends, and one that does at once.
func spinner() []byte {
	m := wasmtest.New()
	m.Memory(1)
	m.Method("spin").Loop().Br(0).End().Unreachable()
	m.Method("fine").Const(0)
	return m.Bytes()
}

// spin starts calls of a share that spin until stop, which waits for them.
func spin(t *testing.T, p *sandbox.Plugin, share string, calls int) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	for range calls {
		group.Go(func() {
			_, err := p.Call(ctx, sandbox.Call{Export: "spin", Share: share})
			if !errors.Is(err, context.Canceled) {
				t.Errorf("a spinner ended with %v", err)
			}
		})
	}
	return func() { cancel(); group.Wait() }
}

func TestSpinnersOfOneShareDoNotStopAnother(t *testing.T) {
	s := newSandbox(t, sandbox.Config{Slots: 2})
	p := open(t, s, spinner())
	defer spin(t, p, "a", 6)()
	testproc.Until(t, "one spinner to run and five to wait", func() bool {
		held, waiting := sandbox.OnSlots(s, "a")
		return held == 1 && waiting == 5
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range 20 {
		if _, err := p.Call(ctx, sandbox.Call{Export: "fine", Share: "b"}); err != nil {
			t.Fatalf("the other share got %v", err)
		}
	}
	if held, waiting := sandbox.OnSlots(s, "a"); held != 1 || waiting != 5 {
		t.Errorf("%d spinners run and %d wait", held, waiting)
	}
}

func TestWithOneSlotASpinnerPassesItOn(t *testing.T) {
	s := newSandbox(t, sandbox.Config{Slots: 1})
	p := open(t, s, spinner())
	defer spin(t, p, "a", 1)()
	testproc.Until(t, "the spinner to run", func() bool { held, _ := sandbox.OnSlots(s, "a"); return held == 1 })
	for range 5 {
		if _, err := p.Call(t.Context(), sandbox.Call{Export: "fine", Share: "b"}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTheLimitOfACall(t *testing.T) {
	s := newSandbox(t, sandbox.Config{Slots: 1})
	p := open(t, s, caller())
	cause := carrel.FailLimit("test", abi.Timeout, "limits.timeout", "too slow")
	because := func() error { return cause }
	t.Run("it ends the guest, with its cause", func(t *testing.T) {
		_, err := p.Call(t.Context(), sandbox.Call{Export: "spin", Limit: time.Millisecond, LimitCause: because})
		if !errors.Is(err, cause) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("the wait for a slot does not count", func(t *testing.T) {
		const limit = time.Hour
		release := sandbox.OccupySlot(t, s, "a")
		var ends time.Time // as the guest's host calls see it
		answered := make(chan error, 1)
		go func() {
			_, err := p.Call(t.Context(), sandbox.Call{
				Export: "run", Share: "b", Limit: limit, LimitCause: because,
				Host: &host{do: func(ctx context.Context, _ abi.Op, _ []byte) ([]byte, *sandbox.Refusal) {
					ends, _ = ctx.Deadline()
					return nil, nil
				}},
			})
			answered <- err
		}()
		testproc.Until(t, "the call to wait", func() bool { _, waiting := sandbox.OnSlots(s, "b"); return waiting == 1 })
		waited := time.Now()
		release()
		if err := <-answered; err != nil {
			t.Fatal(err)
		}
		if ends.Before(waited.Add(limit)) || ends.After(time.Now().Add(limit)) {
			t.Errorf("the call ends %v after its wait, at the latest; want %v", ends.Sub(waited), limit)
		}
	})
}

func TestOpeningsDoNotWaitForAdmissions(t *testing.T) {
	s := newSandbox(t, sandbox.Config{})
	release := sandbox.OccupyAdmissions(s)
	refused := make(chan error, 1)
	go func() {
		_, err := s.Admit(t.Context(), sandbox.Candidate{Module: caller()})
		refused <- err
	}()
	p := open(t, s, spinner())
	if got := p.Exports(); !slices.Equal(got, []string{"fine", "spin"}) {
		t.Errorf("it exports %q", got)
	}
	if err := s.Close(); err != nil { // the admission that waits does not hold it up
		t.Error(err)
	}
	wantCode(t, <-refused, abi.Draining)
	release()
}

// TestCloseLeavesACompilationThatRuns: what takes seconds to compile is
// refused by default, so this sandbox has larger limits.
func TestCloseLeavesACompilationThatRuns(t *testing.T) {
	const locals, loops = 200, 130
	m := wasmtest.New()
	f := m.Func(nil, nil).Locals(locals, wasmtest.I32)
	for range loops {
		f.Loop()
	}
	for i := range uint32(locals) {
		f.Get(i).Set(i * 7 % locals)
	}
	for range loops {
		f.Get(0).BrIf(0).End()
	}
	cfg := sandbox.Config{Module: module.DefaultLimits(), CloseTimeout: time.Millisecond}
	if _, err := newSandbox(t, sandbox.Config{}).Admit(t.Context(), sandbox.Candidate{Module: m.Bytes()}); carrel.CodeOf(err) != abi.LimitExceeded {
		t.Fatalf("by default the module gets %v", err)
	}
	cfg.Module.Weight, cfg.Module.SumWeight = 1<<40, 1<<40
	s, err := sandbox.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	admitted := make(chan error, 1)
	go func() {
		_, err := s.Admit(t.Context(), sandbox.Candidate{Module: m.Bytes()})
		admitted <- err
	}()
	testproc.Until(t, "the compilation to begin", func() bool { held, _ := sandbox.Admissions(s).Of(""); return held == 1 })
	if err := s.Close(); err == nil {
		t.Error("Close says that it waited for a compilation of more than its time")
	}
	wantCode(t, <-admitted, abi.Draining)
	if err := s.Close(); err != nil {
		t.Errorf("closed again, when nothing runs any more: %v", err)
	}
}
