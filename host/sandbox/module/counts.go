package module

// Counts is what an engine makes for each instance of a module.
type Counts struct {
	Imports       int
	Globals       int // at most
	TableElements int // that the tables begin with
	Elements      int // that element segments hold, at most
}

// Counts returns the counts of a module that passed Lint. What cannot be told
// without an engine is rounded up: a global takes five bytes at least, and an
// element ends with a byte whose highest bit is clear.
func (m *Module) Counts() Counts {
	c := Counts{Imports: m.importedFunctions}
	for i := range m.sections {
		s := &m.sections[i]
		switch s.ID {
		case sectionTable:
			c.TableElements = m.tableElements(s)
		case sectionGlobal:
			c.Globals = len(s.Data) / 5
		case sectionElement:
			for _, b := range s.Data {
				if b < 0x80 {
					c.Elements++
				}
			}
		}
	}
	return c
}

func (m *Module) tableElements(s *Section) int {
	r := &reader{all: m.bytes[:s.End], pos: s.End - len(s.Data), end: s.End}
	sum := 0
	for tables, err := r.u32("count"); err == nil && tables > 0; tables-- {
		if err = refType(r); err != nil {
			break
		}
		size, err := readSize(r)
		if err != nil {
			break
		}
		sum += int(size.least)
	}
	return sum
}
