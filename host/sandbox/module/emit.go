package module

import "encoding/binary"

// code is instructions in the making.
type code []byte

func (c *code) op(b ...byte) { *c = append(*c, b...) }

func (c *code) u32(n uint32) { *c = binary.AppendUvarint(*c, uint64(n)) }

func (c *code) s64(n int64) {
	for {
		b := byte(n & 0x7f)
		n >>= 7
		if n == 0 && b&0x40 == 0 || n == -1 && b&0x40 != 0 {
			c.op(b)
			return
		}
		c.op(b | 0x80)
	}
}

// index writes an instruction with one index.
func (c *code) index(op byte, n uint32) {
	c.op(op)
	c.u32(n)
}

func (c *code) i32(n int64) {
	c.op(opI32Const)
	c.s64(n)
}

func (c *code) i64(n int64) {
	c.op(opI64Const)
	c.s64(n)
}

func (c *code) get(local uint32) { c.index(opLocalGet, local) }
func (c *code) set(local uint32) { c.index(opLocalSet, local) }

// bytes writes bytes behind their number, as names and bodies are.
func (c *code) bytes(b []byte) {
	c.u32(uint32(len(b)))
	*c = append(*c, b...)
}

// section appends a section to a module.
func (c *code) section(id byte, content []byte) {
	c.op(id)
	c.bytes(content)
}

// The instructions that the rewriter writes or looks for.
const (
	opUnreachable  = 0x00
	opBlock        = 0x02
	opLoop         = 0x03
	opIf           = 0x04
	opElse         = 0x05
	opEnd          = 0x0b
	opBr           = 0x0c
	opBrIf         = 0x0d
	opBrTable      = 0x0e
	opReturn       = 0x0f
	opCall         = 0x10
	opCallIndirect = 0x11
	opDrop         = 0x1a
	opSelect       = 0x1b
	opSelectTyped  = 0x1c
	opLocalGet     = 0x20
	opLocalSet     = 0x21
	opLocalTee     = 0x22
	opGlobalGet    = 0x23
	opGlobalSet    = 0x24
	opTableGet     = 0x25
	opTableSet     = 0x26
	opMemorySize   = 0x3f
	opMemoryGrow   = 0x40
	opI32Const     = 0x41
	opI64Const     = 0x42
	opI64LtU       = 0x54
	opI64GtU       = 0x56
	opI64GeS       = 0x59
	opI32LeU       = 0x4d
	opI32LtU       = 0x49
	opI32GtU       = 0x4b
	opI32Add       = 0x6a
	opI32Sub       = 0x6b
	opI32Or        = 0x72
	opI64Add       = 0x7c
	opI64Sub       = 0x7d
	opI64Mul       = 0x7e
	opI64Shl       = 0x86
	opI64ShrU      = 0x88
	opExtendU      = 0xad // i64.extend_i32_u
	opRefNull      = 0xd0
	opRefFunc      = 0xd2
	opMisc         = 0xfc
	opVector       = 0xfd

	typeEmpty = 0x40 // a block without params and results
	typeI32   = 0x7f
	typeI64   = 0x7e
	typeV128  = 0x7b
)

// The instructions behind opMisc.
const (
	miscMemoryInit = 8
	miscDataDrop   = 9
	miscMemoryCopy = 10
	miscMemoryFill = 11
	miscTableInit  = 12
	miscElemDrop   = 13
	miscTableCopy  = 14
	miscTableSize  = 16
)
