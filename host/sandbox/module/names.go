package module

// checkNames walks a "name" section: engines decode it, and its declared
// counts are as hostile as any other.
func checkNames(r *reader) error {
	for r.pos < r.end {
		start := r.pos
		id, err := r.byte("name subsection id")
		if err != nil {
			return err
		}
		size, err := r.u32("name subsection size")
		if err != nil {
			return err
		}
		if int64(size) > int64(r.left()) {
			return malformed(start, r.where, "name subsection %d says it is %d bytes long, but only %d follow",
				id, size, r.left())
		}
		if err := checkNameMap(id, r.take(int(size), "name section")); err != nil {
			return err
		}
	}
	return nil
}

func checkNameMap(id byte, r *reader) error {
	switch id {
	case 0: // the module's own name
		_, err := r.name("module name")
		return err
	case 2, 3, 10: // locals, labels, fields: a map of maps
		n, err := r.vector(vectorLimit{}, 2)
		if err != nil {
			return err
		}
		for range n {
			if _, err := r.u32("index"); err != nil {
				return err
			}
			if err := checkAssociations(r); err != nil {
				return err
			}
		}
	case 1, 4, 5, 6, 7, 8, 9, 11: // functions, types, tables, memories, globals, elements, data, tags
		if err := checkAssociations(r); err != nil {
			return err
		}
	default: // of a later specification: engines skip what they do not know
		return nil
	}
	return r.done()
}

func checkAssociations(r *reader) error {
	n, err := r.vector(vectorLimit{}, 2)
	if err != nil {
		return err
	}
	for range n {
		if _, err := r.u32("index"); err != nil {
			return err
		}
		if err := r.skipName(); err != nil {
			return err
		}
	}
	return nil
}

// skipName moves behind a name. Its bytes may be anything: engines only show
// them, and compilers write mangled names that are no UTF-8.
func (r *reader) skipName() error {
	start := r.pos
	n, err := r.u32("name length")
	if err != nil {
		return err
	}
	if int64(n) > int64(r.left()) {
		return malformed(start, r.where, "a name says it is %d bytes long, but only %d follow", n, r.left())
	}
	r.pos += int(n)
	return nil
}

// mostNameBytes bounds one function's name.
const mostNameBytes = 200

// functionNames calls f for each entry of the name section's map of
// functions, until it returns false.
func (m *Module) functionNames(f func(index uint32, name string) bool) {
	for i := range m.sections {
		s := &m.sections[i]
		if s.ID != sectionCustom || s.Name != "name" {
			continue
		}
		r := &reader{all: m.bytes[:s.End], pos: s.End - len(s.Data), end: s.End, where: "name section"}
		for r.pos < r.end {
			id, err := r.byte("name subsection id")
			if err != nil {
				return
			}
			n, err := r.u32("name subsection size")
			if err != nil || int64(n) > int64(r.left()) {
				return
			}
			if sub := r.take(int(n), r.where); id == 1 && !associations(sub, f) {
				return
			}
		}
		return
	}
}

func associations(r *reader, f func(index uint32, name string) bool) bool {
	n, err := r.vector(vectorLimit{}, 2)
	if err != nil {
		return false
	}
	for range n {
		index, err := r.u32("index")
		if err != nil {
			return false
		}
		size, err := r.u32("name length")
		if err != nil || int64(size) > int64(r.left()) {
			return false
		}
		name := string(r.all[r.pos : r.pos+int(size)])
		r.pos += int(size)
		if !f(index, name) {
			return false
		}
	}
	return true
}
