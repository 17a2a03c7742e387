package hostile

import (
	"strings"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox/wasmtest"
)

// proposals are modules that use what is not core WebAssembly 2.0, or what
// this host refuses of it.
func proposals() []Module {
	uses := func(name, instructions string) Module { return malformed(name, code(noLocals+instructions)) }
	return []Module{
		{Name: "table.grow by a hundred million", Code: abi.InvalidModule, Bytes: func() []byte {
			m := wasmtest.New()
			m.Table(1)
			m.Method(Run).Raw(0xd0, 0x70).Const(100_000_000).Raw(0xfc, 15, 0)
			return m.Bytes()
		}},
		uses("table.fill", "\x41\x00\xd0\x70\x41\x00\xfc\x11\x00"),
		uses("a tail call of itself", "\x12\x00"),
		uses("an indirect tail call", "\x41\x00\x13\x00\x00"),
		uses("an atomic instruction", "\x41\x00\x41\x00\x42\x00\xfe\x01\x00\x00\x1a"),
		uses("an atomic fence", "\xfe\x03\x00"),
		uses("a legacy try block", "\x06\x40\x0b"),
		uses("a try table", "\x1f\x40\x00\x0b"),
		uses("a throw", "\x08\x00"),
		uses("a call by reference", "\x14\x00"),
		uses("a struct", "\xfb\x00\x00\x1a"),
		uses("a relaxed vector instruction", "\xfd\x80\x02"),
		uses("an instruction that nobody knows", "\x27"),
		malformed("a shared memory", file(section(memoryID, list("\x03\x01\x02")))),
		malformed("a 64-bit memory", file(section(memoryID, list("\x05\x01\x02")))),
		malformed("a 64-bit table", file(section(tableID, list("\x70\x05\x01\x02")))),
		malformed("a structure type", file(section(typeID, list("\x5f\x00")))),
		malformed("an array type", file(section(typeID, list("\x5e\x7f\x01")))),
		malformed("a group of recursive types", file(section(typeID, list("\x4e\x01\x60\x00\x00")))),
		malformed("a table of anyref", file(section(tableID, list("\x6e\x00\x01")))),
		malformed("a table with an initialiser", file(section(tableID, list("\x40\x00\x70\x00\x01\xd0\x70\x0b")))),
		malformed("an extended constant", file(section(globalID, list("\x7f\x00\x41\x01\x41\x01\x6a\x0b")))),
		malformed("a second memory in a load", code(noLocals+"\x41\x00\x28\x42\x01\x00\x1a")),
		malformed("a stack that is empty", code(noLocals+"\x1a")),
		malformed("a result that is not there", code(noLocals+"\x6a")),
		malformed("a branch beyond the body", code(noLocals+"\x0c\x05")),
		malformed("a local that is not there", code(noLocals+"\x20\x05\x1a")),
		malformed("a call of a function that is not there", code(noLocals+"\x10\x05")),
	}
}

// imports are modules that ask for what the host does not offer.
func imports() []Module {
	unknown := func(name, types string, entries ...string) Module {
		m := malformed(name, file(section(typeID, types), section(importID, list(entries...))))
		m.Code = abi.UnknownImport
		return m
	}
	imported := func(module, name, kind string) string { return text(module) + text(name) + kind }
	fd := "\x60\x04\x7f\x7f\x7f\x7f\x00"
	return []Module{
		unknown("an import of a module that is not there", list(noParams), imported("env", "abort", "\x00\x00")),
		unknown("an import of a function that is not there", list(noParams), imported(abi.Module, "root_shell", "\x00\x00")),
		unknown("an import of an older host interface", list(noParams), imported("wasi_unstable", "fd_write", "\x00\x00")),
		unknown("an import of the host's own module", list(noParams), imported("carrel$host", "yield", "\x00\x00")),
		unknown("an import of a name with a newline and an escape", list(noParams), imported("\n\x1b[2J", "x", "\x00\x00")),
		unknown("a function of ours with another signature", list(noParams), imported(abi.Module, "output_write", "\x00\x00")),
		unknown("a function of WASI with another signature", list(fd), imported(abi.WASIModule, "fd_write", "\x00\x00")),
		unknown("an imported memory", list(noParams), imported(abi.Module, "memory", "\x02\x00\x01")),
		unknown("an imported table", list(noParams), imported(abi.Module, "table", "\x01\x70\x00\x01")),
		unknown("an imported global", list(noParams), imported(abi.Module, "global", "\x03\x7f\x00")),
		unknown("two hundred imports that are not there", list(noParams), repeat(200, imported("env", strings.Repeat("x", 1000), "\x00\x00"))...),
		malformed("an import of a tag", file(section(typeID, list(noParams)), section(importID, list(imported("env", "tag", "\x04\x00\x00"))))),
		malformed("an import of no type", file(section(typeID, list(noParams)), section(importID, list(imported(abi.Module, "input_len", "\x00\x07"))))),
	}
}

