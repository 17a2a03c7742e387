package hostile

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox/wasmtest"
)

// The memory of a guest that asks for what it must not get: sendAt and takeAt
// are in it, and nothing from outside on.
const (
	asksPages = 32
	outside   = asksPages << 16
)

// ask is one call of an import, with what the guest finds at sendAt, and the
// answer that is right.
type ask struct {
	data string
	args []int64
	want int64
}

func errno(e abi.Errno) int64 { return -int64(e) }

// asks is an attack that makes calls of one import and returns the number of
// the first one that is answered wrongly, from 1.
func asks(module, function string, list ...ask) Attack {
	return asksAs("it asks "+module+"."+function+" for what it must not get, and is refused each time", module, function, list...)
}

func asksAs(name, module, function string, list ...ask) Attack {
	return attack(name, abi.OK, func(m *wasmtest.Module) func(*wasmtest.Func) {
		index := imported(m, module, function)
		signature := signatureOf(module, function)
		m.Memory(asksPages)
		for _, a := range list {
			m.Passive([]byte(a.data))
		}
		return func(f *wasmtest.Func) {
			for i, a := range list {
				f.Const(sendAt).Const(0).Const(int32(len(a.data))).Raw(0xfc, 8).Raw(wasmtest.U32(uint32(i))...).Raw(0)
				for j, v := range a.args {
					if signature.Params[j] == abi.I64 {
						f.Const64(v)
					} else {
						f.Const(int32(v))
					}
				}
				f.Call(index)
				if signature.Results[0] == abi.I64 {
					f.Const64(a.want).Raw(0x52) // i64.ne
				} else {
					f.Const(int32(a.want)).Raw(0x47) // i32.ne
				}
				f.If().Const(int32(i + 1)).Raw(0x0f).End()
			}
		}
	})
}

func signatureOf(module, function string) abi.Func {
	all := abi.Imports()
	if module == abi.WASIModule {
		all = abi.WASIImports()
	}
	for _, f := range all {
		if f.Name == function {
			return f
		}
	}
	panic("hostile: there is no import " + module + "." + function)
}

// asking are attacks that find out whether the host refuses.
func asking() []Attack {
	const (
		end     = outside - 1
		context = "context{}"
	)
	invalid, large, none := errno(abi.EINVAL), errno(abi.E2BIG), errno(abi.ENOENT)
	long := strings.Repeat("x", abi.MaxOpBytes+1)
	message := func(n int) string { return `{"code":"x","message":"` + strings.Repeat("x", n) + `"}` }
	blank := `{"code":"x","message":"x"` + strings.Repeat(" ", abi.MaxGuestErrorBytes) + `}`
	set := func(data string) ask { return ask{data, []int64{sendAt, int64(len(data))}, invalid} }
	return append([]Attack{
		asks(abi.Module, "call",
			ask{context, []int64{end, 7, sendAt, 0}, invalid},
			ask{context, []int64{sendAt, 7, end, 2}, invalid},
			ask{context, []int64{sendAt, 7, -1, -1}, invalid},
			ask{context, []int64{sendAt, 0, sendAt, 0}, invalid},
			ask{long, []int64{sendAt, int64(len(long)), sendAt, 0}, invalid},
			ask{"\xff", []int64{sendAt, 1, sendAt, 0}, invalid},
			ask{context, []int64{sendAt, 7, 0, abi.MaxRequestBytes + 1}, large},
		),
		asksAs("it asks for an operation outside of its memory", abi.Module, "call", ask{context, []int64{end, 7, sendAt, 0}, invalid}),
		asksAs("it sets an error outside of its memory", abi.Module, "error_set", ask{"", []int64{end, 2}, invalid}),
		asksAs("it sets an error that is no JSON", abi.Module, "error_set", ask{"{", []int64{sendAt, 1}, invalid}),
		asks(abi.Module, "read",
			ask{"", []int64{0, 0, takeAt, 8}, none},
			ask{"", []int64{-1, 0, takeAt, 8}, none},
		),
		asks(abi.Module, "close",
			ask{"", []int64{0}, none},
			ask{"", []int64{1}, none},
			ask{"", []int64{-1 << 31}, none},
		),
		asks(abi.Module, "feature",
			ask{context, []int64{end, 7}, invalid},
			ask{"\xff", []int64{sendAt, 1}, invalid},
			ask{long, []int64{sendAt, int64(len(long))}, 0},
		),
		asks(abi.Module, "input_read",
			ask{"", []int64{end, 0, 2}, invalid},
			ask{"", []int64{-1, 0, -1}, invalid},
			ask{"", []int64{takeAt, -1, 65536}, 0},
		),
		asks(abi.Module, "error_set",
			ask{"", []int64{end, 2}, invalid},
			set(blank), set("{"), set(`{"code":"x"}`), set(`{"code":"x","message":"x","more":1}`), set(`{"code":"X","message":""}`), set(message(abi.MaxGuestMessageBytes+1)),
		),
		asks(abi.Module, "log",
			ask{"", []int64{1, end, 2}, invalid},
			ask{"", []int64{4, sendAt, 0}, invalid},
			ask{"", []int64{-1, sendAt, 0}, invalid},
		),
		asks(abi.Module, "random",
			ask{"", []int64{end, 2}, invalid},
			ask{"", []int64{0, abi.MaxRandomBytes + 1}, large},
		),
		asks(abi.Module, "last_error",
			ask{"", []int64{end, 2}, invalid},
		),
		asks(abi.Module, "output_write",
			ask{"", []int64{end, 2}, invalid},
			ask{"", []int64{0, 1<<20 + 1}, large},
		),
	}, append(askingWASI(), cunning()...)...)
}

