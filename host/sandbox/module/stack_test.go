package module_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/carrelhost/carrel/host/sandbox/module"
	"github.com/carrelhost/carrel/host/sandbox/wasmtest"
)

// recursions are functions that call themselves with one less until their
// param is 0, with frames of many shapes. Each returns its result, which is
// what the mere recursion would, and the sizes where it is interesting.
func recursions() map[string]func(m *wasmtest.Module, f *wasmtest.Func) {
	call := func(f *wasmtest.Func) *wasmtest.Code { return f.Get(0).Const(1).Sub().Call(f.Index) }
	base := func(f *wasmtest.Func) { f.Get(0).Eqz().If().Const(0).Raw(0x0f).End() }
	// distinct pushes n values that differ from all of other numbers.
	distinct := func(f *wasmtest.Func, from, n int) {
		for i := range n {
			f.Get(0).Const(int32(from+i) + 3).Raw(0x6c)
		}
	}
	// values pushes n that live until after the call, each another one.
	values := func(f *wasmtest.Func, n int) { distinct(f, 0, n) }
	sum := func(f *wasmtest.Func, n int) {
		for range n {
			f.Add()
		}
	}
	return map[string]func(m *wasmtest.Module, f *wasmtest.Func){
		"the smallest": func(_ *wasmtest.Module, f *wasmtest.Func) { base(f); call(f) },
		"20 values across the call": func(_ *wasmtest.Module, f *wasmtest.Func) {
			base(f)
			values(f, 20)
			call(f)
			sum(f, 20)
		},
		"500 values across the call": func(_ *wasmtest.Module, f *wasmtest.Func) {
			base(f)
			values(f, 500)
			call(f)
			sum(f, 500)
		},
		"200 calls, each with its own values": func(_ *wasmtest.Module, f *wasmtest.Func) {
			f.Locals(1, i32T)
			base(f)
			f.Get(0).Const(3).Raw(0x6c).Set(1)
			for i := range 200 {
				values(f, 3)
				f.Const(0).Call(f.Index).Add()
				sum(f, 2)
				f.Get(1).Add().Set(1)
				if i == 100 {
					call(f)
					f.Drop()
				}
			}
			f.Get(1)
		},
		"300 locals that change in loops and ifs": func(_ *wasmtest.Module, f *wasmtest.Func) {
			f.Locals(300, i32T)
			base(f)
			for l := range uint32(300) {
				f.Get(0).Const(int32(l) + 7).Raw(0x6c).Set(l + 1)
			}
			f.Loop()
			for l := range uint32(300) {
				f.Get(l + 1).Const(1).Add().Set(l + 1)
			}
			f.Get(1).Const(50).Raw(0x70).Eqz().If()
			for l := range uint32(300) {
				f.Get(l + 1).Const(2).Add().Set(l + 1)
			}
			f.End()
			f.Get(1).Const(1).Raw(0x71).BrIf(0).End()
			call(f)
			for l := range uint32(300) {
				f.Get(l + 1).Add()
			}
		},
		"60 values at once without a call": func(_ *wasmtest.Module, f *wasmtest.Func) {
			base(f)
			call(f)
			f.Drop()
			for range 20 {
				values(f, 60)
				sum(f, 59)
				f.Drop()
			}
			f.Const(0)
		},
		"many values at once behind loop headers": func(m *wasmtest.Module, f *wasmtest.Func) {
			g := m.Global(0)
			base(f)
			for s := range 60 {
				f.Loop().End()
				distinct(f, 250*s, 250)
				sum(f, 249)
				f.GlobalSet(g)
			}
			call(f)
		},
		"many values below ifs": func(m *wasmtest.Module, f *wasmtest.Func) {
			g := m.Global(0)
			base(f)
			for s := range 60 {
				f.Loop().End()
				distinct(f, 150*s, 150)
				for range 20 {
					f.GlobalGet(g).If().Const(1).GlobalSet(g).End()
				}
				sum(f, 149)
				f.GlobalSet(g)
			}
			call(f)
		},
		"many vectors at once": func(m *wasmtest.Module, f *wasmtest.Func) {
			g := m.Global(0)
			base(f)
			for s := range 60 {
				f.Loop().End()
				for i := range 80 {
					distinct(f, 80*s+i, 1)
					f.Raw(0xfd, 17)
				}
				for range 79 {
					f.Raw(0xfd, 0x51)
				}
				f.Raw(0xfd, 27, 0).GlobalSet(g)
			}
			call(f)
		},
		"doubles": func(_ *wasmtest.Module, f *wasmtest.Func) {
			base(f)
			for i := range 30 {
				f.Get(0).Const(int32(i)).Add().Raw(0xb7) // f64.convert_i32_s
			}
			call(f)
			f.Raw(0xb7)
			for range 30 {
				f.Raw(0xa0)
			}
			f.Raw(0xfc, 2)
		},
		"vectors": func(_ *wasmtest.Module, f *wasmtest.Func) {
			base(f)
			for i := range 30 {
				f.Get(0).Const(int32(i)).Add().Raw(0xfd, 17)
			}
			call(f)
			f.Raw(0xfd, 17)
			for range 30 {
				f.Raw(0xfd, 0xae, 1)
			}
			f.Raw(0xfd, 27, 0)
		},
		"100 arguments and 16 results": func(m *wasmtest.Module, f *wasmtest.Func) {
			wide := m.Func([]byte(strings.Repeat(i64, 100)), []byte(strings.Repeat(i64, 16)))
			base(f)
			for i := range 100 {
				f.Get(0).Raw(0xad).Const64(int64(i)).Raw(0x7c)
			}
			f.Call(wide.Index)
			for range 15 {
				f.Raw(0x7c)
			}
			f.Wrap()
			wide.Get(0).Wrap().Const(1).Sub().Call(f.Index).Raw(0xad)
			for i := range uint32(15) {
				wide.Get(i + 50)
			}
		},
		"memory in a loop": func(_ *wasmtest.Module, f *wasmtest.Func) {
			f.Locals(12, i32T)
			base(f)
			f.Loop()
			for l := range uint32(12) {
				f.Get(l + 1).Load().Get(0).Add().Set(l + 1)
				f.Get(l + 1).Const(0xfff).Raw(0x71).Get(l + 1).Store()
			}
			f.Get(3).Const(-1).Raw(0x46).BrIf(0).End()
			call(f)
			f.Get(3).Add()
		},
	}
}

