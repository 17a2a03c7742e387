package hostile

import (
	"fmt"
	"slices"
	"strings"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox/wasmtest"
)

// ends are attacks by how a call comes to its end.
func ends() []Attack {
	wakes := func(name string, end abi.Code, limit string, wake func(f *wasmtest.Func)) Attack {
		a := attack(name, end, func(m *wasmtest.Module) func(*wasmtest.Func) {
			// Calls of Fine have the input {}, and wake well.
			length := m.Carrel("input_len")
			f := m.Method(abi.WakeExport)
			f.Call(length).Const(2).Raw(0x4a).If() // i32.gt_s
			wake(f)
			f.End().Const(0)
			return func(*wasmtest.Func) {}
		})
		a.Limit = limit
		return a
	}
	return []Attack{
		attack("it traps right after it wrote its output", abi.GuestTrap, func(m *wasmtest.Module) func(*wasmtest.Func) {
			write := m.Carrel("output_write")
			m.Memory(16)
			return func(f *wasmtest.Func) { f.Const(0).Const(1 << 20).Call(write).Drop().Unreachable() }
		}),
		attack("it divides by zero", abi.GuestTrap, only(func(f *wasmtest.Func) { f.Const(1).Const(0).Raw(0x6d).Drop() })),
		attack("it overflows a division", abi.GuestTrap, only(func(f *wasmtest.Func) { f.Const(-1 << 31).Const(-1).Raw(0x6d).Drop() })),
		attack("it converts what is no number", abi.GuestTrap, only(func(f *wasmtest.Func) { f.Raw(0x43, 0, 0, 0xc0, 0x7f, 0xa8).Drop() })),
		attack("it reads beyond its memory", abi.GuestTrap, func(m *wasmtest.Module) func(*wasmtest.Func) {
			m.Memory(1)
			return func(f *wasmtest.Func) { f.Const(-1).Load().Drop() }
		}),
		attack("it writes half beyond its memory", abi.GuestTrap, func(m *wasmtest.Module) func(*wasmtest.Func) {
			m.Memory(1)
			return func(f *wasmtest.Func) { f.Const(1<<16 - 4).Const64(-1).Store64() }
		}),
		attack("it reads at an offset that overflows", abi.GuestTrap, func(m *wasmtest.Module) func(*wasmtest.Func) {
			m.Memory(1)
			return func(f *wasmtest.Func) { f.Const(-1).Raw(0x28, 2, 0xff, 0xff, 0xff, 0xff, 0x0f).Drop() }
		}),
		attack("it calls an empty table entry", abi.GuestTrap, func(m *wasmtest.Module) func(*wasmtest.Func) {
			m.Table(10)
			typ := m.Type(nil, nil)
			return func(f *wasmtest.Func) { f.Const(9).CallIndirect(typ) }
		}),
		attack("it calls a function by another type", abi.GuestTrap, func(m *wasmtest.Module) func(*wasmtest.Func) {
			g := m.Func(nil, nil)
			m.Table(1)
			m.Elements(0, g.Index)
			typ := m.Type([]byte{wasmtest.I64}, nil)
			return func(f *wasmtest.Func) { f.Const64(1).Const(0).CallIndirect(typ) }
		}),
		attack("it returns a code that nobody knows", abi.GuestFailed, only(func(f *wasmtest.Func) { f.Const(-1 << 31).Raw(0x0f) })),
		wakes("it traps in carrel_wake", abi.GuestTrap, "", func(f *wasmtest.Func) { f.Unreachable() }),
		wakes("it spins in carrel_wake", abi.Timeout, timeoutLimit, func(f *wasmtest.Func) { f.Loop().Br(0).End() }),
	}
}

