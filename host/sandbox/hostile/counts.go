package hostile

import (
	"strings"

	"github.com/carrelhost/carrel/abi"
)

// counts are modules of a few bytes that declare four billion of something.
func counts() []Module {
	one := section(typeID, list(noParams)) + section(functionID, list("\x00"))
	fn := func(body string) []byte { return file(one, section(codeID, list(text(body)))) }
	limited := func(limit, name string, b []byte) Module {
		return over(limit, name, func() []byte { return b })
	}
	return []Module{
		limited("module.types", "four billion types", file(section(typeID, huge))),
		limited("module.imports", "four billion imports", file(section(importID, huge))),
		limited("module.functions", "four billion functions", file(section(functionID, huge))),
		limited("module.tables", "four billion tables", file(section(tableID, huge))),
		limited("module.memories", "four billion memories", file(section(memoryID, huge))),
		limited("module.globals", "four billion globals", file(section(globalID, huge))),
		limited("module.exports", "four billion exports", file(section(exportID, huge))),
		limited("module.elements", "four billion element segments", file(section(elementID, huge))),
		limited("module.functions", "four billion bodies", file(section(codeID, huge))),
		limited("module.dataSegments", "four billion data segments", file(section(dataID, huge))),
		limited("module.dataSegments", "a data count of four billion", file(section(dataCountID, huge), section(codeID, list()))),
		limited("module.params", "a function type of four billion params", file(section(typeID, "\x01\x60"+huge))),
		limited("module.results", "a function type of four billion results", file(section(typeID, "\x01\x60\x00"+huge))),
		limited("function.locals", "four billion groups of locals", fn(huge+"\x0b")),
		limited("function.locals", "four billion locals in one group", fn("\x01"+huge+"\x7f\x0b")),
		limited("function.locals", "two groups of locals of two billion each, which is none in 32 bits", fn("\x02\x80\x80\x80\x80\x08\x7f\x80\x80\x80\x80\x08\x7f\x0b")),
		limited("function.brTable", "a branch table of four billion targets", fn("\x00\x41\x00\x0e"+huge+"\x0b")),
		limited("module.elementInits", "four billion functions in an element segment", file(section(elementID, list("\x01\x00"+huge)))),
		limited("module.elementInits", "four billion functions in an active element segment", file(section(elementID, list("\x00\x41\x00\x0b"+huge)))),
		limited("module.elementInits", "four billion expressions in an element segment", file(section(elementID, list("\x05\x70"+huge)))),
		limited("module.elementInits", "four billion functions in a declarative segment", file(section(elementID, list("\x03\x00"+huge)))),
		malformed("a select of four billion types", fn("\x00\x1c"+huge+"\x0b")),
		malformed("a data segment of four billion bytes", file(section(memoryID, list("\x00\x01")), section(dataID, list("\x00\x41\x00\x0b"+huge)))),
		malformed("a passive data segment of four billion bytes", file(section(dataID, list("\x01"+huge)))),
		malformed("a body of four billion bytes", file(one, section(codeID, "\x01"+huge))),
		malformed("a section of four billion bytes", file("\x01"+huge)),
		malformed("a custom section of four billion bytes", file("\x00"+huge)),
		malformed("a custom section with a name of four billion bytes", file(section(0, huge))),
		malformed("an import with a module name of four billion bytes", file(section(typeID, list(noParams)), section(importID, list(huge+"xx")))),
		malformed("an import with a name of four billion bytes", file(section(typeID, list(noParams)), section(importID, list(text(abi.Module)+huge+"x")))),
		malformed("an export with a name of four billion bytes", file(section(exportID, list(huge+"xx")))),
		malformed("four billion function names", file(custom("name", "\x01"+text(huge)))),
		malformed("a function name of four billion bytes", file(custom("name", "\x01"+text("\x01\x00"+huge)))),
		malformed("a name subsection of four billion bytes", file(custom("name", "\x01"+huge))),
		malformed("a module name of four billion bytes", file(custom("name", "\x00"+text(huge)))),
		malformed("four billion functions with named locals", file(custom("name", "\x02"+text(huge)))),
		malformed("a function with four billion named locals", file(custom("name", "\x02"+text("\x01\x00"+huge)))),
		malformed("a local's name of four billion bytes", file(custom("name", "\x02"+text("\x01\x00\x01\x00"+huge)))),
		malformed("four billion functions with named labels", file(custom("name", "\x03"+text(huge)))),
		malformed("four billion type names", file(custom("name", "\x04"+text(huge)))),
		malformed("four billion global names", file(custom("name", "\x07"+text(huge)))),
		malformed("four billion data segment names", file(custom("name", "\x09"+text(huge)))),
		malformed("four billion types with named fields", file(custom("name", "\x0a"+text(huge)))),
		malformed("four thousand types declared in ten bytes", file(section(typeID, leb(4000)+"\x60\x00\x00"))),
		malformed("a thousand globals declared in ten bytes", file(section(globalID, leb(1000)+"\x7f\x00\x41\x00\x0b"))),
		malformed("ninety thousand data segments declared in ten bytes", file(section(dataID, leb(90_000)+"\x01\x00"))),
		malformed("thirty thousand bodies declared in ten bytes", file(section(codeID, leb(30_000)+"\x02\x00\x0b"))),
	}
}

