package module

// instruction reads the immediates of one instruction of core WebAssembly
// 2.0. Reading exactly what an engine reads matters: an instruction hidden in
// another one's immediates would escape every limit.
func (b *body) instruction(op byte, start int) error {
	r := b.r
	switch {
	case op == 0x02, op == 0x03, op == 0x04: // block, loop, if
		return b.open(start, op == 0x03)
	case op == 0x0b: // end
		b.close()
		return nil
	case op == 0x0c, op == 0x0d: // br, br_if
		b.branches++
		b.jumps++
		return b.indices(1, "label")
	case op == 0x25, op == 0x26: // table.get, table.set
		b.indirect++
		return b.indices(1, "index")
	case op == 0x10, // call
		op >= 0x20 && op <= 0x24, // local.*, global.*
		op == 0xd2:               // ref.func
		return b.indices(1, "index")
	case op == 0x0e:
		return b.branchTable()
	case op == 0x11: // call_indirect
		b.indirect++
		return b.indices(2, "index")
	case op == 0x12, op == 0x13:
		return b.unknown(start, "tail calls are not supported")
	case op == 0x14, op == 0x15, op == 0xd3, op == 0xd4, op == 0xd5, op == 0xd6, op == 0xfb:
		return b.unknown(start, "typed references and garbage collection are not supported")
	case op >= 0x06 && op <= 0x0a, op == 0x18, op == 0x19, op == 0x1f:
		return b.unknown(start, "exceptions are not supported")
	case op == 0x1c: // select with types
		return b.selectTypes(start)
	case op >= 0x28 && op <= 0x3e: // loads and stores
		return b.memory()
	case op == 0x40: // memory.grow
		b.indirect++
		return zero(r, "memory index")
	case op == 0x3f: // memory.size
		return zero(r, "memory index")
	case op == 0x41:
		return r.constant(32)
	case op == 0x42:
		return r.constant(64)
	case op == 0x43:
		return r.skip(4, "constant")
	case op == 0x44:
		return r.skip(8, "constant")
	case op == 0xd0: // ref.null
		return refType(r)
	case op == 0xfc:
		return b.miscellaneous(start)
	case op == 0xfd:
		return b.vector(start)
	case op == 0xfe:
		return b.unknown(start, "atomic instructions are not supported")
	case op <= 0x01, op == 0x05, op == 0x0f, // unreachable, nop, else, return
		op == 0x1a, op == 0x1b, // drop, select
		op >= 0x45 && op <= 0xc4, // numbers
		op == 0xd1:               // ref.is_null
		return nil
	default:
		return malformed(start, r.where, "the instruction 0x%02x is not one of core WebAssembly 2.0", op)
	}
}

func (b *body) selectTypes(start int) error {
	n, err := b.r.u32("number of types")
	if err != nil {
		return err
	}
	if n != 1 {
		return malformed(start, b.r.where, "select has %d types, it must have 1", n)
	}
	return valType(b.r)
}

// prefixed reads the number of an instruction behind a prefix, in its shortest
// form only: engines differ in how they read longer ones.
func (b *body) prefixed(start int) (uint32, error) {
	at := b.r.pos
	sub, err := b.r.u32("instruction")
	if err != nil {
		return 0, err
	}
	if long := b.r.pos - at; long > 2 || long == 2 && sub < 0x80 {
		return 0, malformed(start, b.r.where, "the instruction's number is padded")
	}
	return sub, nil
}

// miscellaneous are the instructions behind 0xfc.
func (b *body) miscellaneous(start int) error {
	sub, err := b.prefixed(start)
	if err != nil {
		return err
	}
	switch {
	case sub <= 7: // saturating truncations
		return nil
	case sub == 8: // memory.init
		b.indirect++
		if err := b.indices(1, "segment"); err != nil {
			return err
		}
		return zero(b.r, "memory index")
	case sub == 9, sub == 13, sub == 16: // data.drop, elem.drop, table.size
		return b.indices(1, "index")
	case sub == 10: // memory.copy
		b.indirect++
		if err := zero(b.r, "memory index"); err != nil {
			return err
		}
		return zero(b.r, "memory index")
	case sub == 11: // memory.fill
		b.indirect++
		return zero(b.r, "memory index")
	case sub == 12, sub == 14: // table.init, table.copy
		b.indirect++
		return b.indices(2, "index")
	case sub == 15, sub == 17:
		return malformed(start, b.r.where, "table.grow and table.fill are not allowed: tables have a fixed size here")
	default:
		return malformed(start, b.r.where, "the instruction 0xfc %d is not one of core WebAssembly 2.0", sub)
	}
}

// vector are the instructions behind 0xfd.
func (b *body) vector(start int) error {
	sub, err := b.prefixed(start)
	if err != nil {
		return err
	}
	switch {
	case sub <= 11, sub == 92, sub == 93: // loads, splats, store
		return b.memory()
	case sub == 12, sub == 13: // v128.const, i8x16.shuffle
		return b.r.skip(16, "immediate")
	case sub >= 21 && sub <= 34: // lanes
		return b.r.skip(1, "lane")
	case sub >= 84 && sub <= 91: // loads and stores of a lane
		if err := b.memory(); err != nil {
			return err
		}
		return b.r.skip(1, "lane")
	case sub > 255:
		return b.unknown(start, "relaxed vector instructions are not supported")
	case vectorHole(sub):
		return malformed(start, b.r.where, "the instruction 0xfd %d is not one of core WebAssembly 2.0", sub)
	default:
		return nil
	}
}

// vectorHole reports numbers below 256 that no instruction has.
func vectorHole(sub uint32) bool {
	switch sub {
	case 0x9a, 0xa2, 0xa5, 0xa6, 0xaf, 0xb0, 0xb2, 0xb3, 0xb4, 0xbb, 0xc2, 0xc5, 0xc6,
		0xcf, 0xd0, 0xd2, 0xd3, 0xd4, 0xe2, 0xee:
		return true
	default:
		return false
	}
}
