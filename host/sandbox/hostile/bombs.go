package hostile

import (
	"strings"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox/wasmtest"
)

// bodyRoom is a little less than the largest body.
const bodyRoom = 255 << 10

// filled repeats instructions until a body is full.
func filled(instructions string) string {
	return strings.Repeat(instructions, bodyRoom/len(instructions))
}

// bombs are valid modules that are long to compile, in ways that no single
// count shows. Whether a limit refuses one or it compiles, neither may take
// long.
func bombs() []Module {
	admitted := func(name string, build func(m *wasmtest.Module)) Module {
		return Module{Name: name, Slow: true, Bytes: func() []byte { return uploaded(build) }}
	}
	body := func(m *wasmtest.Module, local int, instructions string) {
		f := m.Func(nil, nil)
		if local > 0 {
			f.Locals(uint32(local), wasmtest.I32)
		}
		f.Raw([]byte(instructions)...)
	}
	out := []Module{
		admitted("10,000 memory.fill and memory.copy in one body", func(m *wasmtest.Module) {
			m.Memory(1)
			body(m, 0, strings.Repeat(const0+const0+const0+"\xfc\x0b\x00"+const0+const0+const0+"\xfc\x0a\x00\x00", 10_000))
		}),
		admitted("memory.init all through one body", func(m *wasmtest.Module) {
			m.Memory(1)
			m.Passive([]byte("x"))
			body(m, 0, filled(const0+const0+const0+"\xfc\x08\x00\x00"))
		}),
		admitted("table.copy all through one body", func(m *wasmtest.Module) {
			m.Table(1)
			body(m, 0, filled(const0+const0+const0+"\xfc\x0e\x00\x00"))
		}),
		admitted("memory.grow all through one body", func(m *wasmtest.Module) {
			m.Memory(1)
			body(m, 0, filled(const0+"\x40\x00\x1a"))
		}),
		admitted("conditional branches all through one body", func(m *wasmtest.Module) { body(m, 0, filled(const0+"\x0d\x00")) }),
		admitted("conditional branches with 20 locals all through one body", func(m *wasmtest.Module) {
			body(m, 20, filled("\x20\x00\x0d\x00"+"\x20\x01\x21\x02"))
		}),
		admitted("calls all through one body", func(m *wasmtest.Module) { body(m, 0, filled("\x10\x00")) }),
		admitted("calls through a table all through one body", func(m *wasmtest.Module) {
			m.Table(1)
			m.Type(nil, nil)
			body(m, 0, filled(const0+"\x11\x00\x00"))
		}),
		admitted("calls with 128 params all through one body", func(m *wasmtest.Module) {
			f := m.Func([]byte(strings.Repeat("\x7f", 128)), nil)
			body(m, 0, filled(strings.Repeat(const0, 128)+"\x10"+leb(int(f.Index))))
		}),
		admitted("a stack of sixty thousand values", func(m *wasmtest.Module) {
			body(m, 0, strings.Repeat("\x41\x01", 60_000)+strings.Repeat("\x6a", 59_999)+"\x1a")
		}),
		admitted("a stack of forty thousand loaded values", func(m *wasmtest.Module) {
			m.Memory(1)
			body(m, 0, strings.Repeat("\x41\x01\x28\x02\x00", 40_000)+strings.Repeat("\x6a", 39_999)+"\x1a")
		}),
		admitted("a stack of twenty thousand results of calls", func(m *wasmtest.Module) {
			f := m.Func(nil, []byte{wasmtest.I32})
			f.Const(1)
			body(m, 0, strings.Repeat("\x10"+leb(int(f.Index)), 20_000)+strings.Repeat("\x6a", 19_999)+"\x1a")
		}),
		admitted("loads all through one body", func(m *wasmtest.Module) {
			m.Memory(1)
			body(m, 1, filled("\x20\x00\x28\x02\x00\x21\x00"))
		}),
		admitted("stores all through one body", func(m *wasmtest.Module) {
			m.Memory(1)
			body(m, 1, filled("\x20\x00\x20\x00\x36\x02\x00"))
		}),
		admitted("divisions all through one body", func(m *wasmtest.Module) { body(m, 2, filled("\x20\x00\x20\x01\x6d\x21\x00")) }),
		admitted("truncations of floats all through one body", func(m *wasmtest.Module) { body(m, 1, filled("\x20\x00\xb7\xaa\x21\x00")) }),
		admitted("globals all through one body", func(m *wasmtest.Module) {
			m.Global(0)
			body(m, 0, filled("\x23\x00\x24\x00"))
		}),
		admitted("table accesses all through one body", func(m *wasmtest.Module) {
			m.Table(1)
			body(m, 0, filled(const0+const0+"\x25\x00\x26\x00"))
		}),
		admitted("selects all through one body", func(m *wasmtest.Module) { body(m, 2, filled("\x20\x00\x20\x01\x20\x00\x1b\x21\x01")) }),
		admitted("shuffles all through one body", func(m *wasmtest.Module) {
			m.Func(nil, nil).Locals(2, wasmtest.V128).Raw([]byte(filled("\x20\x00\x20\x01\xfd\x0d" + strings.Repeat("\x07", 16) + "\x21\x00"))...)
		}),
		admitted("vector constants all through one body", func(m *wasmtest.Module) { body(m, 0, filled("\xfd\x0c0123456789abcdef\x1a")) }),
		admitted("returns all through one body", func(m *wasmtest.Module) {
			body(m, 0, filled("\x0f"))
		}),
		admitted("4,000 locals that all change all the time", func(m *wasmtest.Module) {
			var b strings.Builder
			for i := 0; b.Len() < bodyRoom; i++ {
				b.WriteString("\x20" + leb(i*31%4000) + "\x20" + leb(i%4000) + "\x6a\x21" + leb(i*17%4000))
			}
			body(m, 4000, b.String())
		}),
		admitted("500 blocks with 399 locals that all change", func(m *wasmtest.Module) {
			var b strings.Builder
			for i := range 499 {
				b.WriteString("\x02\x40\x20\x00\x0d\x00")
				for j := range 100 {
					b.WriteString("\x20" + leb((i+j)%399) + "\x21" + leb((i*7+j*3)%399))
				}
				b.WriteString("\x0b")
			}
			body(m, 399, b.String())
		}),
		admitted("2,000 nested blocks with a result each", func(m *wasmtest.Module) {
			body(m, 0, strings.Repeat("\x02\x7f", 2000)+const0+strings.Repeat("\x0b", 2000)+"\x1a")
		}),
		admitted("2,000 nested ifs with an else each", func(m *wasmtest.Module) {
			body(m, 60, strings.Repeat("\x20\x00\x04\x40\x20\x00\x21\x01\x05\x20\x01\x21\x00", 2000)+strings.Repeat("\x0b", 2000))
		}),
		admitted("490 loops in one another that do nothing", func(m *wasmtest.Module) { body(m, 0, nest(490)) }),
		admitted("a branch table of 4,096 targets at 2,000 nested blocks", func(m *wasmtest.Module) {
			var b strings.Builder
			b.WriteString(strings.Repeat("\x02\x40", 2000) + const0 + "\x0e" + leb(4096))
			for i := range 4097 {
				b.WriteString(leb(i % 2000))
			}
			body(m, 0, b.String()+strings.Repeat("\x0b", 2000))
		}),
		admitted("a function of 2,000 blocks with 16 results", func(m *wasmtest.Module) {
			typ := m.Type(nil, []byte(strings.Repeat("\x7f", 16)))
			body(m, 0, strings.Repeat("\x02"+leb(int(typ))+strings.Repeat(const0, 16)+"\x0b"+strings.Repeat("\x1a", 16), 2000))
		}),
		admitted("thirty thousand functions that call each other", func(m *wasmtest.Module) {
			for i := range uint32(29_000) {
				m.Func(nil, nil).Call((i + 1) % 29_000)
			}
		}),
		admitted("five thousand different types", func(m *wasmtest.Module) {
			for i := range 4990 {
				var params []byte
				for bits := i; bits > 0; bits /= 4 {
					params = append(params, wasmtest.I32-byte(bits%4))
				}
				m.Type(params, []byte{wasmtest.I32})
			}
		}),
	}
	whole := func(name string, functions int, build func(m *wasmtest.Module), one string) {
		out = append(out, admitted(name, func(m *wasmtest.Module) {
			build(m)
			for range functions {
				body(m, 2, one)
			}
		}))
	}
	whole("60,000 calls through a table in ten bodies", 10, func(m *wasmtest.Module) { m.Table(1); m.Type(nil, nil) }, strings.Repeat(const0+"\x11\x00\x00", 6000))
	whole("60,000 copies of a table in ten bodies", 10, func(m *wasmtest.Module) { m.Table(1) }, strings.Repeat(const0+const0+const0+"\xfc\x0e\x00\x00", 6000))
	whole("a hundred bodies of 1,200 branches", 100, func(*wasmtest.Module) {}, strings.Repeat("\x20\x00\x0d\x00", 1200))
	const full = 20 // functions of the largest body: what a large honest program has
	nothing := func(*wasmtest.Module) {}
	memory := func(m *wasmtest.Module) { m.Memory(1) }
	whole("5 MiB of additions", full, nothing, filled("\x20\x00\x20\x01\x6a\x21\x00"))
	whole("5 MiB of loads", full, memory, filled("\x20\x00\x28\x02\x00\x21\x00"))
	whole("5 MiB of stores", full, memory, filled("\x20\x00\x20\x00\x36\x02\x00"))
	whole("5 MiB of conditional branches", full, nothing, filled("\x20\x00\x0d\x00"))
	whole("5 MiB of divisions", full, nothing, filled("\x20\x00\x20\x01\x6d\x21\x00"))
	whole("5 MiB of memory.fill", full, memory, filled(const0+const0+const0+"\xfc\x0b\x00"))
	whole("5 MiB of memory.grow", full, memory, filled(const0+"\x40\x00\x1a"))
	whole("5 MiB of stacks of many values", full, nothing, strings.Repeat("\x20\x00", 85_000)+strings.Repeat("\x6a", 84_999)+"\x1a")
	whole("5 MiB of functions of 600 bytes", 8_000, nothing, strings.Repeat("\x20\x00\x20\x01\x6a\x21\x00", 85))
	return out
}

