// Package wasmtest assembles small WebAssembly modules for tests, in Go and
// without tools. It checks nothing: what it is told to write, valid or not, is
// what comes out. A misuse of it that can only be a mistake in the test, such
// as an import behind a function, panics.
package wasmtest

import (
	"encoding/binary"
	"slices"

	"github.com/carrelhost/carrel/abi"
)

// The value types of core WebAssembly 2.0.
const (
	I32       = byte(abi.I32)
	I64       = byte(abi.I64)
	F32       = 0x7d
	F64       = 0x7c
	V128      = 0x7b
	FuncRef   = 0x70
	ExternRef = 0x6f
)

// The kinds of exports.
const (
	FuncKind byte = iota
	TableKind
	MemoryKind
	GlobalKind
)

// Module is a module in the making. It has one user at a time.
type Module struct {
	types   [][]byte
	imports [][]byte
	funcs   []*Func
	names   map[uint32]string

	tables, memories, globals, exports, elements, data [][]byte
	customs                                            []byte
	start                                              *uint32
	dataCount                                          bool
}

// New returns an empty module.
func New() *Module { return &Module{names: map[uint32]string{}} }

// Func is a function of a module: code to be written, in order. Without
// locals but its params until Locals is called.
type Func struct {
	Code
	Index  uint32
	typ    uint32
	locals [][]byte
}

// Type returns the index of a function type, new or not.
func (m *Module) Type(params, results []byte) uint32 {
	t := slices.Concat([]byte{0x60}, Vector(params), Vector(results))
	for i, have := range m.types {
		if slices.Equal(have, t) {
			return uint32(i)
		}
	}
	m.types = append(m.types, t)
	return uint32(len(m.types) - 1)
}

// Import adds an imported function and returns its index. Imports come before
// functions.
func (m *Module) Import(module, name string, params, results []byte) uint32 {
	if len(m.funcs) > 0 {
		panic("wasmtest: an import behind a function")
	}
	entry := slices.Concat(Name(module), Name(name), []byte{FuncKind}, U32(m.Type(params, results)))
	m.imports = append(m.imports, entry)
	return uint32(len(m.imports) - 1)
}

// Carrel imports a function of carrel/v1 with its signature.
func (m *Module) Carrel(name string) uint32 { return m.known(abi.Module, abi.Imports(), name) }

// WASI imports a function of WASI preview 1 with its signature.
func (m *Module) WASI(name string) uint32 { return m.known(abi.WASIModule, abi.WASIImports(), name) }

func (m *Module) known(module string, all []abi.Func, name string) uint32 {
	for _, f := range all {
		if f.Name == name {
			return m.Import(module, name, encoded(f.Params), encoded(f.Results))
		}
	}
	panic("wasmtest: " + module + " has no function " + name)
}

func encoded(types []abi.ValType) []byte {
	out := make([]byte, len(types))
	for i, t := range types {
		out[i] = byte(t)
	}
	return out
}

// Func adds a function.
func (m *Module) Func(params, results []byte) *Func {
	f := &Func{Index: uint32(len(m.imports) + len(m.funcs)), typ: m.Type(params, results)}
	m.funcs = append(m.funcs, f)
	return f
}

// Method adds a function () -> i32 and exports and names it.
func (m *Module) Method(name string) *Func {
	f := m.Func(nil, []byte{I32})
	m.Export(name, FuncKind, f.Index)
	m.Name(f.Index, name)
	return f
}

// Locals declares n locals of a type behind the others.
func (f *Func) Locals(n uint32, typ byte) *Func {
	f.locals = append(f.locals, append(U32(n), typ))
	return f
}

// Export adds an export.
func (m *Module) Export(name string, kind byte, index uint32) {
	m.exports = append(m.exports, slices.Concat(Name(name), []byte{kind}, U32(index)))
}

// Memory adds a memory of min pages without a maximum and exports it as
// "memory".
func (m *Module) Memory(least uint32) {
	m.Export(abi.MemoryExport, MemoryKind, uint32(len(m.memories)))
	m.memories = append(m.memories, append([]byte{0}, U32(least)...))
}

// Table adds a table of function references with a minimum.
func (m *Module) Table(least uint32) {
	m.tables = append(m.tables, append([]byte{FuncRef, 0}, U32(least)...))
}

// Global adds a mutable i32.
func (m *Module) Global(initial int32) uint32 {
	m.globals = append(m.globals, slices.Concat([]byte{I32, 1, 0x41}, S64(int64(initial)), []byte{0x0b}))
	return uint32(len(m.globals) - 1)
}

