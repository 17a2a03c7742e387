package sandbox_test

import (
	"bytes"
	"regexp"
	"testing"
)

// rule is a guard that refuses nothing itself: a piece of a source, which is
// there once, and what stands for it in the copy. The copies have the function
// unless(guard, with, without).
type rule struct{ pkg, file, with, without string }

func (r rule) edit(t *testing.T, src []byte) edit {
	t.Helper()
	if n := bytes.Count(src, []byte(r.with)); n != 1 {
		t.Fatalf("%s has %q %d times: say anew how the rule is knocked out", r.file, r.with, n)
	}
	at := bytes.Index(src, []byte(r.with))
	return edit{at, at + len(r.with), r.without}
}

// rules are those of the guest's rewritten code, and the bounds of what the
// host does for a guest.
func rules() []rule {
	return []rule{
		{"sandbox", "code.go", "if r := recover(); r != nil {\n\t\t\tout, err = nil", "if r := any(nil); stillThere(\"a rewrite that panics is caught\") {\n\t\t\tr = recover()\n\t\t\tif r == nil {\n\t\t\t\treturn\n\t\t\t}\n\t\t\tout, err = nil"},
		{"module", "plan.go", "p.pays = len(p.checks)\n", "if stillThere(\"fuel at loop headers\") {\n\t\t\tp.pays = len(p.checks)\n\t\t}\n"},
		{"module", "plan.go", `append(p.checks, check{at: i.end, units: 1,`,
			`append(p.checks, check{at: i.end, units: unless("fuel at loop headers", 1, 0),`},
		{"module", "plan.go", "p.checks[0].units = 0\n\t}\n", "p.checks[0].units = 0\n\t}\n\tif !stillThere(\"fuel at function entries\") {\n\t\tp.checks[0].units = 0\n\t}\n"},
		{"module", "plan.go", `check{at: i.start, units: p.run}`, `check{at: i.start, units: unless("fuel in straight lines", p.run, 0)}`},
		{"module", "plan.go", `p.checks[0].units <= leafUnits`, `p.checks[0].units <= unless("only small leaves are free", leafUnits, 1<<30)`},
		{"module", "plan.go", `p.calls || bytes > leafFrameBytes`, `unless("the depth of calls is counted", p.calls || bytes > leafFrameBytes, false)`},
		{"module", "instrument.go", `n.spare = uint32(locals)`,
			`n.spare = uint32(locals); if len(s.results) > 1 { n.plan.counted = unless("the depth of calls of several results is counted", n.plan.counted, false) }`},
		{"module", "plan.go", `max(bytes, unwoundBytes*p.run)`, `max(bytes, unless("a frame counts what it does when it returns", unwoundBytes*p.run, 0))`},
		{"module", "plan.go", `		return memoryUnits
`, `		return unless("memory has its price", memoryUnits, 0)
`},
		{"module", "frame.go", `frameBytes + size*f.slots`, `frameBytes + size*unless("a frame counts its values", f.slots, 0)`},
		{"module", "bulk.go", "case miscMemoryInit, miscMemoryCopy, miscMemoryFill, miscTableInit, miscTableCopy:\n\t\t\treturn true",
			"case miscMemoryInit, miscMemoryCopy, miscMemoryFill, miscTableInit, miscTableCopy:\n\t\t\t" +
				`return unless(map[uint32]string{miscMemoryInit: "memory.init is charged", miscMemoryCopy: "memory.copy is charged", miscMemoryFill: "memory.fill is charged", miscTableInit: "table.init is charged", miscTableCopy: "table.copy is charged"}[i.sub], true, false)`},
		{"module", "bulk.go", "case opMemoryGrow:\n\t\treturn true", "case opMemoryGrow:\n\t\t" + `return unless("memory.grow is charged", true, false)`},
		{"module", "bulk.go", `c.i64(shift)`, `c.i64(unless("bulk operations are charged in proportion", shift, 63))`},
		{"module", "bulk.go", "c.i32(chunkBytes)\n\tc.op(opI32LeU, opIf, typeEmpty)", `c.i32(unless[int64]("bulk operations are done in chunks", chunkBytes, -1))` + "\n\tc.op(opI32LeU, opIf, typeEmpty)"},
		{"module", "bulk.go", `w.segmentBytes(i.a) > chunkBytes`, `w.segmentBytes(i.a) > unless("memory.init of large segments is done in chunks", chunkBytes, 1<<30)`},
		{"module", "instrument.go", `n.out.i32(freeBytes)`, `n.out.i32(unless[int64]("only small bulk operations are free", freeBytes, -1))`},
		{"module", "instrument.go", `n.inlined < inlineBulk`, `n.inlined < unless("few bulk operations have a branch of their own", inlineBulk, 1<<30)`},
		{"module", "assemble.go", `w.sizes(sectionTable, w.options.TableMax, 1<<32-1)`, `w.sizes(sectionTable, unless("tables have a maximum", w.options.TableMax, 0), 1<<32-1)`},
		{"module", "assemble.go", `w.sizes(sectionMemory, w.options.MaxPages, mostPages)`, `w.sizes(sectionMemory, unless("memories have a maximum", w.options.MaxPages, 0), mostPages)`},
		{"module", "assemble.go", `{sectionElement, elements},`, `{sectionStart, startSection(w)}, {sectionElement, elements},`},
		{"module", "rewrite.go", `Printable(name, mostNameBytes)`, `Printable(name, unless("names are cut", mostNameBytes, 1<<30))`},
		{"module", "rewrite.go", `left < 0`, `left < unless("names are few", 0, -1<<40)`},
		{"module", "reset.go", "\tw.notResettable(o)\n}\n\n// unrestorable", `	if unless(map[string]string{"table.set": "table.set forbids a reset", "table.init": "table.init forbids a reset", "table.copy": "table.copy forbids a reset", "elem.drop": "elem.drop forbids a reset", "data.drop": "data.drop forbids a reset"}[o.what], true, false) {
		w.notResettable(o)
	}
}

// unrestorable`},
		{"module", "reset.go", `w.notResettable(obstacle{what: valTypeName`, `if !stillThere("a vector in a global forbids a reset") {
		return
	}
	w.notResettable(obstacle{what: valTypeName`},

		{"sandbox", "idle.go", `in.module.Memory().Size() != in.pages*PageBytes || in.slot.Reset() != nil`,
			`unless("a memory that grew is not used again", in.module.Memory().Size() != in.pages*PageBytes, false) || unless("memory is set back", in.slot.Reset, func() error { return nil })() != nil`},
		{"sandbox", "idle.go", `in.restore(p.values)`, `in.restore(unless("globals are set back", p.values, nil))`},
		{"sandbox", "call.go", `return ended(ctx, "wait for a CPU slot", err)
	}`, `return ended(ctx, "wait for a CPU slot", err)
	}
	most = unless("what runs has a deadline", most, 0)`},
		{"sandbox", "fuel.go", `min(slice, r.cfg.Fuel-r.fuel)`, `min(unless[int64]("fuel comes in slices", slice, 1<<62), r.cfg.Fuel-r.fuel)`},
		{"sandbox", "fuel.go", `r.slots.Wanted()`, `unless("a slot is passed on", r.slots.Wanted(), false)`},
		{"slots", "slots.go", `most: max(n-1, 1)`, `most: unless("one share never holds every slot", max(n-1, 1), n)`},
		{"slots", "slots.go", `for p.free > 0 {`, `for p.free > unless("slots are few", 0, -1000) {`},
		{"sandbox", "run.go", "r.giveSlot()\n\tf()", "if unless(\"a guest that waits has no slot\", false, true) {\n\t\tf()\n\t\treturn\n\t}\n\tr.giveSlot()\n\tf()"},
		{"sandbox", "run.go", `if r.memory == nil {
		return nil, false`, `if unless("a guest may have no memory", r.memory == nil, false) {
		return nil, false`},
		{"sandbox", "instance.go", `size > l.most ||`, `size > unless("memory stops at its limit", l.most, 1<<40) ||`},
		{"sandbox", "logbook.go", `min(l.left-lineBytes, longestLine)`, `unless("a line is cut to what there is room for", min(l.left-lineBytes, longestLine), 1<<30)`},
		{"sandbox", "logbook.go", `l.left -= len(kept) + lineBytes`, `l.left -= len(kept) + unless("an empty line is not free", lineBytes, 0)`},
		{"sandbox", "logbook.go", `len(text) > stackBytes`, `len(text) > unless("a stack is cut", stackBytes, 1<<30)`},
		{"sandbox", "work.go", `- int64(units)`, `- int64(unless("what the host does is charged", units, 0))`},
		{"sandbox", "hostcall.go", `len(name) > abi.MaxOpBytes`, `len(name) > unless("a feature's name is short", abi.MaxOpBytes, 1<<30)`},
	}
}

// named finds the names of rules in what stands for them: they have spaces.
var named = regexp.MustCompile(`"([a-z][^"\n]* [^"\n]*)"`)

// ruleNames are those that rules and moduleHook ask for.
func ruleNames() map[string]bool {
	names := map[string]bool{}
	for _, r := range rules() {
		for _, text := range named.FindAllStringSubmatch(r.without, -1) {
			names[text[1]] = true
		}
		for _, text := range named.FindAllStringSubmatch(r.with, -1) {
			delete(names, text[1])
		}
	}
	for _, text := range named.FindAllStringSubmatch(moduleHook, -1) {
		names[text[1]] = true
	}
	return names
}

// ruleHook is what the copies need besides.
const ruleHook = `
func unless[T any](guard string, with, without T) T {
	if stillThere(guard) {
		return with
	}
	return without
}
`

// moduleHook is what the copy of package module needs besides.
const moduleHook = `
func limitUnless(guard string, l vectorLimit) vectorLimit { return unless(guard, l, vectorLimit{}) }

func startSection(w *rewriter) code {
	if !w.hasStart || stillThere("the start function is not the engine's to run") {
		return nil
	}
	var c code
	c.u32(w.moved(w.start))
	return c
}
`