// starts are modules whose start function attacks; initializers and
// describers do so in what the host calls at admission.
func starts() []Module { return atAdmission("the start function", (*wasmtest.Module).Start) }

func initializers() []Module {
	return atAdmission("_initialize", func(m *wasmtest.Module, f *wasmtest.Func) {
		m.Export(abi.InitializeExport, wasmtest.FuncKind, f.Index)
	})
}

func atAdmission(where string, mark func(m *wasmtest.Module, f *wasmtest.Func)) []Module {
	does := func(name string, code abi.Code, limit string, build func(m *wasmtest.Module) func(f *wasmtest.Func)) Module {
		return Module{Name: where + " " + name, Code: code, Limit: limit, Slow: limit == admitTimeout, Bytes: func() []byte {
			return uploaded(func(m *wasmtest.Module) {
				body := build(m)
				f := m.Func(nil, nil)
				body(f)
				mark(m, f)
			})
		}}
	}
	only := func(body func(f *wasmtest.Func)) func(*wasmtest.Module) func(*wasmtest.Func) {
		return func(*wasmtest.Module) func(*wasmtest.Func) { return body }
	}
	return []Module{
		does("spins", abi.LimitExceeded, admitTimeout, only(func(f *wasmtest.Func) { f.Loop().Br(0).End() })),
		does("recurses", abi.LimitExceeded, "sandbox.stack", only(func(f *wasmtest.Func) { f.Call(f.Index) })),
		does("recurses exponentially", abi.LimitExceeded, admitTimeout, func(m *wasmtest.Module) func(*wasmtest.Func) {
			twice := exponential(m, nil)
			return func(f *wasmtest.Func) { f.Const(deep).Call(twice) }
		}),
		does("traps", abi.InvalidModule, "", only(func(f *wasmtest.Func) { f.Unreachable() })),
		does("divides by zero", abi.InvalidModule, "", only(func(f *wasmtest.Func) { f.Const(1).Const(0).Raw(0x6d).Drop() })),
		does("grows its memory beyond what it may have", abi.OK, "", func(m *wasmtest.Module) func(*wasmtest.Func) {
			m.Memory(1)
			return func(f *wasmtest.Func) {
				f.Loop().Const(16).Grow().Const(-1).Raw(0x47).BrIf(0).End() // i32.ne
				f.Raw(0x3f, 0).Const(abi.DefaultMemoryMiB << 20 >> 16).Raw(0x4a).If().Unreachable().End()
			}
		}),
		does("asks how much time is left", abi.OK, "", func(m *wasmtest.Module) func(*wasmtest.Func) {
			left := m.Carrel("deadline_ms")
			// What it does must depend on its bytes only.
			return func(f *wasmtest.Func) { f.Call(left).Const64(0).Raw(0x59).If().Unreachable().End() } // i64.ge_s
		}),
		does("exits", abi.InvalidModule, "", func(m *wasmtest.Module) func(*wasmtest.Func) {
			exit := m.WASI("proc_exit")
			return func(f *wasmtest.Func) { f.Const(0).Call(exit) }
		}),
		does("sleeps for ever", abi.LimitExceeded, admitTimeout, func(m *wasmtest.Module) func(*wasmtest.Func) {
			poll := m.WASI("poll_oneoff")
			m.Memory(1)
			m.Data(1024, subscription(1<<62))
			return func(f *wasmtest.Func) {
				f.Loop().Const(1024).Const(2048).Const(1).Const(8).Call(poll).Drop().Br(0).End()
			}
		}),
		does("floods the log", abi.LimitExceeded, admitTimeout, func(m *wasmtest.Module) func(*wasmtest.Func) {
			log := m.Carrel("log")
			m.Memory(1)
			return func(f *wasmtest.Func) { f.Loop().Const(1).Const(0).Const(65536).Call(log).Drop().Br(0).End() }
		}),
		does("asks for host calls for ever", abi.LimitExceeded, admitTimeout, func(m *wasmtest.Module) func(*wasmtest.Func) {
			call := m.Carrel("call")
			m.Memory(1)
			return func(f *wasmtest.Func) {
				f.Loop().Const(0).Const(7).Const(0).Const(0).Call(call).Drop().Br(0).End()
			}
		}),
		does("grows and fills memory for ever", abi.LimitExceeded, admitTimeout, func(m *wasmtest.Module) func(*wasmtest.Func) {
			m.Memory(1)
			return func(f *wasmtest.Func) {
				f.Const(abi.DefaultMemoryMiB<<4-1).Grow().Drop().Loop().Const(0).Const(1).Const(abi.DefaultMemoryMiB<<20).Raw(0xfc, 11, 0).Br(0).End()
			}
		}),
	}
}

