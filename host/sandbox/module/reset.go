package module

import (
	"fmt"
	"slices"
)

// obstacle is something that an instance can change and its runner cannot set
// back.
type obstacle struct {
	what     string // an instruction, or the type of a global: told once each
	global   bool
	index    uint32 // of the global, or of the function that has the instruction
	at       int    // the byte of the module
	sentence string // what the instruction does; "" for a global
}

// use notes what an instruction means for a reset.
func (w *rewriter) use(i *instr) {
	const table, elements, data = "writes to a table", "drops a segment of elements", "drops a segment of data"
	o := obstacle{index: w.function, at: i.start}
	switch {
	case i.op == opTableSet:
		o.what, o.sentence = "table.set", table
	case i.op == opMisc && i.sub == miscTableInit:
		o.what, o.sentence = "table.init", table
	case i.op == opMisc && i.sub == miscTableCopy:
		o.what, o.sentence = "table.copy", table
	case i.op == opMisc && i.sub == miscElemDrop:
		o.what, o.sentence = "elem.drop", elements
	case i.op == opMisc && i.sub == miscDataDrop:
		o.what, o.sentence = "data.drop", data
	default:
		return
	}
	w.notResettable(o)
}

// unrestorable notes a mutable global that the runner cannot set.
func (w *rewriter) unrestorable(index uint32, valType byte, at int) {
	w.notResettable(obstacle{what: valTypeName(valType), global: true, index: index, at: at})
}

func (w *rewriter) notResettable(o obstacle) {
	w.out.Resettable = false
	same := func(known obstacle) bool { return known.what == o.what }
	if !slices.ContainsFunc(w.obstacles, same) {
		w.obstacles = append(w.obstacles, o)
	}
}

// explain says what the obstacles are, once the names are known. Indices are
// those of the module as it came.
func (w *rewriter) explain() {
	for _, o := range w.obstacles {
		if o.global {
			w.out.Why = append(w.out.Why, fmt.Sprintf("global %d is mutable and of the type %s, which cannot be set back (byte %d)", o.index, o.what, o.at))
			continue
		}
		named := ""
		if name := w.out.Names[w.moved(o.index)]; name != "" {
			named = " (" + name + ")"
		}
		w.out.Why = append(w.out.Why, fmt.Sprintf("function %d%s %s (%s, byte %d)", o.index, named, o.sentence, o.what, o.at))
	}
}
