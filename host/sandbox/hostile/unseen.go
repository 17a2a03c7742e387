package hostile

import (
	"bytes"
	"strings"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox/wasmtest"
)

// unseen are attacks by work that one of the checks in the guest's code has
// to see, and no other one would.
func unseen() []Attack {
	recurses := func(name string, frame func(f *wasmtest.Func)) Attack {
		a := attack(name, abi.GuestTrap, func(m *wasmtest.Module) func(*wasmtest.Func) {
			g := m.Func([]byte{wasmtest.I32}, nil)
			g.Get(0).If().Get(0).Const(1).Sub().Call(g.Index).End()
			frame(g)
			return func(f *wasmtest.Func) { f.Loop().Const(50_000).Call(g.Index).Br(0).End() }
		})
		a.Limit = "sandbox.stack"
		return a
	}
	divisions := func(f *wasmtest.Func, n int) {
		f.Raw([]byte(strings.Repeat("\x20\x00\x20\x00\x41\x07\x6e\x6a\x21\x00", n))...) // x += x/7
	}
	multiple := attack("it recurses without an end through functions of two results", abi.GuestTrap, func(m *wasmtest.Module) func(*wasmtest.Func) {
		g := m.Func(nil, []byte{wasmtest.I32, wasmtest.I32})
		g.Call(g.Index).Const(1).Add()
		return func(f *wasmtest.Func) { f.Call(g.Index).Drop().Drop() }
	})
	multiple.Limit = "sandbox.stack"
	valued := attack("it recurses without an end with three thousand values in each frame", abi.GuestTrap, func(m *wasmtest.Module) func(*wasmtest.Func) {
		const values = 3000
		g := m.Func([]byte{wasmtest.I32}, []byte{wasmtest.I32})
		for n := range int32(values) {
			g.Get(0).Const(n).Raw(0x6c) // i32.mul
		}
		g.Get(0).Const(1).Add().Call(g.Index)
		for range values {
			g.Add()
		}
		return func(f *wasmtest.Func) { f.Const(1).Call(g.Index).Drop() }
	})
	valued.Limit = "sandbox.stack"
	return []Attack{
		multiple,
		valued,
		recurses("it works while it comes back from a deep recursion", func(f *wasmtest.Func) { divisions(f, 50) }),
		attack("it works in a large function without calls and loops", abi.Timeout, func(m *wasmtest.Module) func(*wasmtest.Func) {
			g := m.Func([]byte{wasmtest.I32}, nil)
			divisions(g, 25_000)
			twice := exponential(m, func(f *wasmtest.Func) {
				for range 10 {
					f.Const(-1).Call(g.Index)
				}
			})
			return func(f *wasmtest.Func) { f.Const(deep).Call(twice) }
		}),
		attack("it initialises 2 MiB of memory a thousand times", abi.Timeout, initialises(2<<20)),
		attack("it initialises a megabyte of memory a thousand times", abi.Timeout, initialises(1<<20)),
	}
}

// initialises writes a segment of so many bytes into the memory, a thousand
// times in a function that is called exponentially often, without a loop.
func initialises(size int32) func(m *wasmtest.Module) func(*wasmtest.Func) {
	return func(m *wasmtest.Module) func(*wasmtest.Func) {
		m.Memory(128)
		m.Passive(bytes.Repeat([]byte{1}, int(size)))
		twice := exponential(m, func(f *wasmtest.Func) {
			for range 1000 {
				f.Const(0).Const(0).Const(size).Raw(0xfc, 8, 0, 0)
			}
		})
		return func(f *wasmtest.Func) { f.Const(deep).Call(twice) }
	}
}
