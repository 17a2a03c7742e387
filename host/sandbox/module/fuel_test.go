package module_test

import (
	"fmt"
	"testing"

	"github.com/tetratelabs/wazero/api"

	"github.com/carrelhost/carrel/host/sandbox/module"
	"github.com/carrelhost/carrel/host/sandbox/wasmtest"
)

// TestWhatNeverEndsStops: each of these runs for ever, or for ages, and ends
// within a few yields after a stop is asked for.
func TestWhatNeverEndsStops(t *testing.T) {
	for caseName, build := range map[string]func(m *wasmtest.Module) func(f *wasmtest.Func){
		"an empty loop": func(*wasmtest.Module) func(*wasmtest.Func) {
			return func(f *wasmtest.Func) { f.Loop().Br(0).End().Unreachable() }
		},
		"a loop that is not at the head": func(*wasmtest.Module) func(*wasmtest.Func) {
			return func(f *wasmtest.Func) { f.Const(1).Drop().Loop().Block().Br(1).End().End().Const(0) }
		},
		"nested loops at the head, the outer spins": func(*wasmtest.Module) func(*wasmtest.Func) {
			return func(f *wasmtest.Func) { f.Loop().Loop().Br(1).End().End().Const(0) }
		},
		"br_table backwards": func(*wasmtest.Module) func(*wasmtest.Func) {
			return func(f *wasmtest.Func) { f.Loop().Const(3).Raw(0x0e, 1, 0, 0).End().Const(0) }
		},
		"exponential recursion without a loop": func(m *wasmtest.Module) func(*wasmtest.Func) {
			fib := m.Func([]byte{i32T}, nil)
			fib.Get(0).If().Get(0).Const(1).Sub().Call(fib.Index).Get(0).Const(1).Sub().Call(fib.Index).End()
			return func(f *wasmtest.Func) { f.Const(60).Call(fib.Index).Const(0) }
		},
		"recursion through a table": func(m *wasmtest.Module) func(*wasmtest.Func) {
			m.Table(1)
			typ := m.Type([]byte{i32T}, nil)
			fib := m.Func([]byte{i32T}, nil)
			m.Elements(0, fib.Index)
			fib.Get(0).If().Get(0).Const(1).Sub().Const(0).CallIndirect(typ).Get(0).Const(1).Sub().Const(0).CallIndirect(typ).End()
			return func(f *wasmtest.Func) { f.Const(60).Call(fib.Index).Const(0) }
		},
		"a loop of long copies": func(*wasmtest.Module) func(*wasmtest.Func) {
			return func(f *wasmtest.Func) {
				f.Const(1000).Grow().Drop().Loop().Const(0).Const(1).Const(60<<20).Raw(0xfc, 10, 0, 0).Br(0).End().Const(0)
			}
		},
	} {
		for engine, config := range engines() {
			t.Run(caseName+", "+engine, func(t *testing.T) {
				r := newRunner(t, config)
				g, err := r.rewritten(t, mustRewrite(t, runs(build), defaultOptions()))
				if err != nil {
					t.Fatal(err)
				}
				r.yield = func(api.Module) int64 {
					if r.yields == 5 {
						panic(errOutOfFuel)
					}
					return 20_000
				}
				if _, err := g.ExportedFunction("run").Call(t.Context()); trapKind(err) != "out of fuel" {
					t.Errorf("got %v", err)
				}
				if r.yields != 5 {
					t.Errorf("it yielded %d times", r.yields)
				}
			})
		}
	}
}

// used runs an export with fuel for everything and returns what it took.
func used(t *testing.T, b []byte, export string, args ...uint64) int64 {
	t.Helper()
	r := newRunner(t, engines()["interpreter"])
	g, err := r.rewritten(t, mustRewrite(t, b, defaultOptions()))
	if err != nil {
		t.Fatal(err)
	}
	fuel := mutable(t, g, module.FuelExport)
	const full = 1 << 40
	fuel.Set(full)
	if _, err := g.ExportedFunction(export).Call(t.Context(), args...); err != nil {
		t.Fatal(err)
	}
	return full - int64(fuel.Get())
}

