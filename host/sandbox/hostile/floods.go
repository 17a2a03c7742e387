package hostile

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox/wasmtest"
)

// The memory of attacks that call the host: what they send is at sendAt, and
// the host writes at takeAt.
const (
	sendAt = 1024
	takeAt = 1 << 16
)

// floods is an attack that calls an import with the same arguments for ever.
func floods(name, module, function string, data string, args ...int32) Attack {
	return attack(name, abi.Timeout, func(m *wasmtest.Module) func(*wasmtest.Func) {
		index := imported(m, module, function)
		m.Memory(32)
		m.Data(sendAt, []byte(data))
		return func(f *wasmtest.Func) {
			f.Loop()
			for _, a := range args {
				f.Const(a)
			}
			f.Call(index).Drop().Br(0).End()
		}
	})
}

func imported(m *wasmtest.Module, module, function string) uint32 {
	if module == abi.WASIModule {
		return m.WASI(function)
	}
	return m.Carrel(function)
}

func hostFloods() []Attack {
	op := func(o abi.Op, request string) (string, int32, int32) {
		return string(o) + request, int32(len(o)), int32(len(request))
	}
	context, contextOp, contextBody := op(abi.OpContext, "{}")
	list, listOp, listBody := op(abi.OpMemoryList, "{}")
	nonsense, nonsenseOp, _ := op("no.such.op", "{}")
	guestError := `{"code":"x","message":"` + strings.Repeat("x", 4000) + `"}`
	return []Attack{
		floods("it makes host calls for ever", abi.Module, "call", context, sendAt, contextOp, sendAt+contextOp, contextBody),
		floods("it lists its memory for ever", abi.Module, "call", list, sendAt, listOp, sendAt+listOp, listBody),
		floods("it makes host calls that nobody knows for ever", abi.Module, "call", nonsense, sendAt, nonsenseOp, sendAt, 0),
		floods("it makes host calls with a megabyte that is no JSON for ever", abi.Module, "call", context, sendAt, contextOp, takeAt, 1<<20),
		floods("it opens streams for ever", abi.Module, "open", context, sendAt, contextOp, sendAt+contextOp, contextBody),
		floods("it logs for ever", abi.Module, "log", "", 1, takeAt, 65536),
		floods("it logs empty lines for ever", abi.Module, "log", "", 1, 0, 0),
		floods("it writes output for ever", abi.Module, "output_write", "", takeAt, 65536),
		floods("it writes output of a byte for ever", abi.Module, "output_write", "x", sendAt, 1),
		floods("it sets errors for ever", abi.Module, "error_set", guestError, sendAt, int32(len(guestError))),
		floods("it sets errors that are none for ever", abi.Module, "error_set", "", takeAt, abi.MaxGuestErrorBytes),
		floods("it emits for ever", abi.Module, "emit", "", 0, takeAt, 65536),
		floods("it asks for randomness for ever", abi.Module, "random", "", takeAt, abi.MaxRandomBytes),
		floods("it asks for its last error for ever", abi.Module, "last_error", "", takeAt, 65536),
		floods("it asks for features for ever", abi.Module, "feature", context, sendAt, contextOp),
		floods("it reads its input for ever", abi.Module, "input_read", "", takeAt, 0, 65536),
	}
}