// admitTimeout is the limit of what runs at admission.
const admitTimeout = "sandbox.admitTimeout"

func describers() []Module {
	describes := func(name string, code abi.Code, limit string, build func(m *wasmtest.Module) func(f *wasmtest.Func)) Module {
		return Module{Name: "carrel_describe " + name, Code: code, Limit: limit, Slow: limit == admitTimeout, Bytes: func() []byte {
			m := wasmtest.New()
			body := build(m)
			body(m.Method(abi.DescribeExport))
			m.Method(Fine).Const(0)
			return m.Bytes()
		}}
	}
	writes := func(text string, times int) func(m *wasmtest.Module) func(f *wasmtest.Func) {
		return func(m *wasmtest.Module) func(f *wasmtest.Func) {
			write := m.Carrel("output_write")
			m.Memory(8)
			m.Data(0, []byte(text))
			return func(f *wasmtest.Func) {
				for range times {
					f.Const(0).Const(int32(len(text))).Call(write).Drop()
				}
				f.Const(0)
			}
		}
	}
	only := func(body func(f *wasmtest.Func)) func(*wasmtest.Module) func(*wasmtest.Func) {
		return func(*wasmtest.Module) func(*wasmtest.Func) { return body }
	}
	return []Module{
		describes("spins", abi.LimitExceeded, admitTimeout, only(func(f *wasmtest.Func) { f.Loop().Br(0).End().Unreachable() })),
		describes("traps", abi.InvalidModule, "", only(func(f *wasmtest.Func) { f.Unreachable() })),
		describes("fails", abi.InvalidModule, "", only(func(f *wasmtest.Func) { f.Const(7) })),
		describes("recurses", abi.LimitExceeded, "sandbox.stack", only(func(f *wasmtest.Func) { f.Call(f.Index).Const(1).Add() })),
		describes("writes nothing", abi.InvalidModule, "", only(func(f *wasmtest.Func) { f.Const(0) })),
		describes("writes what is no JSON", abi.InvalidManifest, "", writes("\xff\xfe\x00", 1)),
		describes("writes deep JSON", abi.InvalidManifest, "", writes(`{"services":`+strings.Repeat("[", 100_000), 1)),
		describes("writes another plugin's manifest a hundred times", abi.InvalidManifest, "", writes(string(Manifest("honest", "1s", "", Fine)), 100)),
	}
}
