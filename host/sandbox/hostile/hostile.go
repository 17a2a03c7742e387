// Package hostile generates the modules and plugins of an attacker, for tests
// of whatever runs strangers' code. Each has a sentence that names it and the
// refusal or the end that is right for it. It runs nothing.
package hostile

import (
	"fmt"
	"slices"
	"strings"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox/wasmtest"
)

// Module is an upload. It is to be refused, or to be admitted within a bound
// of time, with the process unharmed.
type Module struct {
	Name  string        // a sentence, unique among all
	Field string        // the field of module.Limits that it is past, or ""
	Code  abi.Code      // abi.OK: it is admitted
	Limit string        // the limit that the refusal names, or ""
	Slow  bool          // it takes a second or more
	Bytes func() []byte // makes it; the caller owns it
}

// Modules returns the uploads. The caller owns the result.
func Modules() []Module {
	return slices.Concat(counts(), cuts(), numbers(), orders(), garbage(), pastLimits(), sizes(), proposals(),
		faults(), imports(), exports(), segments(), bombs(), starts(), initializers(), describers())
}

// malformed is a module that is no valid one.
func malformed(name string, b []byte) Module {
	return Module{Name: name, Code: abi.InvalidModule, Bytes: func() []byte { return slices.Clone(b) }}
}

// over is a module that a limit refuses.
func over(limit, name string, bytes func() []byte) Module {
	return Module{Name: name, Code: abi.LimitExceeded, Limit: limit, Bytes: bytes}
}

// The ids of sections.
const (
	typeID byte = iota + 1
	importID
	functionID
	tableID
	memoryID
	globalID
	exportID
	startID
	elementID
	codeID
	dataID
	dataCountID
)

// huge is the largest 32-bit number.
const huge = "\xff\xff\xff\xff\x0f"

// file is a module of sections.
func file(sections ...string) []byte {
	return []byte(string(wasmtest.Header()) + strings.Join(sections, ""))
}

func section(id byte, content string) string { return string(wasmtest.Section(id, []byte(content))) }

func custom(name, content string) string { return section(0, text(name)+content) }

// text is a length and as many bytes: a name, a body or a segment.
func text(s string) string { return string(wasmtest.Name(s)) }

func leb(n int) string { return string(wasmtest.U32(uint32(n))) }

// list is a vector of elements.
func list(elements ...string) string { return leb(len(elements)) + strings.Join(elements, "") }

// many is a vector of n elements that are all the same.
func many(n int, element string) string { return leb(n) + strings.Repeat(element, n) }

// noParams is the function type () -> ().
const noParams = "\x60\x00\x00"

// code is a module of functions () -> (), of which each string is the
// declaration of the locals and the instructions without the last end.
func code(bodies ...string) []byte {
	var all strings.Builder
	for _, b := range bodies {
		all.WriteString(text(b + "\x0b"))
	}
	return file(section(typeID, list(noParams)), section(functionID, many(len(bodies), "\x00")),
		section(codeID, leb(len(bodies))+all.String()))
}

// noLocals begins a body.
const noLocals = "\x00"

// locals begins a body with n of type i32.
func locals(n int) string { return list(leb(n) + "\x7f") }

// The names of what a plugin of this package offers. Its handlers take
// no params.
const (
	Service = "com.mallory.Attack"
	Run     = "run"  // attacks
	Fine    = "fine" // returns at once
	Busy    = "busy" // honest work: it counts until its time is over
)

// Manifest is that of a plugin with the methods, each of its own export.
// timeout is that of each call; more are further members, each with a comma
// behind it.
func Manifest(plugin, timeout, more string, methods ...string) []byte {
	var all []string
	for _, m := range methods {
		all = append(all, fmt.Sprintf(`{"name":%q,"kind":"handler","export":%q}`, m, m))
	}
	return fmt.Appendf(nil, `{"abi":%q,"name":%q,"version":"1",%s"limits":{"timeout":%q},"services":[{"name":%q,"scope":"request","methods":[%s]}]}`,
		abi.Version, plugin, more, timeout, Service, strings.Join(all, ","))
}

// uploaded is a module with a manifest of one method, which is fine.
func uploaded(build func(m *wasmtest.Module)) []byte {
	m := wasmtest.New()
	build(m)
	m.Method(Fine).Const(0)
	m.Custom(abi.ManifestSection, Manifest("upload", "1s", "", Fine))
	return m.Bytes()
}
