package sandbox_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox"
	"github.com/carrelhost/carrel/host/sandbox/wasmtest"
)

// tireless are guests that a deadline could once not stop, or not for a long
// time: they have no loops, or work without coming to any.
var tireless = map[string]func(m *wasmtest.Module){
	"a loop": func(m *wasmtest.Module) {
		m.Method("run").Loop().Br(0).End().Unreachable()
	},
	"recursion that doubles and never goes deep": func(m *wasmtest.Module) {
		f := m.Func([]byte{wasmtest.I32}, []byte{wasmtest.I32})
		f.Get(0).Eqz().If().Const(1).Raw(0x0f).End().
			Get(0).Const(1).Sub().Call(f.Index).Get(0).Const(1).Sub().Call(f.Index).Add()
		m.Method("run").Const(62).Call(f.Index)
	},
	"ten thousand fills of all memory in a straight line": func(m *wasmtest.Module) {
		f := m.Func(nil, nil)
		for range 10_000 {
			f.Const(0).Const(7).Unsigned(480*sandbox.PageBytes).Raw(0xfc, 11, 0)
		}
		m.Method("run").Call(f.Index).Const(0)
	},
	"ten thousand copies of half the memory in a straight line": func(m *wasmtest.Module) {
		f := m.Func(nil, nil)
		for range 10_000 {
			f.Const(1).Const(0).Unsigned(400*sandbox.PageBytes).Raw(0xfc, 10, 0, 0)
		}
		m.Method("run").Call(f.Index).Const(0)
	},
	"a tree of calls to functions that call others twice": func(m *wasmtest.Module) {
		below := m.Func(nil, nil)
		for range 60 {
			f := m.Func(nil, nil)
			f.Call(below.Index).Call(below.Index)
			below = f
		}
		m.Method("run").Call(below.Index).Const(0)
	},
}

func tirelessModule(build func(*wasmtest.Module)) []byte {
	m := wasmtest.New()
	build(m)
	m.Memory(480)
	return m.Bytes()
}

// TestNothingFreezesTheProcess runs guests on every processor, and a
// goroutine and the garbage collector beside them, which no guest may hold up.
func TestNothingFreezesTheProcess(t *testing.T) {
	const (
		patience = 300 * time.Millisecond
		gap      = slowness * 250 * time.Millisecond
	)
	for caseName, build := range tireless {
		t.Run(caseName, func(t *testing.T) {
			s := newSandbox(t, sandbox.Config{Fuel: 1 << 60})
			p := open(t, s, tirelessModule(build))
			beats := make(chan time.Duration)
			done := make(chan struct{})
			go func() {
				longest, last := time.Duration(0), time.Now()
				ticker := time.NewTicker(time.Millisecond)
				defer ticker.Stop()
				for {
					select {
					case <-ticker.C:
						longest, last = max(longest, time.Since(last)), time.Now()
					case <-done:
						beats <- longest
						return
					}
				}
			}()
			var collector sync.WaitGroup
			collector.Go(func() {
				for {
					select {
					case <-done:
						return
					default:
						runtime.GC()
					}
				}
			})
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			deadline, _ := ctx.Deadline()
			var group sync.WaitGroup
			for i := range 2 * runtime.GOMAXPROCS(0) {
				group.Go(func() {
					_, err := p.Call(ctx, sandbox.Call{Export: "run", Share: string(rune('a' + i))})
					if !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("it ended with %v", err)
					}
				})
			}
			group.Wait()
			lateBy := time.Since(deadline)
			close(done)
			longest := <-beats
			collector.Wait()
			t.Logf("stopped %v after the deadline; the longest gap is %v", lateBy, longest)
			if longest > gap {
				t.Errorf("the process stood still for %v", longest)
			}
			if lateBy > late {
				t.Errorf("the guests ended %v after their deadline", lateBy)
			}
		})
	}
}

func TestFuelEnds(t *testing.T) {
	const most = 1_000_000
	s := newSandbox(t, sandbox.Config{Fuel: most})
	for caseName, build := range tireless {
		t.Run(caseName, func(t *testing.T) {
			p := open(t, s, tirelessModule(build))
			r, err := p.Call(t.Context(), sandbox.Call{Export: "run"})
			e := asError(t, err)
			if e.Code != abi.FuelExhausted || e.Limit != "sandbox.fuel" || !strings.Contains(e.Msg, "1000000 units") {
				t.Errorf("got %v", err)
			}
			// A chunk of a bulk operation is charged at once.
			if r.Fuel < most || r.Fuel > 3*most {
				t.Errorf("it used %d units", r.Fuel)
			}
			if len(r.Log) != 1 || !strings.Contains(r.Log[0].Text, "out of fuel") {
				t.Errorf("the log is %v", r.Log)
			}
		})
	}
}

// counting is a guest that does so many rounds of work as its input has bytes.
func counting() []byte {
	m := wasmtest.New()
	length := m.Carrel("input_len")
	m.Memory(1)
	m.Method("run").Locals(1, wasmtest.I32).Call(length).Const(1).Add().Set(0).
		Loop().Get(0).Const(1).Sub().Set(0).Const(8).Get(0).Store().Get(0).BrIf(0).End().Const(0)
	return m.Bytes()
}

func TestEqualWorkUsesEqualFuel(t *testing.T) {
	a, b := open(t, newSandbox(t, sandbox.Config{}), counting()), open(t, newSandbox(t, sandbox.Config{Slots: 1}), counting())
	used := func(p *sandbox.Plugin, rounds int) int64 {
		t.Helper()
		r, err := p.Call(t.Context(), sandbox.Call{Export: "run", Input: make([]byte, rounds)})
		if err != nil {
			t.Fatal(err)
		}
		return r.Fuel
	}
	last := int64(0)
	for _, rounds := range []int{0, 1, 10, 1000, 100_000, 1_000_000} {
		want := used(a, rounds)
		if want <= last {
			t.Errorf("%d rounds use %d units, fewer rounds %d", rounds, want, last)
		}
		last = want
		for range 5 {
			if got := used(b, rounds); got != want {
				t.Errorf("%d rounds use %d units, then %d", rounds, want, got)
			}
		}
	}
}

func TestDepth(t *testing.T) {
	m := wasmtest.New()
	length := m.Carrel("input_len")
	m.Memory(1)
	down := m.Func([]byte{wasmtest.I32}, []byte{wasmtest.I32})
	down.Get(0).Eqz().If().Const(0).Raw(0x0f).End().Get(0).Const(1).Sub().Call(down.Index)
	m.Method("run").Call(length).Call(down.Index)
	p := open(t, newSandbox(t, sandbox.Config{}), m.Bytes())
	for _, tc := range []struct {
		depth int
		ends  abi.Code
	}{{10_000, abi.OK}, {1 << 20, abi.GuestTrap}, {10_000, abi.OK}} {
		_, err := p.Call(t.Context(), sandbox.Call{Export: "run", Input: make([]byte, tc.depth)})
		wantCode(t, err, tc.ends)
		if err != nil && asError(t, err).Limit != "sandbox.stack" {
			t.Errorf("got %v", err)
		}
	}
}
