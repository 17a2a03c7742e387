package module

import (
	"fmt"
	"strings"

	"github.com/carrelhost/carrel/abi"
)

// Lint checks what Read left unread: every section that an engine decodes,
// and each instruction with its immediates, so that no engine meets a number
// that is not backed by bytes or a function that takes minutes to compile. It
// does not check types: engines do, and may still refuse a module that Lint
// accepts. It allocates nothing in proportion to the module and is safe for
// concurrent use. The limits are those of Read, which held the counts of
// sections against them.
//
// Its error is invalid_module for code that is malformed or uses proposals
// that this host refuses, or limit_exceeded with the limit's name; both name
// the byte and the function.
func Lint(m *Module, limits Limits) error {
	l := &linter{module: m, limits: limits}
	for i := range m.sections {
		if err := l.section(&m.sections[i]); err != nil {
			return err
		}
	}
	if l.functions != l.bodies {
		return malformed(len(m.bytes), "module", "%d functions are declared, but %d have code", l.functions, l.bodies)
	}
	if l.counted && l.dataCount != l.segments {
		return malformed(len(m.bytes), "module", "the data count section says %d segments, but there are %d", l.dataCount, l.segments)
	}
	return nil
}

// linter is the state of one Lint.
type linter struct {
	module *Module
	limits Limits

	functions, bodies   int // declared, and with code
	functionTypes       *reader
	counted             bool
	dataCount, segments int
	elementInits        int

	// Sums over all functions, each a measure of what compiling costs.
	locals, brTable, localsBlocks, blocksSquared, loopsSquared, jumpsSquared, indirect, brTargetsSquared, weight int

	opened []bool // of each block around an instruction, whether it is a loop; reused by all functions
}

func (l *linter) section(s *Section) error {
	if s.ID == sectionCustom {
		return nil
	}
	r := &reader{all: l.module.bytes[:s.End], pos: s.End - len(s.Data), end: s.End, where: sectionNames[s.ID] + " section"}
	switch s.ID {
	case sectionFunction:
		return l.functionSection(r)
	case sectionTable:
		return l.tables(r)
	case sectionMemory:
		return l.memories(r)
	case sectionGlobal:
		return l.globals(r)
	case sectionExport:
		return l.exports(r)
	case sectionElement:
		return l.elements(r)
	case sectionDataCount:
		l.counted = true
		n, err := r.u32("count")
		l.dataCount = int(n)
		if err == nil && l.dataCount > l.limits.DataSegments {
			return overLimit("module.dataSegments", "the data count section declares %d segments, at most %d are allowed", n, l.limits.DataSegments)
		}
		return err
	case sectionCode:
		return l.code(r)
	case sectionData:
		return l.data(r)
	default: // types, imports and the start index were read by Read
		return nil
	}
}

func (l *linter) functionSection(r *reader) error {
	n, err := r.vector(vectorLimit{}, 1)
	if err != nil {
		return err
	}
	l.functions = n
	copied := *r
	l.functionTypes = &copied
	for range n {
		start := r.pos
		index, err := r.u32("type index")
		if err != nil {
			return err
		}
		if int64(index) >= int64(len(l.module.types)) {
			return malformed(start, r.where, "type index %d, but there are %d types", index, len(l.module.types))
		}
	}
	return r.done()
}

func (l *linter) tables(r *reader) error {
	n, err := r.vector(vectorLimit{}, 3)
	if err != nil {
		return err
	}
	for range n {
		if err := refType(r); err != nil {
			return err
		}
		start := r.pos
		least, err := l.bounds(r, "table")
		if err != nil {
			return err
		}
		if int64(least) > int64(l.limits.TableMin) {
			return overLimit("module.tableMin", "byte %d (%s): a table begins with %d elements, at most %d are allowed",
				start, r.where, least, l.limits.TableMin)
		}
	}
	return r.done()
}

func (l *linter) memories(r *reader) error {
	n, err := r.vector(vectorLimit{}, 2)
	if err != nil {
		return err
	}
	for range n {
		start := r.pos
		least, err := l.bounds(r, "memory")
		if err != nil {
			return err
		}
		if int64(least) > int64(l.limits.MemoryMin) {
			return overLimit("module.memoryMin", "byte %d (%s): the memory begins with %d pages, at most %d are allowed",
				start, r.where, least, l.limits.MemoryMin)
		}
	}
	return r.done()
}

// bounds reads the limits of a table or memory and returns the minimum.
func (l *linter) bounds(r *reader, what string) (least uint32, err error) {
	start := r.pos
	flags, err := r.byte("limits")
	if err != nil {
		return 0, err
	}
	switch {
	case flags > 7:
		return 0, malformed(start, r.where, "limits flag %d is unknown", flags)
	case flags&4 != 0:
		return 0, malformed(start, r.where, "a 64-bit %s; build for wasm32", what)
	case flags&2 != 0:
		return 0, malformed(start, r.where, "a shared %s; threads are not supported, turn them off in the compiler", what)
	}
	if least, err = r.u32("minimum"); err != nil || flags == 0 {
		return least, err
	}
	_, err = r.u32("maximum")
	return least, err
}

func refType(r *reader) error {
	start := r.pos
	t, err := r.byte("reference type")
	if err == nil && t != 0x70 && t != 0x6f {
		return malformed(start, r.where, "0x%02x is not a reference type of core WebAssembly 2.0", t)
	}
	return err
}