func wasiAttacks() []Attack {
	// A vector of the page at takeAt for fd_write, of bytes without a newline.
	vector := "\x00\x00\x01\x00\x00\x00\x01\x00"
	out := []Attack{
		floods("it writes to stdout for ever without a newline", abi.WASIModule, "fd_write", vector, 1, sendAt, 1, 8),
		floods("it writes to stderr for ever without a newline", abi.WASIModule, "fd_write", vector, 2, sendAt, 1, 8),
		floods("it writes a thousand vectors to stdout for ever", abi.WASIModule, "fd_write", strings.Repeat(vector, 1000), 1, sendAt, 1000, 8),
		floods("it yields for ever", abi.WASIModule, "sched_yield", ""),
		floods("it sleeps for centuries", abi.WASIModule, "poll_oneoff", string(subscription(1<<63)), sendAt, takeAt, 1, 8),
		floods("it sleeps for nothing for ever", abi.WASIModule, "poll_oneoff", string(subscription(0)), sendAt, takeAt, 1, 8),
		floods("it polls 1,024 subscriptions for ever", abi.WASIModule, "poll_oneoff", string(bytes.Repeat(subscription(0), 1024)), sendAt, takeAt, 1024, 8),
		floods("it sleeps on 1,024 clocks", abi.WASIModule, "poll_oneoff", string(bytes.Repeat(subscription(1<<62), 1024)), sendAt, takeAt, 1024, 8),
		attack("it closes stdin, stdout and stderr and goes on to use them", abi.OK, func(m *wasmtest.Module) func(*wasmtest.Func) {
			closes, write, read := m.WASI("fd_close"), m.WASI("fd_write"), m.WASI("fd_read")
			m.Memory(2)
			m.Data(sendAt, []byte("\x00\x08\x00\x00\x04\x00\x00\x00"))
			return func(f *wasmtest.Func) {
				for range 100 {
					for fd := range int32(4) {
						f.Const(fd).Call(closes).Drop()
						f.Const(fd).Const(sendAt).Const(1).Const(8).Call(write).Drop()
						f.Const(fd).Const(sendAt).Const(1).Const(8).Call(read).Drop()
					}
				}
			}
		}),
	}
	for _, code := range []int32{0, 1, 2, 126, 255, 256, -1, -1 << 31} {
		out = append(out, attack(fmt.Sprintf("it exits with code %d", code), abi.GuestTrap, func(m *wasmtest.Module) func(*wasmtest.Func) {
			exit := m.WASI("proc_exit")
			return func(f *wasmtest.Func) { f.Const(code).Call(exit) }
		}))
	}
	return out
}

// badArguments call each import with pointers and lengths at, behind and far
// behind the memory's end, negative ones and sums that overflow, and with
// handles that the host never gave.
func badArguments() []Attack {
	var out []Attack
	for module, funcs := range map[string][]abi.Func{abi.Module: abi.Imports(), abi.WASIModule: abi.WASIImports()} {
		for _, f := range funcs {
			if len(f.Params) == 0 || f.Name == "proc_exit" {
				continue
			}
			a := attack("it calls "+module+"."+f.Name+" with every pointer and length that is bad", abi.OK, func(m *wasmtest.Module) func(*wasmtest.Func) {
				index := imported(m, module, f.Name)
				m.Memory(1)
				m.Data(sendAt, []byte("context{}"))
				return func(run *wasmtest.Func) { bad(run, index, f) }
			})
			if f.Name == "output_write" { // its output is no answer
				a.Ends = []abi.Code{abi.GuestFailed}
				a.Plugin = func() []byte {
					return attacking(Plugin, "", func(m *wasmtest.Module) func(*wasmtest.Func) {
						index := m.Carrel(f.Name)
						m.Memory(1)
						return func(run *wasmtest.Func) {
							bad(run, index, f)
							run.Const(1).Raw(0x0f) // return 1
						}
					})
				}
			}
			out = append(out, a)
		}
	}
	return out
}

// bad writes calls of a function with all combinations of bad arguments, or
// with as many of them as a call may make.
func bad(run *wasmtest.Func, index uint32, f abi.Func) {
	const memory, most = 1 << 16, 4096
	values := []int32{0, 7, sendAt, memory - 1, memory, memory + 1, 1<<31 - 1, -1 << 31, -8, -1}
	all := 1
	for range f.Params {
		all *= len(values)
	}
	r := rand.New(rand.NewPCG(1, uint64(len(f.Params)))) //nolint:gosec // the same arguments each time
	for n := range min(all, most) {
		if all > most {
			n = r.IntN(all)
		}
		for _, p := range f.Params {
			v := values[n%len(values)]
			n /= len(values)
			if p == abi.I64 {
				run.Const64(int64(v))
			} else {
				run.Const(v)
			}
		}
		run.Call(index)
		if len(f.Results) > 0 {
			run.Drop()
		}
	}
}