// Errors of WASI.
const (
	badFile    = 8
	fault      = 21
	notValid   = 28
	noSeek     = 70
	mostPieces = 1024
)

func askingWASI() []Attack {
	const end = outside - 1
	polls := func(kind byte, clockOrFile uint32, ns uint64) string {
		s := subscription(ns)
		s[8] = kind
		s[16] = byte(clockOrFile)
		return string(s)
	}
	all := string([]byte{0, 0, 0, 0, 0, 0, asksPages, 0})
	beyond := string([]byte{255, 255, asksPages - 1, 0, 2, 0, 0, 0})
	return []Attack{
		asks(abi.WASIModule, "args_sizes_get", ask{"", []int64{end, takeAt}, fault}, ask{"", []int64{takeAt, end}, fault}),
		asks(abi.WASIModule, "clock_res_get", ask{"", []int64{4, takeAt}, notValid}, ask{"", []int64{0, end}, fault}),
		asks(abi.WASIModule, "clock_time_get", ask{"", []int64{4, 0, takeAt}, notValid}, ask{"", []int64{1, 0, end}, fault}),
		asks(abi.WASIModule, "random_get", ask{"", []int64{end, 2}, fault}, ask{"", []int64{0, 1<<20 + 1}, notValid}),
		asks(abi.WASIModule, "fd_close", ask{"", []int64{3}, badFile}, ask{"", []int64{-1}, badFile}),
		asks(abi.WASIModule, "fd_seek", ask{"", []int64{3, 0, 0, takeAt}, badFile}, ask{"", []int64{1, 0, 0, takeAt}, noSeek}),
		asks(abi.WASIModule, "fd_fdstat_get", ask{"", []int64{3, takeAt}, badFile}, ask{"", []int64{1, end}, fault}),
		asks(abi.WASIModule, "fd_write",
			ask{"", []int64{0, sendAt, 0, takeAt}, badFile},
			ask{"", []int64{3, sendAt, 0, takeAt}, badFile},
			ask{"", []int64{1, 0, mostPieces + 1, takeAt}, notValid},
			ask{"", []int64{1, sendAt, 1 << 29, takeAt}, notValid},
			ask{"", []int64{1, end, 1, takeAt}, fault},
			ask{beyond, []int64{1, sendAt, 1, takeAt}, fault},
			ask{"", []int64{1, sendAt, 0, end}, fault},
			ask{strings.Repeat(all, mostPieces), []int64{1, sendAt, mostPieces, takeAt}, 0}, // a part of it
		),
		asks(abi.WASIModule, "poll_oneoff",
			ask{"", []int64{sendAt, takeAt, 0, 8}, notValid},
			ask{string(bytes.Repeat(subscription(0), mostPieces+1)), []int64{sendAt, takeAt, mostPieces + 1, 8}, notValid},
			ask{"", []int64{end, takeAt, 1, 8}, fault},
			ask{polls(0, 1, 0), []int64{sendAt, end, 1, 8}, fault},
			ask{polls(0, 1, 0), []int64{sendAt, takeAt, 1, end}, fault},
			ask{polls(3, 1, 0), []int64{sendAt, takeAt, 1, 8}, notValid},
			ask{polls(0, 4, 1<<62), []int64{sendAt, takeAt, 1, 8}, 0}, // such a clock is told at once
		),
	}
}

// slow is an attack that may need more than its time.
func slow(a Attack) Attack {
	a.Ends = append(a.Ends, abi.Timeout)
	return a
}

