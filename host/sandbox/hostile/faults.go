package hostile

import (
	"strings"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox/wasmtest"
)

// faults are modules of one fault each, which is made so that whoever does not
// look for it finds nothing else that is wrong.
func faults() []Module {
	one := section(typeID, list(noParams)) + section(functionID, list("\x00"))
	body := section(codeID, list(emptyBody))
	memory := section(memoryID, list("\x00\x01"))
	uses := func(name, instructions string) Module { return malformed(name, code(noLocals+instructions)) }
	global := func(name, content string) Module { return malformed(name, file(section(globalID, list(content)))) }
	return []Module{
		malformed("a type that is like a function's, of another form", file(section(typeID, list("\x5f\x00\x00")))),
		malformed("a function type of a value that nobody knows", file(section(typeID, list("\x60\x01\x01\x00")))),
		malformed("a function type of more params than there are bytes", file(section(typeID, "\x01\x60\x7f\x7f"))),
		malformed("a function of a type that is not there", file(section(functionID, list("\x00")), body)),
		malformed("a body that is longer than its section", file(one, section(codeID, list("\x7f\x00\x0b")))),
		malformed("a byte behind a memory", file(section(memoryID, list("\x00\x01")+"\x00"))),
		malformed("a memory with a flag that nobody knows", file(section(memoryID, list("\x09\x01\x02")))),
		malformed("an imported memory with a flag that nobody knows", file(section(importID, list(text(abi.Module)+text("memory")+"\x02\x09\x01\x02")))),
		malformed("an import of a kind that nobody knows before one that is not offered", file(section(typeID, list(noParams)),
			section(importID, list(text(abi.Module)+text("tag")+"\x04", text("env")+text("abort")+"\x00\x00")))),
		malformed("a component of version 1", []byte("\x00asm\x01\x00\x01\x00")),
		global("a global of a type that nobody knows", "\x6d\x00\x41\x00\x0b"),
		global("a global of a mutability that nobody knows", "\x7f\x02\x41\x00\x0b"),
		global("a global of an instruction that is no constant", "\x7f\x00\x01"),
		global("a global of a vector instruction that is no constant", "\x7b\x00\xfd\x0d0123456789abcdef\x0b"),
		global("a constant without its end", "\x7f\x00\x41\x00\x01"),
		malformed("an export of a kind that nobody knows", file(section(exportID, list(text("tag")+"\x04\x00")))),
		malformed("an export of a name that is no UTF-8", file(memory, section(exportID, list(text("\xff")+"\x02\x00")))),
		malformed("an element segment of a kind that nobody knows", file(section(elementID, list("\x08\x41\x00\x0b\x00")))),
		malformed("a data segment of a kind that nobody knows", file(memory, section(dataID, list("\x03\x41\x00\x0b\x3e"+strings.Repeat("x", 62))))),
		malformed("a data segment at an address of 64 bits", file(memory, section(dataID, list("\x00\x42\x00\x0b\x01x")))),
		malformed("a data segment of no bytes without a memory", file(section(dataID, list("\x00\x41\x00\x0b\x00")))),
		malformed("a start function with a result", file(section(typeID, list("\x60\x00\x01\x7f")), section(functionID, list("\x00")), section(startID, "\x00"),
			section(codeID, list(text("\x00\x41\x00\x0b"))))),
		uses("a block of a type that is not there", "\x02\x07\x0b"),
		uses("a call through a table of a type that is not there", "\x41\x00\x11\x01\x00"),
		uses("a copy to a second memory", "\x41\x00\x41\x00\x41\x00\xfc\x0a\x01\x00"),
		uses("a select of two types", "\x1c\x02\x7f\x7f"),
		uses("a constant that is cut off", "\x44\x00\x00"),
		uses("a bulk instruction that nobody knows", "\xfc\x12\x00"),
		uses("a vector instruction that nobody knows", "\xfd\x9a\x01"),
		{Name: "a function with a name of a megabyte", Code: abi.OK, Bytes: func() []byte {
			return uploaded(func(m *wasmtest.Module) { m.Name(m.Func(nil, nil).Index, strings.Repeat("x", 1<<20)) })
		}},
		{Name: "twenty-nine thousand functions with long names", Code: abi.OK, Bytes: func() []byte {
			return uploaded(func(m *wasmtest.Module) {
				for range 29_000 {
					m.Name(m.Func(nil, nil).Index, strings.Repeat("x", 300))
				}
			})
		}},
		{Name: "a memory that may grow to 4 GiB", Code: abi.OK, Bytes: func() []byte {
			m := wasmtest.New()
			m.Method(Fine).Const(0)
			m.Custom(abi.ManifestSection, Manifest("upload", "1s", "", Fine))
			// The assembler's memories have no maximum; sections are in order.
			b := string(m.Bytes())
			at := strings.Index(b, string(wasmtest.Header())) + len(wasmtest.Header())
			for b[at] < exportID {
				at += 2 + int(b[at+1])
			}
			return []byte(b[:at] + section(memoryID, list("\x01\x01\x80\x80\x04")) + b[at:])
		}},
	}
}
