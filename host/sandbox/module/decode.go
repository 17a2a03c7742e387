package module

// instr is one instruction of a body. a and b are its indices where it has
// some; sub is the number behind a prefix.
type instr struct {
	start, end int // in the module's bytes
	op         byte
	sub        uint32
	a, b       uint32
	block      blockType
	labels     []uint32 // of a branch table, the default last; valid until the next instruction
}

// blockType is what a block takes and gives.
type blockType struct{ params, results int }

// decoder reads the instructions of one body that Lint accepted.
type decoder struct {
	body   *body // skips what the rewriter does not look into
	types  []signature
	labels []uint32
}

// next reads one instruction. The caller knows how many follow.
func (d *decoder) next() (i instr, err error) {
	r := d.body.r
	i.start = r.pos
	if i.op, err = r.byte("instruction"); err != nil {
		return i, err
	}
	switch i.op {
	case opBlock, opLoop, opIf:
		i.block, err = d.blockType()
	case opEnd: // the decoder's user counts blocks
	case opBr, opBrIf, opCall, opLocalGet, opLocalSet, opLocalTee, opGlobalGet, opGlobalSet, opRefFunc:
		i.a, err = r.u32("index")
	case opCallIndirect:
		if i.a, err = r.u32("type index"); err == nil {
			i.b, err = r.u32("table index")
		}
	case opBrTable:
		err = d.branchTable(&i)
	case opMisc, opVector:
		at := r.pos
		if i.sub, err = r.u32("instruction"); err != nil {
			return i, err
		}
		if i.op == opMisc && (i.sub == miscMemoryInit || i.sub == miscDataDrop) {
			i.a, err = r.u32("segment")
			if err != nil {
				return i, err
			}
		}
		r.pos = at
		err = d.body.instruction(i.op, i.start)
	default:
		err = d.body.instruction(i.op, i.start)
	}
	i.end = r.pos
	return i, err
}

func (d *decoder) blockType() (blockType, error) {
	r := d.body.r
	c, err := r.byte("block type")
	switch {
	case err != nil:
		return blockType{}, err
	case c == typeEmpty:
		return blockType{}, nil
	case valTypeName(c) != "":
		return blockType{results: 1}, nil
	}
	r.pos--
	index, err := r.signed("block type", 33)
	if err != nil {
		return blockType{}, err
	}
	t := d.types[index]
	return blockType{len(t.params), len(t.results)}, nil
}

func (d *decoder) branchTable(i *instr) error {
	n, err := d.body.r.vector(vectorLimit{}, 1)
	if err != nil {
		return err
	}
	d.labels = d.labels[:0]
	for range n + 1 {
		label, err := d.body.r.u32("branch target")
		if err != nil {
			return err
		}
		d.labels = append(d.labels, label)
	}
	i.labels = d.labels
	return nil
}

// pops and pushes return how an instruction without indices changes the
// height of the operand stack. Calls, blocks and branches are their reader's.
func (i *instr) pops() int {
	switch op := i.op; {
	case op == opMisc:
		switch i.sub {
		case miscMemoryInit, miscMemoryCopy, miscMemoryFill, miscTableInit, miscTableCopy:
			return 3
		case miscDataDrop, miscElemDrop, miscTableSize:
			return 0
		default:
			return 1
		}
	case op == opVector:
		return i.vectorPops()
	case op == opSelect, op == opSelectTyped:
		return 3
	case op == opTableSet, op >= 0x36 && op <= 0x3e, // stores
		op >= 0x46 && op <= 0x4f, op >= 0x51 && op <= 0x66, // comparisons
		op >= 0x6a && op <= 0x78, op >= 0x7c && op <= 0x8a, // integers
		op >= 0x92 && op <= 0x98, op >= 0xa0 && op <= 0xa6: // floats
		return 2
	case op == opDrop, op == opLocalSet, op == opLocalTee, op == opGlobalSet, op == opTableGet, op == opIf, op == opBrIf, op == opBrTable,
		op >= 0x28 && op <= 0x35, // loads
		op == opMemoryGrow, op >= 0x45 && op <= 0xc4, op == 0xd1:
		return 1
	default:
		return 0
	}
}

func (i *instr) pushes() int {
	switch op := i.op; {
	case op == opMisc:
		if i.sub <= 7 || i.sub == miscTableSize {
			return 1
		}
		return 0
	case op == opVector:
		if i.sub == 11 || i.sub >= 88 && i.sub <= 91 { // stores
			return 0
		}
		return 1
	case op == opSelect, op == opSelectTyped, op == opLocalGet, op == opLocalTee, op == opGlobalGet, op == opTableGet,
		op >= 0x28 && op <= 0x35, op == opMemorySize, op == opMemoryGrow, op >= opI32Const && op <= 0xc4, op >= opRefNull && op <= opRefFunc:
		return 1
	default:
		return 0
	}
}

// vectorPops errs on the side of 1: what is popped too late counts as a
// value that is still there.
func (i *instr) vectorPops() int {
	switch s := i.sub; {
	case s == 12: // v128.const
		return 0
	case s == 82: // bitselect
		return 3
	case s == 11, s == 13, s == 14, // store, shuffle, swizzle
		s == 23, s == 26, s == 28, s == 30, s == 32, s == 34, // replace_lane
		s >= 35 && s <= 76, // comparisons
		s >= 78 && s <= 81, // logic
		s >= 84 && s <= 91, // lanes of memory
		s == 101, s == 102, s >= 107 && s <= 115, s >= 118 && s <= 123,
		s == 130, s == 133, s == 134, s >= 139 && s <= 159, s >= 171 && s <= 191,
		s >= 203 && s <= 223, s >= 228 && s <= 235, s >= 240 && s <= 247:
		return 2
	default:
		return 1
	}
}