// orders are modules whose sections are twice there, or at the wrong place.
func orders() []Module {
	content := map[byte]string{
		typeID: list(noParams), importID: list(), functionID: list("\x00"), tableID: list("\x70\x00\x01"), memoryID: list("\x00\x01"),
		globalID: list("\x7f\x00\x41\x00\x0b"), exportID: list(), elementID: list(), dataCountID: "\x00", codeID: list(text("\x00\x0b")), dataID: list(),
	}
	order := []byte{typeID, importID, functionID, tableID, memoryID, globalID, exportID, elementID, dataCountID, codeID, dataID}
	var out []Module
	before := byte(0)
	for _, id := range order {
		out = append(out, malformed("a second "+sectionNames[id]+" section", file(section(id, content[id])+section(id, content[id]))))
		if before > 0 {
			out = append(out, malformed("the "+sectionNames[before]+" section behind the "+sectionNames[id]+" section",
				file(section(id, content[id])+section(before, content[before]))))
		}
		before = id
	}
	return append(out,
		malformed("a second start section", file(section(typeID, list(noParams)), section(functionID, list("\x00")), section(startID, "\x00"), section(startID, "\x00"))),
		malformed("a second manifest", file(custom(abi.ManifestSection, "{}"), custom(abi.ManifestSection, "{}"))),
		malformed("a section of tags", file(section(13, list()))),
		malformed("a section that nobody knows", file(section(77, ""))),
		malformed("functions without bodies", file(section(typeID, list(noParams)), section(functionID, many(10, "\x00")))),
		malformed("bodies without functions", file(section(codeID, many(10, text("\x00\x0b"))))),
		malformed("fewer bodies than functions", file(section(typeID, list(noParams)), section(functionID, many(10, "\x00")), section(codeID, many(9, text("\x00\x0b"))))),
		malformed("a data count that is not that of the segments", file(section(dataCountID, "\x02"), section(codeID, list()), section(dataID, list("\x01\x00")))),
	)
}

var sectionNames = map[byte]string{
	0: "custom", typeID: "type", importID: "import", functionID: "function", tableID: "table", memoryID: "memory", globalID: "global",
	exportID: "export", startID: "start", elementID: "element", codeID: "code", dataID: "data", dataCountID: "data count",
}

// numbers are modules with numbers that are too long or too large for their
// bits.
func numbers() []Module {
	one := section(typeID, list(noParams)) + section(functionID, list("\x00"))
	body := func(instructions string) []byte {
		return file(one, section(codeID, list(text("\x00"+instructions+"\x0b"))))
	}
	long := strings.Repeat("\x80", 5) + "\x00"
	return []Module{
		malformed("a section size of six bytes", file("\x01"+long)),
		malformed("a section size of 33 bits", file("\x01\xff\xff\xff\xff\x1f")),
		malformed("a section size without an end", file("\x01"+strings.Repeat("\xff", 100))),
		malformed("a count of six bytes", file(section(typeID, long))),
		malformed("a count of 33 bits", file(section(typeID, "\x80\x80\x80\x80\x10"))),
		malformed("a count that is cut off", file(section(typeID, "\x80"))),
		malformed("a type index of six bytes", file(section(typeID, list(noParams)), section(functionID, "\x01"+long))),
		malformed("an i32 of six bytes", body("\x41"+long+"\x1a")),
		malformed("an i32 of 33 bits", body("\x41\xff\xff\xff\xff\x0f\x1a")),
		malformed("an i64 of eleven bytes", body("\x42"+strings.Repeat("\x80", 10)+"\x00\x1a")),
		malformed("an i64 of 65 bits", body("\x42"+strings.Repeat("\xff", 9)+"\x01\x1a")),
		malformed("a block type of 34 bits", body("\x02\xff\xff\xff\xff\x3f\x0b")),
		malformed("a local index of 33 bits", body("\x20\x80\x80\x80\x80\x10\x1a")),
		malformed("a memory offset of 33 bits", body("\x41\x00\x28\x00\x80\x80\x80\x80\x10\x1a")),
		malformed("an alignment of 2^31", body("\x41\x00\x28\x1f\x00\x1a")),
		malformed("a branch of 33 bits", body("\x0c\x80\x80\x80\x80\x10")),
		malformed("a padded vector instruction", body("\xfd\x8c\x80\x00"+strings.Repeat("\x00", 16)+"\x1a")),
	}
}