// TestStraightLinesAreCharged for what they do, however they hide the checks
// that are in them.
func TestStraightLinesAreCharged(t *testing.T) {
	const instructions = 60_000
	work := func(f *wasmtest.Func, n int) {
		for range n / 4 {
			f.Get(0).Const(1).Add().Set(0)
		}
	}
	for caseName, body := range map[string]func(f *wasmtest.Func){
		"one line": func(f *wasmtest.Func) { work(f, instructions) },
		"ifs that are not taken, where checks would fall": func(f *wasmtest.Func) {
			for range instructions / 500 {
				work(f, 500)
				f.Const(0).If()
				work(f, 600)
				f.End()
			}
		},
		"blocks that are left early": func(f *wasmtest.Func) {
			for range instructions / 1000 {
				f.Block()
				work(f, 1000)
				f.Const(1).BrIf(0)
				work(f, 1000)
				f.End()
			}
		},
		"elses": func(f *wasmtest.Func) {
			for range instructions / 400 {
				f.Const(0).If()
				work(f, 400)
				f.Else()
				work(f, 400)
				f.End()
			}
		},
		"after a loop": func(f *wasmtest.Func) {
			f.Loop().End()
			work(f, instructions)
		},
	} {
		t.Run(caseName, func(t *testing.T) {
			b := runs(func(*wasmtest.Module) func(f *wasmtest.Func) {
				return func(f *wasmtest.Func) {
					f.Locals(1, i32T)
					body(f)
					f.Get(0)
				}
			})
			if n := used(t, b, "run"); n < instructions*9/10 || n > instructions*4 {
				t.Errorf("%d instructions took %d units", instructions, n)
			}
		})
	}
}

