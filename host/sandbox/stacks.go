package sandbox

import (
	"reflect"

	"github.com/tetratelabs/wazero/api"
)

const (
	// functionBytes is what the engine keeps for a function that was called,
	// besides its stack.
	functionBytes = 2 << 10
	// deepBytes is up to where a stack is kept for the next call. One begins
	// with 10 KiB, and doubles as calls go deeper.
	deepBytes = 256 << 10
)

// function is a function of an instance, with the stack that the engine made
// for it.
type function struct {
	api.Function
	field int   // of the stack in what the engine has; -1 if it is not found
	bytes int64 // of the stack, as of its last call
}

// newFunction finds the stack. The engine does not tell of it, so its own field
// is read.
func newFunction(f api.Function) *function {
	n := &function{Function: f, field: -1}
	if v := reflect.ValueOf(f); v.Kind() == reflect.Pointer && v.Elem().Kind() == reflect.Struct {
		if s, ok := v.Elem().Type().FieldByName("stack"); ok && len(s.Index) == 1 && s.Type.Kind() == reflect.Slice {
			n.field = s.Index[0]
		}
	}
	return n
}

// stack returns how many bytes the stack has now; what nobody knows counts as
// too deep.
func (f *function) stack() int64 {
	if f.field < 0 {
		return deepBytes + 1
	}
	s := reflect.ValueOf(f.Function).Elem().Field(f.field)
	return int64(s.Cap()) * int64(s.Type().Elem().Size())
}

// called counts the stack of a function after its call, and lets go of one that
// is deep: the guest may need it once in a thousand calls, and has it in each
// function of each instance.
func (in *instance) called(export string, f *function) {
	now := f.stack()
	if now > deepBytes {
		delete(in.functions, export)
		now = 0
	}
	in.stacks += now - f.bytes
	f.bytes = now
}

// dropStacks lets go of all functions, and of their stacks.
func (in *instance) dropStacks() {
	clear(in.functions)
	in.stacks = 0
}