// exports are modules that export what they must not, or not what they say.
func exports() []Module {
	refused := func(code abi.Code, name string, build func(m *wasmtest.Module)) Module {
		return Module{Name: name, Code: code, Bytes: func() []byte {
			m := wasmtest.New()
			build(m)
			m.Custom(abi.ManifestSection, Manifest("upload", "1s", "", Fine))
			return m.Bytes()
		}}
	}
	returns := func(m *wasmtest.Module, export string, results ...byte) {
		f := m.Func(nil, results)
		for _, r := range results {
			f.Raw(map[byte]byte{wasmtest.I32: 0x41, wasmtest.I64: 0x42}[r], 0)
		}
		m.Export(export, wasmtest.FuncKind, f.Index)
	}
	return []Module{
		refused(abi.InvalidModule, "an export with a name of the host's", func(m *wasmtest.Module) {
			m.Global(0)
			m.Method(Fine).Const(0)
			m.Export(abi.ReservedExportPrefix+"fuel", wasmtest.GlobalKind, 0)
		}),
		refused(abi.InvalidModule, "an export that is only the prefix of the host's", func(m *wasmtest.Module) {
			returns(m, abi.ReservedExportPrefix, wasmtest.I32)
		}),
		refused(abi.InvalidModule, "two exports of one name", func(m *wasmtest.Module) {
			returns(m, Fine, wasmtest.I32)
			returns(m, Fine, wasmtest.I32)
		}),
		refused(abi.InvalidModule, "an export of a function that is not there", func(m *wasmtest.Module) {
			m.Method(Fine).Const(0)
			m.Export("more", wasmtest.FuncKind, 1)
		}),
		refused(abi.InvalidModule, "an export of the host's own fuel by its number", func(m *wasmtest.Module) {
			m.Global(0)
			m.Method(Fine).Const(0)
			m.Export("fuel", wasmtest.GlobalKind, 1)
		}),
		refused(abi.InvalidModule, "code that sets the host's own fuel by its number", func(m *wasmtest.Module) {
			m.Method(Fine).Const64(1 << 62).GlobalSet(0).Const(0)
		}),
		refused(abi.InvalidModule, "code that calls the host's own yield by its number", func(m *wasmtest.Module) {
			m.Method(Fine).Call(1).Drop().Const(0)
		}),
		refused(abi.InvalidModule, "code that reads a local of the host's", func(m *wasmtest.Module) {
			m.Memory(1)
			m.Method(Fine).Const(0).Const(0).Const(0).Raw(0xfc, 0x0b, 0).Get(0) // memory.fill, for which there is one
		}),
		refused(abi.InvalidModule, "code that branches to a label of the host's", func(m *wasmtest.Module) {
			f := m.Method(Fine)
			f.Call(f.Index).Br(1)
		}),
		refused(abi.InvalidManifest, "a memory with the name of a method", func(m *wasmtest.Module) {
			m.Memory(1)
			m.Export(Fine, wasmtest.MemoryKind, 0)
			m.Func(nil, nil)
		}),
		refused(abi.InvalidManifest, "a method that returns an i64", func(m *wasmtest.Module) { returns(m, Fine, wasmtest.I64) }),
		refused(abi.InvalidManifest, "a method that returns nothing", func(m *wasmtest.Module) { returns(m, Fine) }),
		refused(abi.InvalidManifest, "a method that returns twice as much", func(m *wasmtest.Module) { returns(m, Fine, wasmtest.I32, wasmtest.I32) }),
		refused(abi.InvalidModule, "an initialisation that returns something", func(m *wasmtest.Module) {
			returns(m, Fine, wasmtest.I32)
			returns(m, abi.InitializeExport, wasmtest.I32)
		}),
		refused(abi.InvalidModule, "a command", func(m *wasmtest.Module) {
			returns(m, Fine, wasmtest.I32)
			returns(m, "_start")
		}),
		refused(abi.InvalidModule, "a wake that returns nothing", func(m *wasmtest.Module) {
			returns(m, Fine, wasmtest.I32)
			returns(m, abi.WakeExport)
		}),
	}
}

// segments are modules with data and elements that do not fit.
func segments() []Module {
	return []Module{
		malformed("data beyond the memory", uploaded(func(m *wasmtest.Module) { m.Memory(1); m.Data(65535, []byte("xy")) })),
		malformed("data at the end of all addresses", uploaded(func(m *wasmtest.Module) { m.Memory(1); m.Data(-1, []byte("xy")) })),
		malformed("data without a memory", uploaded(func(m *wasmtest.Module) { m.Data(0, []byte("x")) })),
		malformed("an element of a function that is not there", uploaded(func(m *wasmtest.Module) { m.Table(1); m.Elements(0, 99) })),
		malformed("elements without a table", uploaded(func(m *wasmtest.Module) { m.Elements(0, 0) })),
		malformed("elements beyond the table, which the engine leaves out", uploaded(func(m *wasmtest.Module) { m.Table(1); m.Elements(1, 0) })),
		{Name: "17 MiB of data", Code: abi.OK, Bytes: func() []byte {
			return uploaded(func(m *wasmtest.Module) { m.Memory(512); m.Data(1<<20, make([]byte, 17<<20)) })
		}},
		{Name: "the same 2 MiB written eight times", Code: abi.OK, Bytes: func() []byte {
			return uploaded(func(m *wasmtest.Module) {
				m.Memory(64)
				for range 8 {
					m.Data(0, make([]byte, 2<<20))
				}
			})
		}},
		{Name: "ninety thousand data segments of a byte", Code: abi.OK, Bytes: func() []byte {
			return uploaded(func(m *wasmtest.Module) {
				m.Memory(2)
				for i := range int32(90_000) {
					m.Data(i, []byte{1})
				}
			})
		}},
		{Name: "a memory and four tables of the largest beginnings", Code: abi.OK, Bytes: func() []byte {
			return uploaded(func(m *wasmtest.Module) {
				m.Memory(512)
				for range 4 {
					m.Table(65536)
				}
			})
		}},
	}
}