// cunning are attacks that watch their own success.
func cunning() []Attack {
	load := func(f *wasmtest.Func, at int32) { f.Const(at).Load() }
	return []Attack{
		slow(attack("it holds as many results as it can", abi.OK, func(m *wasmtest.Module) func(*wasmtest.Func) {
			call := m.Carrel("call")
			m.Memory(1)
			op := string(abi.OpMemoryList)
			m.Data(sendAt, []byte(op+"{}"))
			return func(f *wasmtest.Func) {
				f.Locals(1, wasmtest.I64).Locals(2, wasmtest.I32) // the answer, all bytes, calls
				f.Loop()
				f.Const(sendAt).Const(int32(len(op))).Const(sendAt + int32(len(op))).Const(2).Call(call).Set(0)
				f.Get(0).Const64(0).Raw(0x59).If() // i64.ge_s
				f.Get(1).Get(0).Wrap().Add().Set(1)
				f.Get(1).Const(16 << 20).Raw(0x4a).If().Const(1).Raw(0x0f).End() // i32.gt_s
				f.End()
				f.Get(2).Const(1).Add().Raw(0x22, 2).Const(500).Raw(0x48).BrIf(0).End() // local.tee, i32.lt_s
			}
		})),
		attack("it reads a result beyond its memory", abi.OK, func(m *wasmtest.Module) func(*wasmtest.Func) {
			call, read := m.Carrel("call"), m.Carrel("read")
			m.Memory(1)
			m.Data(sendAt, []byte("context{}"))
			return func(f *wasmtest.Func) {
				f.Locals(1, wasmtest.I64)
				f.Const(sendAt).Const(7).Const(sendAt + 7).Const(2).Call(call).Set(0)
				f.Get(0).High().Const(0).Const(1<<16 - 1).Const(2).Call(read).Const(int32(errno(abi.EINVAL))).Raw(0x47).If().Const(1).Raw(0x0f).End()
			}
		}),
		attack("it grows its memory beyond what it may have", abi.OK, func(m *wasmtest.Module) func(*wasmtest.Func) {
			m.Memory(1)
			return func(f *wasmtest.Func) {
				f.Loop().Const(16).Grow().Const(-1).Raw(0x47).BrIf(0).End() // i32.ne
				f.Raw(0x3f, 0).Const(abi.DefaultMemoryMiB << 20 >> 16).Raw(0x4a).If().Const(1).Raw(0x0f).End()
			}
		}),
		attack("it waits for a file that it does not have", abi.OK, func(m *wasmtest.Module) func(*wasmtest.Func) {
			poll := m.WASI("poll_oneoff")
			m.Memory(2)
			s := subscription(0)
			s[8], s[16] = 1, 3
			m.Data(sendAt, s)
			return func(f *wasmtest.Func) {
				f.Const(sendAt).Const(takeAt).Const(1).Const(8).Call(poll).Drop()
				load(f, takeAt+8)
				f.Const(0xffff).Raw(0x71).Const(badFile).Raw(0x47).If().Const(1).Raw(0x0f).End() // i32.and
			}
		}),
		attack("it has no memory, and asks the host to write to it", abi.OK, func(m *wasmtest.Module) func(*wasmtest.Func) {
			random := m.Carrel("random")
			return func(f *wasmtest.Func) {
				f.Const(0).Const(0).Call(random).Const(int32(errno(abi.EINVAL))).Raw(0x47).If().Const(1).Raw(0x0f).End()
			}
		}),
		attack("it needs randomness, or fails", abi.OK, func(m *wasmtest.Module) func(*wasmtest.Func) {
			random := m.Carrel("random")
			m.Memory(1)
			return func(f *wasmtest.Func) { f.Const(0).Const(16).Call(random).If().Const(1).Raw(0x0f).End() }
		}),
		attack("it needs randomness of WASI, or fails", abi.OK, func(m *wasmtest.Module) func(*wasmtest.Func) {
			random := m.WASI("random_get")
			m.Memory(1)
			return func(f *wasmtest.Func) { f.Const(0).Const(16).Call(random).If().Const(1).Raw(0x0f).End() }
		}),
		attack("it asks for a megabyte of randomness all the time, without a loop", abi.Timeout, func(m *wasmtest.Module) func(*wasmtest.Func) {
			random := m.WASI("random_get")
			m.Memory(17)
			twice := exponential(m, func(f *wasmtest.Func) {
				for range 100 {
					f.Const(0).Const(1 << 20).Call(random).Drop()
				}
			})
			return func(f *wasmtest.Func) { f.Const(deep).Call(twice) }
		}),
		attack("it logs one line that is longer than the log", abi.OK, func(m *wasmtest.Module) func(*wasmtest.Func) {
			log := m.Carrel("log")
			m.Memory(32)
			m.Data(0, bytes.Repeat([]byte("x"), 1<<16))
			return func(f *wasmtest.Func) { f.Const(1).Const(0).Const(2 << 20).Call(log).Drop() }
		}),
		attack("it writes a thousand vectors of newlines to stdout for ever", abi.Timeout, func(m *wasmtest.Module) func(*wasmtest.Func) {
			write := m.WASI("fd_write")
			m.Memory(3)
			m.Data(sendAt, []byte(strings.Repeat("\x00\x00\x01\x00\x00\x00\x01\x00", 1000)))
			m.Data(takeAt, bytes.Repeat([]byte("\n"), 1<<16))
			return func(f *wasmtest.Func) {
				f.Loop().Const(1).Const(sendAt).Const(1000).Const(8).Call(write).Drop().Br(0).End()
			}
		}),
		attack("it traps below functions with names of a megabyte", abi.GuestTrap, func(m *wasmtest.Module) func(*wasmtest.Func) {
			last := m.Func(nil, nil)
			last.Unreachable()
			for n := range 3 {
				f := m.Func(nil, nil)
				f.Call(last.Index)
				m.Name(f.Index, strings.Repeat(fmt.Sprint(n), 1<<20))
				last = f
			}
			return func(f *wasmtest.Func) { f.Call(last.Index) }
		}),
	}
}