// memories are attacks on memory, the guest's own and the host's.
func memories() []Attack {
	return []Attack{
		dear(attack("it grows its memory as far as it goes, for ever", abi.Timeout, func(m *wasmtest.Module) func(*wasmtest.Func) {
			m.Memory(1)
			return func(f *wasmtest.Func) { f.Loop().Const(1).Grow().Drop().Br(0).End() }
		})),
		attack("it dirties all memory that it may have", abi.Timeout, func(m *wasmtest.Module) func(*wasmtest.Func) {
			m.Memory(1)
			return func(f *wasmtest.Func) {
				f.Loop().Const(64).Grow().Const(-1).Raw(0x47).BrIf(0).End() // i32.ne
				f.Loop().Const(0).Const(255).Raw(0x3f, 0).Const(16).Raw(0x74).Raw(0xfc, 11, 0).Br(0).End()
			}
		}),
		attack("the host writes at the end of its memory, and not a byte beyond", abi.OK, func(m *wasmtest.Module) func(*wasmtest.Func) {
			random, read, clock := m.Carrel("random"), m.Carrel("input_read"), m.WASI("clock_time_get")
			m.Memory(1)
			const end = 1 << 16
			return func(f *wasmtest.Func) {
				fails := func(code int32) { f.If().Const(code).Raw(0x0f).End() }
				f.Const(end - 16).Const(16).Call(random)
				fails(1)
				f.Const(end - 15).Const(16).Call(random).Eqz()
				fails(2)
				f.Const(end - 2).Const(0).Const(2).Call(read).Const(2).Raw(0x47)
				fails(3)
				f.Const(end - 1).Const(0).Const(2).Call(read).Const(0).Raw(0x4e) // i32.ge_s
				fails(4)
				f.Const(1).Const64(0).Const(end - 8).Call(clock)
				fails(5)
				f.Const(1).Const64(0).Const(end - 7).Call(clock).Eqz()
				fails(6)
			}
		}),
		attack("the host reads its operation and writes its result at one place", abi.OK, func(m *wasmtest.Module) func(*wasmtest.Func) {
			call, read, next := m.Carrel("call"), m.Carrel("read"), m.Carrel("next")
			m.Memory(1)
			m.Data(sendAt, []byte("context{}"))
			return func(f *wasmtest.Func) {
				f.Locals(1, wasmtest.I64)
				for range 50 {
					f.Const(sendAt).Const(7).Const(sendAt + 7).Const(2).Call(call).Set(0)
					for _, h := range []func(){func() { f.Get(0).Wrap() }, func() { f.Get(0).High() }} {
						h()
						f.Const(sendAt).Const(0).Const(9).Call(read).Drop()
						h()
						f.Call(next).Drop()
					}
				}
			}
		}),
	}
}

// invokes is an operation that calls a method of a plugin of this package.
func invokes(plugin, method string) (op, request string) {
	return string(abi.OpInvoke), fmt.Sprintf(`{"plugin":%q,"service":%q,"method":%q,"args":{}}`, plugin, Service, method)
}

// nested are attacks by plugins that call plugins.
func nested() []Attack {
	calls := func(name, more, plugin string, times int) func() []byte {
		return func() []byte {
			return attacking(name, more, func(m *wasmtest.Module) func(*wasmtest.Func) {
				call := m.Carrel("call")
				m.Memory(1)
				op, request := invokes(plugin, Run)
				m.Data(sendAt, []byte(op+request))
				return func(f *wasmtest.Func) {
					for range times {
						f.Const(sendAt).Const(int32(len(op))).Const(sendAt + int32(len(op))).Const(int32(len(request))).Call(call).Drop()
					}
				}
			})
		}
	}
	may := func(plugin string) string { return fmt.Sprintf(`"capabilities":{"call":["%s/*"]},`, plugin) }
	short := []abi.Code{abi.OK}
	wide := []abi.Code{abi.OK, abi.Timeout}
	return []Attack{
		{Name: "it calls itself through the host without an end", Method: Run, Calls: 1, Ends: short, Plugin: calls(Plugin, "", "", 1)},
		{Name: "it calls itself through the host three times at each level", Method: Run, Calls: 1, Ends: wide, Limit: timeoutLimit, Plugin: calls(Plugin, "", "", 3)},
		{Name: "two plugins call each other without an end", Method: Run, Calls: 1, Ends: short, Plugin: calls(Plugin, may(Accomplice), Accomplice, 1),
			Others: []func() []byte{calls(Accomplice, may(Plugin), Plugin, 1)}},
		{Name: "two plugins call each other three times at each level, sixteen times at once", Method: Run, Calls: 16, Ends: wide, Limit: timeoutLimit,
			Plugin: calls(Plugin, may(Accomplice), Accomplice, 3), Others: []func() []byte{calls(Accomplice, may(Plugin), Plugin, 3)}},
		{Name: "it calls a plugin that it may not call", Method: Run, Calls: 1, Ends: short, Plugin: calls(Plugin, "", strings.Repeat("x", 60), 100)},
	}
}

// crowds are attacks by many calls at once.
func crowds() []Attack {
	crowd := func(a Attack, name string, n int, ends ...abi.Code) Attack {
		a.Name, a.Calls, a.Ends = name, n, slices.Concat(a.Ends, ends)
		return a
	}
	spin := attack("", abi.Timeout, only(func(f *wasmtest.Func) { f.Loop().Br(0).End() }))
	recurse := attack("", abi.Timeout, func(m *wasmtest.Module) func(*wasmtest.Func) {
		twice := exponential(m, nil)
		return func(f *wasmtest.Func) { f.Const(deep).Call(twice) }
	})
	dirty := memories()[1]
	sleep := wasiAttacks()[4]
	overflow := stacks()[3]
	quota := []abi.Code{abi.QuotaExceeded}
	return []Attack{
		crowd(spin, "eight calls spin at once", 8),
		crowd(recurse, "eight calls recurse exponentially at once", 8),
		crowd(dirty, "eight calls dirty all memory that they may have at once", 8),
		crowd(overflow, "sixty-four calls recurse without an end at once", 64, abi.Timeout),
		crowd(spin, "a thousand calls spin at once", 1000, quota...),
		crowd(sleep, "a thousand calls sleep at once", 1000, quota...),
	}
}