// GlobalOf adds a mutable global of a number type or V128, 0 at first, and
// exports it.
func (m *Module) GlobalOf(typ byte, export string) uint32 {
	zero := map[byte][]byte{I32: {0x41, 0}, I64: {0x42, 0}, F32: {0x43, 0, 0, 0, 0}, F64: {0x44, 0, 0, 0, 0, 0, 0, 0, 0},
		V128: append([]byte{0xfd, 12}, make([]byte, 16)...)}[typ]
	m.globals = append(m.globals, slices.Concat([]byte{typ, 1}, zero, []byte{0x0b}))
	index := uint32(len(m.globals) - 1)
	m.Export(export, GlobalKind, index)
	return index
}

// PassiveElements adds a segment of functions for table.init and returns its
// index.
func (m *Module) PassiveElements(funcs ...uint32) uint32 {
	entry := append([]byte{1, 0}, U32(uint32(len(funcs)))...)
	for _, f := range funcs {
		entry = append(entry, U32(f)...)
	}
	m.elements = append(m.elements, entry)
	return uint32(len(m.elements) - 1)
}

// Elements fills table 0 from an offset with functions.
func (m *Module) Elements(offset int32, funcs ...uint32) {
	entry := slices.Concat([]byte{0, 0x41}, S64(int64(offset)), []byte{0x0b}, U32(uint32(len(funcs))))
	for _, f := range funcs {
		entry = append(entry, U32(f)...)
	}
	m.elements = append(m.elements, entry)
}

// Data puts bytes at an address of the memory.
func (m *Module) Data(address int32, b []byte) {
	m.data = append(m.data, slices.Concat([]byte{0, 0x41}, S64(int64(address)), []byte{0x0b}, Vector(b)))
}

// Passive adds a data segment for memory.init, and the data count section
// that this needs.
func (m *Module) Passive(b []byte) {
	m.dataCount = true
	m.data = append(m.data, append([]byte{1}, Vector(b)...))
}

// Start makes a function run at instantiation.
func (m *Module) Start(f *Func) { m.start = &f.Index }

// Name names a function in the "name" section.
func (m *Module) Name(index uint32, name string) { m.names[index] = name }

// Custom adds a custom section behind everything else.
func (m *Module) Custom(name string, data []byte) {
	m.customs = append(m.customs, Section(0, append(Name(name), data...))...)
}

// Bytes returns the module. The caller owns it.
func (m *Module) Bytes() []byte {
	out := Header()
	add := func(id byte, entries [][]byte) {
		if len(entries) > 0 {
			out = append(out, Section(id, Entries(entries...))...)
		}
	}
	var declared, bodies [][]byte
	for _, f := range m.funcs {
		declared = append(declared, U32(f.typ))
		body := slices.Concat(Entries(f.locals...), f.bytes, []byte{0x0b})
		bodies = append(bodies, Vector(body))
	}
	add(1, m.types)
	add(2, m.imports)
	add(3, declared)
	add(4, m.tables)
	add(5, m.memories)
	add(6, m.globals)
	add(7, m.exports)
	if m.start != nil {
		out = append(out, Section(8, U32(*m.start))...)
	}
	add(9, m.elements)
	if m.dataCount {
		out = append(out, Section(12, U32(uint32(len(m.data))))...)
	}
	add(10, bodies)
	add(11, m.data)
	if len(m.names) > 0 {
		var list [][]byte
		for i := range uint32(len(m.imports) + len(m.funcs)) {
			if n, ok := m.names[i]; ok {
				list = append(list, append(U32(i), Name(n)...))
			}
		}
		out = append(out, Section(0, append(Name("name"), Section(1, Entries(list...))...))...)
	}
	return append(out, m.customs...)
}

// Header returns the 8 bytes that begin a module.
func Header() []byte { return []byte("\x00asm\x01\x00\x00\x00") }

// Section returns a section.
func Section(id byte, content []byte) []byte {
	return slices.Concat([]byte{id}, Vector(content))
}

// Vector returns bytes behind their number.
func Vector(b []byte) []byte { return append(U32(uint32(len(b))), b...) }

// Entries returns elements of any length behind their number.
func Entries(list ...[]byte) []byte {
	return append(U32(uint32(len(list))), slices.Concat(list...)...)
}

// Name returns a name as the binary format has it.
func Name(s string) []byte { return Vector([]byte(s)) }

// U32 returns an unsigned LEB128 number.
func U32(n uint32) []byte { return binary.AppendUvarint(nil, uint64(n)) }

// S64 returns a signed LEB128 number.
func S64(n int64) []byte {
	var out []byte
	for {
		b := byte(n & 0x7f)
		n >>= 7
		if n == 0 && b&0x40 == 0 || n == -1 && b&0x40 != 0 {
			return append(out, b)
		}
		out = append(out, b|0x80)
	}
}
