package hostile

import (
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox/wasmtest"
)

// leftovers are attacks by what one call leaves for the next: each looks for
// it, fails if it is there, and leaves it. What they find is another caller's.
func leftovers() []Attack {
	leaves := func(what string, build func(m *wasmtest.Module) (there, leave func(f *wasmtest.Func))) Attack {
		return attack("it looks for what an earlier call left in "+what, abi.OK, func(m *wasmtest.Module) func(*wasmtest.Func) {
			there, leave := build(m)
			return func(f *wasmtest.Func) {
				there(f)
				f.If().Const(1).Raw(0x0f).End()
				leave(f)
			}
		})
	}
	// filled reports whether an element of the table 0 is there.
	filled := func(at int32) func(f *wasmtest.Func) {
		return func(f *wasmtest.Func) { f.Const(at).Raw(0x25, 0, 0xd1).Eqz() } // table.get, ref.is_null
	}
	never := func(f *wasmtest.Func) { f.Const(0) }
	return []Attack{
		leaves("its memory", func(m *wasmtest.Module) (there, leave func(f *wasmtest.Func)) {
			m.Memory(1)
			return func(f *wasmtest.Func) { f.Const(5000).Load() }, func(f *wasmtest.Func) { f.Const(5000).Const(1).Store() }
		}),
		leaves("the size of its memory", func(m *wasmtest.Module) (there, leave func(f *wasmtest.Func)) {
			m.Memory(1)
			return func(f *wasmtest.Func) { f.Raw(0x3f, 0).Const(1).Sub() }, func(f *wasmtest.Func) { f.Const(1).Grow().Drop() }
		}),
		leaves("a global", func(m *wasmtest.Module) (there, leave func(f *wasmtest.Func)) {
			g := m.Global(0)
			return func(f *wasmtest.Func) { f.GlobalGet(g) }, func(f *wasmtest.Func) { f.Const(1).GlobalSet(g) }
		}),
		leaves("a table, with table.set", func(m *wasmtest.Module) (there, leave func(f *wasmtest.Func)) {
			m.Table(1)
			g := m.Func(nil, nil)
			m.PassiveElements(g.Index)
			return filled(0), func(f *wasmtest.Func) { f.Const(0).Raw(0xd2).Raw(wasmtest.U32(g.Index)...).Raw(0x26, 0) } // ref.func, table.set
		}),
		leaves("a table, with table.init", func(m *wasmtest.Module) (there, leave func(f *wasmtest.Func)) {
			m.Table(1)
			s := m.PassiveElements(m.Func(nil, nil).Index)
			return filled(0), func(f *wasmtest.Func) { f.Const(0).Const(0).Const(1).Raw(0xfc, 12).Raw(wasmtest.U32(s)...).Raw(0) }
		}),
		leaves("a table, with table.copy", func(m *wasmtest.Module) (there, leave func(f *wasmtest.Func)) {
			m.Table(2)
			m.Elements(0, m.Func(nil, nil).Index)
			return filled(1), func(f *wasmtest.Func) { f.Const(1).Const(0).Const(1).Raw(0xfc, 14, 0, 0) }
		}),
		leaves("its segments of elements", func(m *wasmtest.Module) (there, leave func(f *wasmtest.Func)) {
			m.Table(1)
			s := m.PassiveElements(m.Func(nil, nil).Index)
			return never, func(f *wasmtest.Func) { // which traps if the segment is gone
				f.Const(0).Const(0).Const(1).Raw(0xfc, 12).Raw(wasmtest.U32(s)...).Raw(0)
				f.Raw(0xfc, 13).Raw(wasmtest.U32(s)...)
			}
		}),
		leaves("its segments of data", func(m *wasmtest.Module) (there, leave func(f *wasmtest.Func)) {
			m.Memory(1)
			m.Passive([]byte("x"))
			return never, func(f *wasmtest.Func) { f.Const(0).Const(0).Const(1).Raw(0xfc, 8, 0, 0).Raw(0xfc, 9, 0) }
		}),
		leaves("a global of a vector", func(m *wasmtest.Module) (there, leave func(f *wasmtest.Func)) {
			// The engine lets the host set one half of it.
			g := m.GlobalOf(wasmtest.V128, "vector")
			start := m.Func(nil, nil)
			start.Const(7).Raw(0xfd, 17).GlobalSet(g) // i32x4.splat
			m.Start(start)
			return func(f *wasmtest.Func) { f.GlobalGet(g).Raw(0xfd, 27, 3).Const(7).Sub() }, // i32x4.extract_lane
				func(f *wasmtest.Func) { f.Const(8).Raw(0xfd, 17).GlobalSet(g) }
		}),
	}
}