func recursionModule(shape func(m *wasmtest.Module, f *wasmtest.Func)) []byte {
	m := wasmtest.New()
	m.Memory(1)
	f := m.Func([]byte{i32T}, []byte{i32T})
	shape(m, f)
	m.Export("run", wasmtest.FuncKind, f.Index)
	return m.Bytes()
}

// deepest returns how deep a recursion gets before the trap.
func deepest(t *testing.T, call func(n uint64) error, trap string) uint64 {
	t.Helper()
	ends := func(n uint64) bool {
		err := call(n)
		if err != nil && trapKind(err) != trap {
			t.Fatalf("at depth %d: %v", n, err)
		}
		return err != nil
	}
	low, high := uint64(1), uint64(2)
	for ; !ends(high); high *= 2 {
		low = high
	}
	for high-low > 1+low/64 {
		if middle := (low + high) / 2; ends(middle) {
			high = middle
		} else {
			low = middle
		}
	}
	return low
}

// TestFramesAreNotLargerThanTheyCount measures real frames: with a limit far
// above what the engine allows, its own stack overflows, at a size that is
// known. What was counted by then must be as much.
func TestFramesAreNotLargerThanTheyCount(t *testing.T) {
	o := defaultOptions()
	o.StackBytes = 1 << 30
	for caseName, shape := range recursions() {
		t.Run(caseName, func(t *testing.T) {
			r := newRunner(t, engines()["compiler"])
			g, err := r.rewritten(t, mustRewrite(t, recursionModule(shape), o))
			if err != nil {
				t.Fatal(err)
			}
			depth := mutable(t, g, module.DepthExport)
			n := deepest(t, func(n uint64) error {
				depth.Set(0)
				_, err := g.ExportedFunction("run").Call(t.Context(), n)
				return err
			}, "stack overflow")
			_, err = g.ExportedFunction("run").Call(t.Context(), 8*n)
			if trapKind(err) != "stack overflow" {
				t.Fatal(err)
			}
			counted := depth.Get()
			// The engine doubles its stack from 10 KiB until one is above 50 MB
			// and that is full.
			const full = 10240 << 13
			t.Logf("depth %d: a frame takes about %d bytes and counts as %d", n, full/n, counted/n)
			if counted < full {
				t.Errorf("%d bytes are counted for %d of stack", counted, full)
			}
			// A frame counts as what it does when it returns, too: at most runUnits,
			// each as unwoundBytes.
			if most := 16*full/n + 256*16; counted/n > most {
				t.Errorf("a frame counts as %d bytes, more than %d", counted/n, most)
			}
		})
	}
}

