// Package module reads and writes WebAssembly binaries. It is the first thing
// that untrusted bytes meet, so that a hostile module never reaches an engine:
// every length is checked against the bytes that are there, and a declared
// count never leads to an allocation before that many elements could be there.
package module

import (
	"fmt"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
)

// Module is a module that Read accepted. It holds views of the bytes that
// Read was given, is read-only and safe for concurrent use.
type Module struct {
	bytes             []byte
	sections          []Section
	types             []uint32 // offsets of the function types in bytes
	importedFunctions int
}

// Section is one section of a module, in file order.
type Section struct {
	ID     byte   // 0 is a custom section
	Name   string // of a custom section
	Data   []byte // a view of the content; after the name in a custom section
	Offset int    // of the id byte, from the start of the file
	End    int    // of the first byte after the section
}

// The section ids of the core specification.
const (
	sectionCustom byte = iota
	sectionType
	sectionImport
	sectionFunction
	sectionTable
	sectionMemory
	sectionGlobal
	sectionExport
	sectionStart
	sectionElement
	sectionCode
	sectionData
	sectionDataCount
)

var sectionNames = [...]string{
	"custom", "type", "import", "function", "table", "memory", "global",
	"export", "start", "element", "code", "data", "data count",
}

// sectionRank is the place of a known section: the data count comes before
// the code, although its id is higher.
var sectionRank = [...]int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 10}

// Read checks a module's bytes and returns views of its sections. The bytes
// must not change while the Module is in use. It parses the type and import
// sections fully; of the other sections it checks bounds, order and declared
// counts, not the code in them: Lint does.
//
// Its error is a *carrel.Error with code invalid_module for bytes that are no
// well-formed core module, limit_exceeded with the limit's name, or
// unknown_import naming the imports that a host does not offer: the first 50,
// and how many more there are. Messages hold no control characters, whatever
// the bytes are.
func Read(b []byte, limits Limits) (*Module, error) {
	if len(b) > limits.Bytes {
		return nil, overLimit("module.bytes", "the module is %d bytes, at most %d are allowed; "+
			"strip debug information or split the plugin", len(b), limits.Bytes)
	}
	if err := checkHeader(b); err != nil {
		return nil, err
	}
	r := &reader{all: b, pos: headerSize, end: len(b), where: "module"}
	s := &scan{limits: limits}
	for r.pos < r.end {
		if err := s.section(r); err != nil {
			return nil, err
		}
	}
	if err := s.refused.err(); err != nil {
		return nil, err
	}
	return &Module{bytes: b, sections: s.sections, types: s.types, importedFunctions: s.importedFunctions}, nil
}

// Custom returns the content of the first custom section of that name, as a
// view of the bytes that were read.
func (m *Module) Custom(name string) ([]byte, bool) {
	for i := range m.sections {
		if s := &m.sections[i]; s.ID == sectionCustom && s.Name == name {
			return s.Data, true
		}
	}
	return nil, false
}

// HasCode reports whether the module has any section that is not a custom
// one: whether there is something an engine would have to look at.
func (m *Module) HasCode() bool {
	for i := range m.sections {
		if m.sections[i].ID != sectionCustom {
			return true
		}
	}
	return false
}

// MemoryPages returns how many pages of 64 KiB the module's memory begins
// with, 0 without one. It is meant for a module that passed Lint.
func (m *Module) MemoryPages() int {
	for i := range m.sections {
		s := &m.sections[i]
		if s.ID != sectionMemory {
			continue
		}
		r := &reader{all: m.bytes[:s.End], pos: s.End - len(s.Data), end: s.End}
		n, err := r.u32("count")
		if err != nil || n == 0 {
			return 0
		}
		if _, err := r.byte("limits"); err != nil {
			return 0
		}
		least, err := r.u32("minimum")
		if err != nil {
			return 0
		}
		return int(least)
	}
	return 0
}

// CustomBytes returns how many bytes custom sections take: what Rewrite
// leaves out.
func (m *Module) CustomBytes() int {
	n := 0
	for i := range m.sections {
		if s := &m.sections[i]; s.ID == sectionCustom {
			n += s.End - s.Offset
		}
	}
	return n
}

// Sections returns the sections in file order. The slice is the caller's; the
// contents are views of the bytes that were read.
func (m *Module) Sections() []Section {
	return append([]Section(nil), m.sections...)
}

