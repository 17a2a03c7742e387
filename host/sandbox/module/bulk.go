package module

// freeBytes is the most that a bulk operation moves for its fixed price.
const freeBytes = 4096

// chunkBytes is the most that one instruction of a bulk operation moves: some
// hundred microseconds' work. Longer ones become loops with a check in each
// round.
const chunkBytes = 1 << 20

// pageUnits is what a new page of memory costs: the engine clears it and may
// copy those before it.
const pageUnits = 16384

// helper names a function that the rewriter adds behind the module's own.
type helper struct {
	kind    byte
	segment uint32 // of helperInit
}

// The helpers for operations on three operands are called before them, take
// and give their operands, and charge. Of long ones they do all but nothing:
// the length that they give back is 0.
const (
	helperGrow       byte = iota // stands for memory.grow
	helperFill                   // for memory.fill
	helperCopy                   // for memory.copy
	helperInit                   // for memory.init of a segment of more than chunkBytes
	helperChargeByte             // for memory.init of others
	helperChargeRef              // for table.init and table.copy
	helperStart                  // calls the start function
	helperWholeFill              // is all of memory.fill, which the engine compiles to a loop at each place
	helperWholeCopy              // is all of memory.copy
)

// bulk reports whether an instruction gets a helper.
func (i *instr) bulk() bool {
	switch i.op {
	case opMemoryGrow:
		return true
	case opMisc:
		switch i.sub {
		case miscMemoryInit, miscMemoryCopy, miscMemoryFill, miscTableInit, miscTableCopy:
			return true
		}
	}
	return false
}

// often reports whether an instruction is so frequent that short ones go by
// its helper.
func (i *instr) often() bool {
	return i.op == opMisc && (i.sub == miscMemoryCopy || i.sub == miscMemoryFill)
}

// helperOf returns the helper for a bulk instruction.
func (w *rewriter) helperOf(i *instr) helper {
	if i.op == opMemoryGrow {
		return helper{kind: helperGrow}
	}
	switch i.sub {
	case miscMemoryFill:
		return helper{kind: helperFill}
	case miscMemoryCopy:
		return helper{kind: helperCopy}
	case miscMemoryInit:
		if w.segmentBytes(i.a) > chunkBytes {
			return helper{helperInit, i.a}
		}
		return helper{kind: helperChargeByte}
	default:
		return helper{kind: helperChargeRef}
	}
}

// helperIndex returns a helper's function index; helpers come in the order in
// which they are first needed.
func (w *rewriter) helperIndex(h helper) uint32 {
	n, ok := w.helperOrder[h]
	if !ok {
		n = uint32(len(w.helpers))
		w.helperOrder[h] = n
		w.helpers = append(w.helpers, h)
	}
	return uint32(len(w.functions)) + ownImports + n
}

func (w *rewriter) helperType(h helper) uint32 {
	i32s := []byte{typeI32, typeI32, typeI32}
	switch h.kind {
	case helperGrow:
		return w.typeIndex(i32s[:1], i32s[:1])
	case helperStart:
		return w.typeIndex(nil, nil)
	case helperWholeFill, helperWholeCopy:
		return w.typeIndex([]byte{typeI32, typeI32, typeI32}, nil)
	default:
		return w.threeType()
	}
}

// threeType is that of a function or block that takes and gives three i32.
func (w *rewriter) threeType() uint32 {
	i32s := []byte{typeI32, typeI32, typeI32}
	return w.typeIndex(i32s, i32s)
}

func (w *rewriter) helperBody(h helper) code {
	var c code
	switch h.kind {
	case helperGrow:
		c.op(0) // no locals
		w.growBody(&c)
	case helperFill:
		c.op(1, 1, typeI32)
		w.fillBody(&c)
	case helperCopy:
		c.op(1, 1, typeI32)
		w.copyBody(&c)
	case helperInit:
		c.op(1, 1, typeI32)
		w.initBody(&c, h.segment)
	case helperChargeByte:
		c.op(0)
		w.charge(&c, 2, w.maxPages<<16, 3)
		threeParams(&c)
	case helperChargeRef:
		c.op(0)
		w.charge(&c, 2, w.tableMost(), 0)
		threeParams(&c)
	case helperWholeFill:
		c.op(0)
		threeParams(&c)
		c.index(opCall, w.helperIndex(helper{kind: helperFill}))
		c.op(opMisc, miscMemoryFill, 0)
	case helperWholeCopy:
		c.op(0)
		threeParams(&c)
		c.index(opCall, w.helperIndex(helper{kind: helperCopy}))
		c.op(opMisc, miscMemoryCopy, 0, 0)
	case helperStart:
		c.op(0)
		c.index(opCall, w.moved(w.start))
	}
	c.op(opEnd)
	return c
}

func threeParams(c *code) {
	c.get(0)
	c.get(1)
	c.get(2)
}

// charge takes fuel for an i32 local, of which at most that much counts, in
// units of 1<<shift: what is above fails anyway, and failing is cheap.
func (w *rewriter) charge(c *code, local uint32, most uint64, shift int64) {
	c.index(opGlobalGet, w.fuel)
	c.get(local)
	c.op(opExtendU)
	c.i64(int64(most))
	c.get(local)
	c.op(opExtendU)
	c.i64(int64(most))
	c.op(opI64LtU, opSelect)
	c.i64(shift)
	c.op(opI64ShrU, opI64Sub)
	c.index(opGlobalSet, w.fuel)
	w.yieldIfEmpty(c)
}