// TestWhatUnwindsCountsAsStack has functions that work when the call in them
// has returned: a stack of them does all of it without a check, so that each
// counts as a part of what the stack may be.
func TestWhatUnwindsCountsAsStack(t *testing.T) {
	const units, bytes = 6, 16                   // of a load, and as how many bytes a unit counts
	for _, loads := range []int{5, 10, 20, 30} { // with more there is a check among them
		t.Run(fmt.Sprintf("%d loads", loads), func(t *testing.T) {
			b := recursionModule(func(_ *wasmtest.Module, f *wasmtest.Func) {
				f.Get(0).Eqz().If().Const(0).Raw(0x0f).End()
				f.Get(0).Const(1).Sub().Call(f.Index)
				for range loads {
					f.Load()
				}
			})
			o := defaultOptions()
			o.StackBytes = 1 << 20
			g, err := newRunner(t, engines()["compiler"]).rewritten(t, mustRewrite(t, b, o))
			if err != nil {
				t.Fatal(err)
			}
			depth := mutable(t, g, module.DepthExport)
			n := deepest(t, func(n uint64) error {
				depth.Set(0)
				_, err := g.ExportedFunction("run").Call(t.Context(), n)
				return err
			}, "stack overflow")
			if most := uint64(o.StackBytes / (loads * units * bytes)); n > most {
				t.Errorf("it got %d calls deep, and may be at most %d", n, most)
			}
		})
	}
}

func TestOverflowHappensAtTheLimit(t *testing.T) {
	o := defaultOptions()
	for caseName, shape := range recursions() {
		b := recursionModule(shape)
		for engine, config := range engines() {
			t.Run(fmt.Sprintf("%s, %s", caseName, engine), func(t *testing.T) {
				o.StackBytes = 1 << 20
				if engine == "interpreter" {
					o.StackBytes = 256 << 10 // it has a limit of its own, of 2,000 frames
				}
				r := newRunner(t, config)
				g, err := r.rewritten(t, mustRewrite(t, b, o))
				if err != nil {
					t.Fatal(err)
				}
				f, depth := g.ExportedFunction("run"), mutable(t, g, module.DepthExport)
				call := func(n uint64) error {
					depth.Set(0)
					_, err := f.Call(t.Context(), n)
					return err
				}
				if err := call(1 << 20); trapKind(err) != "stack overflow" || !strings.Contains(err.Error(), errOverflow.Error()) {
					t.Fatalf("got %v", err)
				}
				if got := depth.Get(); got <= uint64(o.StackBytes) {
					t.Errorf("%d bytes were counted, the limit is %d", got, o.StackBytes)
				}
				// It can be used again, and what fits leaves nothing counted.
				if err := call(1); err != nil || depth.Get() != 0 {
					t.Errorf("got %v, %d bytes are still counted", err, depth.Get())
				}
			})
		}
	}
}
