package module_test

import (
	"bytes"
	"fmt"
	"math"
	"testing"

	"github.com/tetratelabs/wazero/api"
	"pgregory.net/rapid"

	"github.com/carrelhost/carrel/host/sandbox/module"
	"github.com/carrelhost/carrel/host/sandbox/wasmtest"
)

// state is everything of an instance that a guest can change and see.
type state struct {
	call   string
	global string
	memory []byte
}

// observe calls "run" and returns what it left. NaNs are one value: which one
// an operation gives is the engine's choice.
func observe(t testing.TB, g api.Module, globals int, args []uint64) (state, error) {
	t.Helper()
	mutable(t, g, "g0").Set(genTicks)
	f := g.ExportedFunction("run")
	results, err := f.Call(t.Context(), args...)
	s := state{call: trapKind(err)}
	for i, v := range results {
		s.call += fmt.Sprintf(" %x", canonical(f.Definition().ResultTypes()[i], v))
	}
	for i := range globals {
		global := g.ExportedGlobal(fmt.Sprintf("g%d", i))
		s.global += fmt.Sprintf(" %x", canonical(global.Type(), global.Get()))
	}
	view, _ := g.Memory().Read(0, g.Memory().Size())
	s.memory = bytes.Clone(view)
	return s, err
}

func canonical(t api.ValueType, v uint64) uint64 {
	if t == wasmtest.F64 && math.IsNaN(math.Float64frombits(v)) {
		return math.Float64bits(math.NaN())
	}
	return v
}

// TestGeneratedModulesBehaveTheSame compares results, traps, globals and
// memory of generated modules before and after, on both engines, with so
// little fuel that they yield all the time.
func TestGeneratedModulesBehaveTheSame(t *testing.T) {
	traps, refused := map[string]int{}, 0
	for engine, config := range engines() {
		r := newRunner(t, config)
		r.yield = func(api.Module) int64 { return 100 }
		t.Run(engine, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				b, globals := generateModule(rt)
				args := []uint64{uint64(rapid.Uint32().Draw(rt, "arg")), uint64(rapid.Uint32Range(0, 3).Draw(rt, "small arg"))}
				w, err := rewrite(b, defaultOptions())
				if err != nil {
					rt.Fatalf("%v in %x", err, b)
				}
				plain, err := r.original(t, b)
				if err != nil {
					// Seldom the generator gets a type wrong.
					if _, err := r.rewritten(t, w); err == nil {
						rt.Fatalf("only the original is refused: %x", b)
					}
					refused++
					return
				}
				defer func() { _ = plain.Close(t.Context()) }()
				checked, err := r.rewritten(t, w)
				if err != nil {
					rt.Fatalf("%v in %x", err, w.Code)
				}
				defer func() { _ = checked.Close(t.Context()) }()
				before, _ := observe(t, plain, globals, args)
				after, err := observe(t, checked, globals, args)
				traps[before.call[:min(len(before.call), 20)]]++
				if before.call != after.call || before.global != after.global || !bytes.Equal(before.memory, after.memory) {
					rt.Fatalf("it was %q with globals%s and is %q with%s; memory differs at %d of %d and %d; %v in %x", before.call, before.global,
						after.call, after.global, difference(before.memory, after.memory), len(before.memory), len(after.memory), err, b)
				}
				if d := checked.ExportedGlobal(module.DepthExport).Get(); err == nil && d != 0 {
					rt.Fatalf("%d bytes of stack are still counted", d)
				}
			})
			if r.yields == 0 {
				t.Error("none of them yielded")
			}
		})
	}
	returned := 0
	for trap, n := range traps {
		if trap == "" || trap[0] == ' ' {
			returned += n
		}
	}
	t.Logf("%d of them returned, %d were refused", returned, refused)
	if returned < 10*refused || len(traps) < 3 {
		t.Errorf("they show too little: %v", traps)
	}
}

// difference returns where two memories first differ, -1 if they do not.
func difference(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	if len(a) != len(b) {
		return min(len(a), len(b))
	}
	return -1
}