// growBody is that of a function from pages to pages before.
func (w *rewriter) growBody(c *code) {
	c.index(opGlobalGet, w.fuel)
	c.get(0)
	c.op(opExtendU)
	c.i64(int64(w.maxPages))
	c.get(0)
	c.op(opExtendU)
	c.i64(int64(w.maxPages))
	c.op(opI64LtU, opSelect)
	c.i64(pageUnits)
	c.op(opI64Mul, opI64Sub)
	c.index(opGlobalSet, w.fuel)
	w.yieldIfEmpty(c)
	c.get(0)
	c.op(opMemoryGrow, 0)
}

// beyond pushes whether local plus the length in local 2 is more than the
// memory.
func beyond(c *code, local uint32) {
	c.get(local)
	c.op(opExtendU)
	c.get(2)
	c.op(opExtendU, opI64Add, opMemorySize, 0, opExtendU)
	c.i64(16)
	c.op(opI64Shl, opI64GtU)
}

// short begins a helper with what is left to the instruction: those of at
// most a chunk, and those that go beyond an end, which trap before they write
// anything.
func (w *rewriter) short(c *code, outside func()) {
	c.get(2)
	c.i32(chunkBytes)
	c.op(opI32LeU, opIf, typeEmpty)
	w.charge(c, 2, chunkBytes, 3)
	threeParams(c)
	c.op(opReturn, opEnd)
	outside()
	c.op(opIf, typeEmpty)
	threeParams(c)
	c.op(opReturn, opEnd)
}

// chunk sets local 3 to what the next round moves, and charges for it.
func (w *rewriter) chunk(c *code) {
	c.i32(chunkBytes)
	c.get(2)
	c.i32(chunkBytes)
	c.get(2)
	c.op(opI32LtU, opSelect)
	c.set(3)
	w.charge(c, 3, chunkBytes, 3)
}

// forward moves a local by local 3.
func forward(c *code, local uint32, op byte) {
	c.get(local)
	c.get(3)
	c.op(op)
	c.set(local)
}

// again goes back to the loop while there is something left.
func again(c *code) {
	c.get(2)
	c.index(opBrIf, 0)
}

// fillBody is that of a function of (to, value, n).
func (w *rewriter) fillBody(c *code) {
	instruction := []byte{opMisc, miscMemoryFill, 0}
	w.short(c, func() { beyond(c, 0) })
	c.op(opLoop, typeEmpty)
	w.chunk(c)
	c.get(0)
	c.get(1)
	c.get(3)
	c.op(instruction...)
	forward(c, 0, opI32Add)
	forward(c, 2, opI32Sub)
	again(c)
	c.op(opEnd)
	threeParams(c)
}

// copyBody is that of a function of (to, from, n). A copy to a higher address
// goes from the end down: rounds must not overwrite what later ones read.
func (w *rewriter) copyBody(c *code) {
	instruction := []byte{opMisc, miscMemoryCopy, 0, 0}
	w.short(c, func() {
		beyond(c, 0)
		beyond(c, 1)
		c.op(opI32Or)
	})
	c.get(0)
	c.get(1)
	c.op(opI32LeU, opIf, typeEmpty, opLoop, typeEmpty)
	w.upwards(c, instruction)
	c.op(opEnd, opElse, opLoop, typeEmpty)
	w.chunk(c)
	forward(c, 2, opI32Sub)
	for _, local := range []uint32{0, 1} {
		c.get(local)
		c.get(2)
		c.op(opI32Add)
	}
	c.get(3)
	c.op(instruction...)
	again(c)
	c.op(opEnd, opEnd)
	threeParams(c)
}

// upwards is the inside of a loop that does an instruction of (to, from, n) a
// chunk at a time, from the lowest address up.
func (w *rewriter) upwards(c *code, instruction code) {
	w.chunk(c)
	c.get(0)
	c.get(1)
	c.get(3)
	c.op(instruction...)
	forward(c, 0, opI32Add)
	forward(c, 1, opI32Add)
	forward(c, 2, opI32Sub)
	again(c)
}

// initBody is that of a function of (to, from, n) for one segment. Whether the
// range is in the segment, which may have been dropped, is asked of the
// instruction itself: with a length of 0 it traps where the range ends beyond.
func (w *rewriter) initBody(c *code, segment uint32) {
	instruction := code{opMisc, miscMemoryInit}
	instruction.u32(segment)
	instruction.op(0)
	w.short(c, func() {
		beyond(c, 0)
		c.get(1)
		c.op(opExtendU)
		c.get(2)
		c.op(opExtendU, opI64Add)
		c.i64(1<<32 - 1)
		c.op(opI64GtU, opI32Or)
	})
	c.get(0)
	c.get(1)
	c.get(2)
	c.op(opI32Add)
	c.i32(0)
	c.op(instruction...)
	c.op(opLoop, typeEmpty)
	w.upwards(c, instruction)
	c.op(opEnd)
	threeParams(c)
}