// TestALoopAtTheHeadOfALoopMakesNothingCheaper: the inner one's check comes in
// place of the outer one's, but for the code behind it.
func TestALoopAtTheHeadOfALoopMakesNothingCheaper(t *testing.T) {
	used := func(inner int) int64 {
		m := wasmtest.New()
		f := m.Func([]byte{i32T}, []byte{i32T})
		f.Locals(1, i32T)
		for range inner { // at the head of the function
			f.Loop().End()
		}
		f.Loop()
		for range inner {
			f.Loop().End()
		}
		for range 10 {
			f.Get(0).Const(7).Raw(0x6c).Const(13).Add().Set(0)
		}
		f.Get(1).Const(1).Add().Raw(0x22, 1).Const(1000).Raw(0x49).BrIf(0).End()
		f.Get(0)
		m.Export("run", wasmtest.FuncKind, f.Index)
		g, err := newRunner(t, engines()["interpreter"]).rewritten(t, mustRewrite(t, m.Bytes(), defaultOptions()))
		if err != nil {
			t.Fatal(err)
		}
		fuel := mutable(t, g, module.FuelExport)
		fuel.Set(1 << 40)
		if _, err := g.ExportedFunction("run").Call(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		return 1<<40 - int64(fuel.Get())
	}
	without := used(0)
	for _, inner := range []int{1, 2, 5} {
		if with := used(inner); with < without {
			t.Errorf("with %d empty loops at its head the work costs %d units, without %d", inner, with, without)
		}
	}
}

func TestFunctionsAreCharged(t *testing.T) {
	m := wasmtest.New()
	m.Memory(1)
	leaf := m.Func(nil, nil)
	leaf.Const(1).Drop()
	large := m.Func(nil, nil)
	for range 40 {
		large.Const(1).Drop()
	}
	head := m.Func(nil, nil) // as the large leaf, before a loop that does nothing
	for range 40 {
		head.Const(1).Drop()
	}
	head.Loop().End()
	m.Export("large head", wasmtest.FuncKind, head.Index)
	m.Export("leaf", wasmtest.FuncKind, leaf.Index)
	m.Export("large leaf", wasmtest.FuncKind, large.Index)
	for _, callee := range []*wasmtest.Func{leaf, large} {
		f := m.Func(nil, nil)
		for range 1000 {
			f.Call(callee.Index)
		}
		m.Export(fmt.Sprintf("calls %d", callee.Index), wasmtest.FuncKind, f.Index)
	}
	b := m.Bytes()
	for _, tc := range []struct {
		export string
		want   int64 // at least
	}{{"leaf", 0}, {"large leaf", 60}, {"large head", 60}, {"calls 0", 20_000}, {"calls 1", 80_000}} {
		if n := used(t, b, tc.export); n < tc.want || n > tc.want*4 {
			t.Errorf("%s took %d units, want %d", tc.export, n, tc.want)
		}
	}
}

// TestYieldsTakeNoFuel runs loops, with values and without, and functions on
// slices of each size: what they take is always the same.
func TestYieldsTakeNoFuel(t *testing.T) {
	b := runs(func(m *wasmtest.Module) func(f *wasmtest.Func) {
		callee := m.Func(nil, nil)
		for range 100 {
			callee.Const(1).Drop()
		}
		return func(f *wasmtest.Func) {
			f.Locals(1, i32T).Loop().Call(callee.Index).Get(0).Const(1).Add().Set(0).Get(0).Const(300).Sub().BrIf(0).End()
			countdown := m.Type([]byte{i32T}, []byte{i32T})
			f.Const(500).Raw(0x03, byte(countdown)).Const(1).Sub().Set(0).Get(0).Get(0).BrIf(0).End()
		}
	})
	want := used(t, b, "run")
	for engine, config := range engines() {
		for _, slice := range []int64{1, 63, 64, 65, 1000} {
			t.Run(fmt.Sprintf("slices of %d, %s", slice, engine), func(t *testing.T) {
				r := newRunner(t, config)
				g, err := r.rewritten(t, mustRewrite(t, b, defaultOptions()))
				if err != nil {
					t.Fatal(err)
				}
				fuel := mutable(t, g, module.FuelExport)
				granted := int64(0)
				r.yield = func(api.Module) int64 {
					left := int64(fuel.Get())
					granted += slice - left
					return slice
				}
				if _, err := g.ExportedFunction("run").Call(t.Context()); err != nil {
					t.Fatal(err)
				}
				if got := granted - int64(fuel.Get()); got != want {
					t.Errorf("it took %d units, want %d", got, want)
				}
			})
		}
	}
}

// TestTimeBetweenChecksIsShort bounds the longest line that an adversary can draw:
// the most of what is slow, with little fuel. Very large functions have checks
// further apart.
func TestTimeBetweenChecksIsShort(t *testing.T) {
	const units = 24 + 8 + 8 // of a round
	for _, tc := range []struct{ rounds, apart int }{{300, 256}, {12_000, 4096}} {
		t.Run(fmt.Sprintf("%d rounds", tc.rounds), func(t *testing.T) {
			b := runs(func(*wasmtest.Module) func(f *wasmtest.Func) {
				return func(f *wasmtest.Func) {
					f.Locals(1, i64T).Locals(1, wasmtest.F64)
					for range tc.rounds {
						f.Get(0).Const64(-3).Raw(0x84).Get(0).Const64(7).Raw(0x84, 0x7f).Set(0) // or twice, div_s
						f.Get(1).Raw(0x9f).Set(1)                                               // sqrt
					}
					f.Const(0)
				}
			})
			r := newRunner(t, engines()["compiler"])
			g, err := r.rewritten(t, mustRewrite(t, b, defaultOptions()))
			if err != nil {
				t.Fatal(err)
			}
			r.yield = func(api.Module) int64 { return 0 }
			if _, err := g.ExportedFunction("run").Call(t.Context()); err != nil {
				t.Fatal(err)
			}
			if least := tc.rounds * units / tc.apart; r.yields < least {
				t.Errorf("%d checks, %d at least are due", r.yields, least)
			}
		})
	}
}