// scan is the state of one Read.
type scan struct {
	limits   Limits
	sections []Section
	rank     int // of the last known section
	customs  int
	types    []uint32 // offsets of the function types in the file
	// importedFunctions is how many function indices imports take.
	importedFunctions int
	refused           refusedImports
}

func (s *scan) section(r *reader) error {
	start := r.pos
	id, err := r.byte("section id")
	if err != nil {
		return err
	}
	if int(id) >= len(sectionNames) {
		return malformed(start, "module", "section id %d is not one of core WebAssembly 2.0; "+
			"turn off newer proposals (exceptions, tags) in the compiler", id)
	}
	size, err := r.u32("section size")
	if err != nil {
		return err
	}
	if int64(size) > int64(r.end-r.pos) {
		return malformed(start, "module", "the %s section says it is %d bytes long, but only %d follow; "+
			"the file is cut off or damaged", sectionNames[id], size, r.end-r.pos)
	}
	body := r.take(int(size), sectionNames[id]+" section")
	sec := Section{ID: id, Offset: start, End: r.pos, Data: body.all[body.pos:body.end]}
	if id == sectionCustom {
		err = s.custom(body, &sec)
	} else {
		err = s.known(id, start, body)
	}
	if err != nil {
		return err
	}
	s.sections = append(s.sections, sec)
	return nil
}

func (s *scan) custom(r *reader, sec *Section) error {
	if s.customs++; s.customs > s.limits.CustomSections {
		return overLimit("module.customSections", "the module has more than %d custom sections; strip it",
			s.limits.CustomSections)
	}
	name, err := r.name("section name")
	if err != nil {
		return err
	}
	sec.Name, sec.Data = name, r.all[r.pos:r.end]
	switch name {
	case abi.ManifestSection, abi.SourceSection:
		for i := range s.sections {
			if s.sections[i].ID == sectionCustom && s.sections[i].Name == name {
				return malformed(sec.Offset, "module", "there is a second section %q; keep one", name)
			}
		}
	case "name":
		return checkNames(r)
	}
	return nil
}

func (s *scan) known(id byte, start int, r *reader) error {
	switch rank := sectionRank[id]; {
	case rank == s.rank:
		return malformed(start, "module", "there is a second %s section", sectionNames[id])
	case rank < s.rank:
		return malformed(start, "module", "the %s section comes too late: sections have a fixed order", sectionNames[id])
	default:
		s.rank = rank
	}
	switch id {
	case sectionType:
		return s.readTypes(r)
	case sectionImport:
		return s.readImports(r)
	case sectionStart, sectionDataCount:
		if _, err := r.u32("index"); err != nil {
			return err
		}
		return r.done()
	default:
		return s.count(id, r)
	}
}

// count checks the declared count of a section whose elements are not read
// here: it must be within its limit, and that many elements must fit.
func (s *scan) count(id byte, r *reader) error {
	l, least := vectorLimit{}, 0
	switch id {
	case sectionFunction:
		l, least = vectorLimit{"module.functions", s.limits.Functions}, 1
	case sectionTable:
		l, least = vectorLimit{"module.tables", s.limits.Tables}, 3
	case sectionMemory:
		l, least = vectorLimit{"module.memories", s.limits.Memories}, 2
	case sectionGlobal:
		l, least = vectorLimit{"module.globals", s.limits.Globals}, 3
	case sectionExport:
		l, least = vectorLimit{"module.exports", s.limits.Exports}, 3
	case sectionElement:
		l, least = vectorLimit{"module.elements", s.limits.Elements}, 2
	case sectionCode:
		l, least = vectorLimit{"module.functions", s.limits.Functions}, 3
	case sectionData:
		l, least = vectorLimit{"module.dataSegments", s.limits.DataSegments}, 2
	}
	n, err := r.vector(l, least)
	if err == nil && n == 0 {
		return r.done()
	}
	return err
}

func malformed(offset int, where, format string, args ...any) error {
	return carrel.Fail("module.Read", abi.InvalidModule,
		fmt.Sprintf("byte %d (%s): ", offset, where)+fmt.Sprintf(format, args...))
}

func overLimit(name, format string, args ...any) error {
	return carrel.FailLimit("module.Read", abi.LimitExceeded, name,
		fmt.Sprintf(format, args...)+" (limit "+name+")")
}
