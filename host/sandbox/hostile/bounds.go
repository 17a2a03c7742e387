package hostile

import (
	"strings"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox/wasmtest"
)

// most is what a guest may have of memory by default, in pages, but for what
// the module needs itself.
const most = 480

// AtBounds returns attacks that have the host do as much as one call of an
// import can make it do, again and again. They are among those of Attacks. The
// caller owns the result.
func AtBounds() []Attack {
	const all = most<<16 - takeAt // of the memory that is filled
	vectors := func(n int, length uint32) string {
		one := "\x00\x00\x01\x00" + string([]byte{byte(length), byte(length >> 8), byte(length >> 16), byte(length >> 24)})
		return strings.Repeat(one, n)
	}
	const half = 1<<31/mostPieces - 1 // of all vectors together: 2 GiB
	list := func(head, each, tail string) (string, int32) {
		s := head + strings.Repeat(each, (abi.MaxGuestErrorBytes-len(head)-len(tail))/len(each)) + tail
		return s, int32(len(s))
	}
	values, valuesBytes := list(`{"code":"x","message":[`, "1,", "1]}")
	escapes, escapesBytes := list(`{"code":"x","message":"`, `\u006d`, `"}`)
	op := strings.Repeat("x", abi.MaxOpBytes)
	return []Attack{
		fills("it writes 1,024 vectors of two megabytes to stdout for ever", 'x', abi.WASIModule, "fd_write", vectors(mostPieces, half), 1, sendAt, mostPieces, 8),
		fills("it writes 1,024 vectors of two megabytes of newlines to stdout for ever", '\n', abi.WASIModule, "fd_write", vectors(mostPieces, half), 1, sendAt, mostPieces, 8),
		fills("it writes 1,024 vectors of all of its memory to stderr for ever", 0xff, abi.WASIModule, "fd_write", vectors(mostPieces, all), 2, sendAt, mostPieces, 8),
		fills("it writes 1,024 vectors of nothing to stdout for ever", 0, abi.WASIModule, "fd_write", vectors(mostPieces, 0), 1, sendAt, mostPieces, 8),
		fills("it logs all of its memory for ever", 0xff, abi.Module, "log", "", 1, takeAt, all),
		fills("it logs all of its memory of bytes that no character begins with for ever", 0x80, abi.Module, "log", "", 1, takeAt, all),
		fills("it asks for a feature with a name of all of its memory for ever", 'x', abi.Module, "feature", "", takeAt, all),
		fills("it asks for a feature with the longest name for ever", 0, abi.Module, "feature", op, sendAt, abi.MaxOpBytes),
		fills("it asks WASI for all randomness that it gives at once for ever", 0, abi.WASIModule, "random_get", "", takeAt, 1<<20),
		fills("it reads its input into all of its memory for ever", 0, abi.Module, "input_read", "", takeAt, 0, all),
		fills("it writes output of all of its memory for ever", 'x', abi.Module, "output_write", "", takeAt, all),
		fills("it sets errors of ten thousand values for ever", 0, abi.Module, "error_set", values, sendAt, valuesBytes),
		fills("it sets errors of five thousand escapes for ever", 0, abi.Module, "error_set", escapes, sendAt, escapesBytes),
		fills("it makes host calls of the longest name and the largest request for ever", '1', abi.Module, "call", op, sendAt, abi.MaxOpBytes, takeAt, abi.MaxRequestBytes),
		fills("it makes host calls with a number of a megabyte for ever", '1', abi.Module, "call", string(abi.OpContext), sendAt, int32(len(abi.OpContext)), takeAt, abi.MaxRequestBytes),
		reading(all),
	}
}

// fills is an attack that calls an import with the same arguments for ever,
// and fills its memory from takeAt on with a byte before that.
func fills(name string, with byte, module, function, data string, args ...int32) Attack {
	return attack(name, abi.Timeout, func(m *wasmtest.Module) func(*wasmtest.Func) {
		index := imported(m, module, function)
		m.Memory(most)
		m.Data(sendAt, []byte(data))
		return func(f *wasmtest.Func) {
			f.Const(takeAt).Const(int32(with)).Const(most<<16-takeAt).Raw(0xfc, 11, 0)
			f.Loop()
			for _, a := range args {
				f.Const(a)
			}
			f.Call(index).Drop().Br(0).End()
		}
	})
}

// reading copies a result into all of its memory, and then the refusal of what
// it must not read.
func reading(all int32) Attack {
	return attack("it reads a result and its last error into all of its memory for ever", abi.Timeout, func(m *wasmtest.Module) func(*wasmtest.Func) {
		call, read, last := m.Carrel("call"), m.Carrel("read"), m.Carrel("last_error")
		m.Memory(most)
		op := string(abi.OpMemoryList)
		m.Data(sendAt, []byte(op+"{}"))
		return func(f *wasmtest.Func) {
			f.Const(sendAt).Const(int32(len(op))).Const(sendAt + int32(len(op))).Const(2).Call(call).Drop()
			f.Loop()
			f.Const(1).Const(0).Const(takeAt).Const(all).Call(read).Drop()
			f.Const(2).Const(0).Const(takeAt).Const(all).Call(read).Drop()
			f.Const(takeAt).Const(all).Call(last).Drop()
			f.Br(0).End()
		}
	})
}
