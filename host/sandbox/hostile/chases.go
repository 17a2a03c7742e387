package hostile

import (
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox/wasmtest"
)

// chases are attacks by reads of memory that no cache has: each says where the
// next one goes.
func chases() []Attack {
	// The pointers are a line of a cache apart, and go through all of 32 MiB.
	const (
		pages  = 512
		line   = 64
		places = pages << 16 / line
		within = 8 // a line
	)
	chase := func(name string, round func(f *wasmtest.Func, next func(n int))) Attack {
		return attack(name, abi.Timeout, func(m *wasmtest.Module) func(*wasmtest.Func) {
			m.Memory(pages)
			return func(f *wasmtest.Func) {
				f.Locals(1, wasmtest.I32)
				f.Locals(1, wasmtest.I32)
				const i, at = 0, 1
				f.Loop() // place i has the address of place (i × 40501 + 12345) mod places
				f.Get(i).Const(line).Raw(0x6c)
				f.Get(i).Const(40501).Raw(0x6c).Const(12345).Add().Const(places - 1).Raw(0x71).Const(line).Raw(0x6c).Const(within).Add()
				f.Raw(0x36, 2, within) // i32.store
				f.Get(i).Const(1).Add().Raw(0x22, i).Const(places).Raw(0x49).BrIf(0).End()
				f.Const(within).Set(at)
				round(f, func(n int) {
					f.Get(at)
					for range n {
						f.Load()
					}
					f.Set(at)
				})
			}
		})
	}
	return []Attack{
		chase("it reads what no cache has, for ever", func(f *wasmtest.Func, next func(int)) {
			f.Loop()
			next(1000)
			f.Br(0).End()
		}),
		chase("it reads what no cache has behind an empty loop at the head of a loop", func(f *wasmtest.Func, next func(int)) {
			f.Loop().Loop().End()
			next(40)
			f.Br(0).End()
		}),
	}
}
