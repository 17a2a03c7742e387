package hostile

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox/wasmtest"
)

// Honest is a module with every section, the manifest at its end: it is
// admitted, and every cut through it is not.
func Honest() []byte {
	m := wasmtest.New()
	m.Carrel("input_len")
	m.Memory(1)
	m.Table(2)
	m.Global(7)
	f := m.Func(nil, nil)
	f.Const(0).Const(0).Const(4).Raw(0xfc, 8, 1, 0) // memory.init of the passive segment
	m.Start(f)
	m.Name(f.Index, "started")
	m.Elements(0, f.Index)
	m.Data(16, []byte("active"))
	m.Passive([]byte("passive"))
	m.Method(Fine).Const(0)
	m.Custom(abi.ManifestSection, Manifest("honest", "1s", "", Fine))
	return m.Bytes()
}

// cuts are an honest module that ends too early, at every interesting place.
func cuts() []Module {
	whole := Honest()
	cut := func(where string, n int) Module {
		return malformed("a module that is cut off "+where, whole[:n])
	}
	out := []Module{
		{Name: "no bytes at all", Code: abi.InvalidModule, Bytes: func() []byte { return []byte{} }},
		cut("in the magic number", 3), cut("behind the magic number", 4), cut("in its version", 6), cut("behind its header", 8),
	}
	for at := 8; at < len(whole); {
		id := whole[at]
		size, n := binary.Uvarint(whole[at+1:])
		begin := at + 1 + n
		end := begin + int(size)
		name := fmt.Sprintf("in the %s section at byte %d", sectionNames[id], at)
		out = append(out,
			cut(name+", behind its id", at+1),
			cut(name+", behind its size", begin),
			cut(name+", in its middle", begin+int(size)/2),
			cut(name+", one byte too early", end-1))
		at = end
	}
	return out
}

// garbage is what is no module, or more than one.
func garbage() []Module {
	behind := func(name, more string) Module {
		return malformed("an honest module with "+name+" behind it", append(Honest(), more...))
	}
	return []Module{
		behind("a byte 0", "\x00"),
		behind("a byte 255", "\xff"),
		behind("a kilobyte of zeroes", string(make([]byte, 1024))),
		behind("another module", string(Honest())),
		behind("a native program", "\x7fELF\x02\x01\x01"),
		malformed("a component", []byte("\x00asm\x0d\x00\x01\x00")),
		malformed("a module of version 2", []byte("\x00asm\x02\x00\x00\x00")),
		malformed("a module of WebAssembly text", []byte("(module)")),
		malformed("a native program", []byte("\x7fELF\x02\x01\x01")),
		malformed("a megabyte of zeroes", make([]byte, 1<<20)),
		malformed("a header with its bytes reversed", []byte("msa\x00\x01\x00\x00\x00")),
		malformed("an archive", []byte("PK\x03\x04")),
		malformed("an honest module behind a byte", slices.Concat([]byte{0}, Honest())),
	}
}