func valType(r *reader) error {
	start := r.pos
	t, err := r.byte("value type")
	if err == nil && valTypeName(t) == "" {
		return malformed(start, r.where, "0x%02x is not a value type of core WebAssembly 2.0", t)
	}
	return err
}

func (l *linter) globals(r *reader) error {
	n, err := r.vector(vectorLimit{}, 3)
	if err != nil {
		return err
	}
	for range n {
		if err := valType(r); err != nil {
			return err
		}
		start := r.pos
		mutable, err := r.byte("mutability")
		if err != nil {
			return err
		}
		if mutable > 1 {
			return malformed(start, r.where, "mutability %d is neither 0 nor 1", mutable)
		}
		if err := constant(r); err != nil {
			return err
		}
	}
	return r.done()
}

func (l *linter) exports(r *reader) error {
	n, err := r.vector(vectorLimit{}, 3)
	if err != nil {
		return err
	}
	for range n {
		start := r.pos
		name, err := r.name("export's name")
		if err != nil {
			return err
		}
		if strings.HasPrefix(name, abi.ReservedExportPrefix) {
			return malformed(start, r.where, "the export %s: names that begin with %s are the host's, choose another",
				Quote(name), abi.ReservedExportPrefix)
		}
		start = r.pos
		kind, err := r.byte("export kind")
		if err != nil {
			return err
		}
		if kind > kindGlobal {
			return malformed(start, r.where, "export kind %d is not one of core WebAssembly 2.0", kind)
		}
		if _, err := r.u32("index"); err != nil {
			return err
		}
	}
	return r.done()
}

// The flags of an element segment.
const (
	elementPassive     = 1 // or declarative, with elementIndexed
	elementIndexed     = 2
	elementExpressions = 4
)

func (l *linter) elements(r *reader) error {
	n, err := r.vector(vectorLimit{}, 2)
	if err != nil {
		return err
	}
	for range n {
		if err := l.element(r); err != nil {
			return err
		}
	}
	return r.done()
}

func (l *linter) element(r *reader) error {
	start := r.pos
	flags, err := r.u32("segment's kind")
	if err != nil {
		return err
	}
	if flags > 7 {
		return malformed(start, r.where, "segment kind %d is unknown", flags)
	}
	if flags&elementPassive == 0 {
		if flags&elementIndexed != 0 {
			if _, err := r.u32("table index"); err != nil {
				return err
			}
		}
		if err := constant(r); err != nil {
			return err
		}
	}
	if flags&(elementPassive|elementIndexed) != 0 {
		if flags&elementExpressions != 0 {
			err = refType(r)
		} else {
			err = zero(r, "element kind")
		}
		if err != nil {
			return err
		}
	}
	start = r.pos
	inits, err := r.vector(vectorLimit{"module.elementInits", l.limits.ElementInits}, 1)
	if err != nil {
		return err
	}
	if l.elementInits += inits; l.elementInits > l.limits.ElementInits {
		return overLimit("module.elementInits", "byte %d (%s): the segments have more than %d elements", start, r.where, l.limits.ElementInits)
	}
	for range inits {
		if flags&elementExpressions != 0 {
			err = constant(r)
		} else {
			_, err = r.u32("function index")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (l *linter) data(r *reader) error {
	n, err := r.vector(vectorLimit{}, 2)
	if err != nil {
		return err
	}
	l.segments = n
	for range n {
		start := r.pos
		kind, err := r.u32("segment's kind")
		if err != nil {
			return err
		}
		switch kind {
		case 0:
			err = constant(r)
		case 1:
		case 2:
			if err = zero(r, "memory index"); err == nil {
				err = constant(r)
			}
		default:
			err = malformed(start, r.where, "segment kind %d is unknown", kind)
		}
		if err != nil {
			return err
		}
		if err := r.skipName(); err != nil { // the same shape: a length and bytes of any kind
			return err
		}
	}
	return r.done()
}

func zero(r *reader, what string) error {
	start := r.pos
	b, err := r.byte(what)
	if err == nil && b != 0 {
		return malformed(start, r.where, "the %s must be 0, it is %d", what, b)
	}
	return err
}

// constant reads a constant expression: one instruction and the end.
func constant(r *reader) error {
	start := r.pos
	op, err := r.byte("constant expression")
	if err != nil {
		return err
	}
	switch op {
	case 0x41:
		err = r.constant(32)
	case 0x42:
		err = r.constant(64)
	case 0x43:
		err = r.skip(4, "constant")
	case 0x44:
		err = r.skip(8, "constant")
	case 0x23, 0xd2:
		_, err = r.u32("index")
	case 0xd0:
		err = refType(r)
	case 0xfd:
		if sub, e := r.byte("vector instruction"); e != nil || sub != 0x0c {
			return malformed(start, r.where, "only v128.const is a constant vector instruction")
		}
		err = r.skip(16, "constant")
	default:
		return malformed(start, r.where, "the instruction 0x%02x is not constant", op)
	}
	if err != nil {
		return err
	}
	start = r.pos
	end, err := r.byte("end of the constant expression")
	if err == nil && end != 0x0b {
		return malformed(start, r.where, "a constant expression is one instruction; turn off extended constants in the compiler")
	}
	return err
}

// within prefixes a message's place with the function.
func within(index int) string { return fmt.Sprintf("code section, function %d", index) }
