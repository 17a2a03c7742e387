package wasmtest

// Code is a sequence of instructions. Its methods append one each and return
// the Code, so that a function reads in the order of its execution. The final
// end of a function is written by Module.Bytes.
type Code struct{ bytes []byte }

// Raw appends any bytes.
func (c *Code) Raw(b ...byte) *Code {
	c.bytes = append(c.bytes, b...)
	return c
}

func (c *Code) with(op byte, index uint32) *Code { return c.Raw(op).Raw(U32(index)...) }

// Const pushes an i32.
func (c *Code) Const(v int32) *Code { return c.Raw(0x41).Raw(S64(int64(v))...) }

// Unsigned pushes an i32 that is meant as a pointer or a length.
func (c *Code) Unsigned(v uint32) *Code { return c.Const(int32(v)) }

// Const64 pushes an i64.
func (c *Code) Const64(v int64) *Code { return c.Raw(0x42).Raw(S64(v)...) }

// Get pushes a local or param.
func (c *Code) Get(local uint32) *Code { return c.with(0x20, local) }

// Set pops a local.
func (c *Code) Set(local uint32) *Code { return c.with(0x21, local) }

// GlobalGet pushes a global.
func (c *Code) GlobalGet(global uint32) *Code { return c.with(0x23, global) }

// GlobalSet pops a global.
func (c *Code) GlobalSet(global uint32) *Code { return c.with(0x24, global) }

// Call calls a function.
func (c *Code) Call(index uint32) *Code { return c.with(0x10, index) }

// CallIndirect calls through table 0.
func (c *Code) CallIndirect(typ uint32) *Code { return c.with(0x11, typ).Raw(0) }

// Block begins a block without params and results, as Loop and If do; each
// ends with End.
func (c *Code) Block() *Code { return c.Raw(0x02, 0x40) }

// Loop is a block whose label is its beginning.
func (c *Code) Loop() *Code { return c.Raw(0x03, 0x40) }

// If pops the condition.
func (c *Code) If() *Code { return c.Raw(0x04, 0x40) }

// Else begins the other branch of an If.
func (c *Code) Else() *Code { return c.Raw(0x05) }

// End ends a block.
func (c *Code) End() *Code { return c.Raw(0x0b) }

// Br jumps to the label of an enclosing block; 0 is the innermost.
func (c *Code) Br(label uint32) *Code { return c.with(0x0c, label) }

// BrIf jumps if the i32 that it pops is not 0.
func (c *Code) BrIf(label uint32) *Code { return c.with(0x0d, label) }

// Unreachable traps.
func (c *Code) Unreachable() *Code { return c.Raw(0x00) }

// Drop pops.
func (c *Code) Drop() *Code { return c.Raw(0x1a) }

// Load pushes the i32 at the address that it pops.
func (c *Code) Load() *Code { return c.Raw(0x28, 2, 0) }

// Store pops an i32, then the address where it goes.
func (c *Code) Store() *Code { return c.Raw(0x36, 2, 0) }

// Store64 pops an i64, then the address where it goes.
func (c *Code) Store64() *Code { return c.Raw(0x37, 3, 0) }

// Grow pops a number of pages and pushes the former size, or -1.
func (c *Code) Grow() *Code { return c.Raw(0x40, 0) }

// Add adds two i32.
func (c *Code) Add() *Code { return c.Raw(0x6a) }

// Sub subtracts two i32.
func (c *Code) Sub() *Code { return c.Raw(0x6b) }

// Eqz tests an i32 for 0.
func (c *Code) Eqz() *Code { return c.Raw(0x45) }

// Wrap makes an i32 of an i64.
func (c *Code) Wrap() *Code { return c.Raw(0xa7) }

// High makes an i32 of the upper half of an i64.
func (c *Code) High() *Code { return c.Const64(32).Raw(0x88).Wrap() }
