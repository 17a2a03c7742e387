package module

import "fmt"

// dataSegment is a segment of the data section.
type dataSegment struct {
	active bool
	offset uint32
	bytes  []byte
}

// read takes in everything but the code.
func (w *rewriter) read() (err error) {
	if w.types, err = w.module.readSignatures(); err != nil {
		return err
	}
	w.ownTypes = len(w.types)
	w.indexTypes()
	for _, part := range []struct {
		id  byte
		one func(*reader) error
	}{
		{sectionImport, w.readImport},
		{sectionFunction, w.readFunction},
		{sectionTable, w.readTable},
		{sectionMemory, w.readMemory},
		{sectionGlobal, w.readGlobal},
		{sectionData, w.readData},
	} {
		if err := w.each(part.id, part.one); err != nil {
			return err
		}
	}
	w.counted = w.section(sectionDataCount) != nil
	w.fuel, w.depth = uint32(len(w.globals)), uint32(len(w.globals))+1
	w.yield, w.excess = uint32(w.module.importedFunctions), uint32(w.module.importedFunctions)+1
	return w.readStart()
}

func (w *rewriter) readImport(r *reader) error {
	for range 2 {
		if err := r.skipName(); err != nil {
			return err
		}
	}
	if err := zero(r, "import kind"); err != nil { // functions only: Read refuses others
		return err
	}
	return w.readFunction(r)
}

func (w *rewriter) readFunction(r *reader) error {
	index, err := r.u32("type index")
	w.functions = append(w.functions, index)
	return err
}

// size is the limits of a table or memory.
type size struct {
	least, most uint32
	bounded     bool
}

func readSize(r *reader) (s size, err error) {
	flags, err := r.byte("limits")
	if err != nil {
		return s, err
	}
	if s.least, err = r.u32("minimum"); err != nil || flags&1 == 0 {
		return s, err
	}
	s.bounded = true
	s.most, err = r.u32("maximum")
	return s, err
}

// clamp returns a size of which the most is at most that; 0 is no limit. A
// most below the least, or above the specification's, stays for an engine to
// refuse.
func (s size) clamp(most, legal uint32) size {
	if most == 0 || s.bounded && (s.most < s.least || s.most > legal) {
		return s
	}
	if !s.bounded || s.most > most {
		s.bounded, s.most = true, max(most, s.least)
	}
	return s
}

func (w *rewriter) readTable(r *reader) error {
	start := r.pos
	if err := refType(r); err != nil {
		return err
	}
	s, err := readSize(r)
	if err != nil {
		return err
	}
	if w.options.TableMax > 0 && s.least > w.options.TableMax {
		return overLimit("module.tableMin", "byte %d (%s): a table begins with %d elements, at most %d are allowed",
			start, r.where, s.least, w.options.TableMax)
	}
	w.tables = append(w.tables, uint64(s.least)) // tables cannot grow
	return nil
}

// tableMost returns the size of the largest table.
func (w *rewriter) tableMost() uint64 {
	most := uint64(0)
	for _, n := range w.tables {
		most = max(most, n)
	}
	return most
}

const mostPages = 1 << 16

func (w *rewriter) readMemory(r *reader) error {
	start := r.pos
	s, err := readSize(r)
	if err != nil {
		return err
	}
	if w.options.MaxPages > 0 && s.least > w.options.MaxPages {
		return overLimit("module.memoryMin", "byte %d (%s): the memory begins with %d pages, at most %d are allowed",
			start, r.where, s.least, w.options.MaxPages)
	}
	s = s.clamp(w.options.MaxPages, mostPages)
	w.hasMemory = true
	w.maxPages = mostPages
	if s.bounded {
		w.maxPages = min(mostPages, uint64(s.most))
	}
	w.out.MinPages, w.out.MaxPages = s.least, uint32(w.maxPages)
	return nil
}

func (w *rewriter) readGlobal(r *reader) error {
	start := r.pos
	t, err := r.byte("value type")
	if err != nil {
		return err
	}
	mutable, err := r.byte("mutability")
	if err != nil {
		return err
	}
	g := Global{Export: fmt.Sprintf("%s%d", globalPrefix, len(w.globals)), Type: t}
	w.globals = append(w.globals, g)
	w.mutable = append(w.mutable, mutable == 1)
	if mutable == 1 {
		w.out.Globals = append(w.out.Globals, g)
		if !g.Restorable() {
			w.unrestorable(uint32(len(w.globals)-1), t, start)
		}
	}
	return constant(r)
}

func (w *rewriter) readData(r *reader) error {
	start := r.pos
	index := len(w.segments)
	kind, err := r.u32("segment's kind")
	if err != nil {
		return err
	}
	s := dataSegment{active: kind != 1}
	if kind == 2 {
		if err := zero(r, "memory index"); err != nil {
			return err
		}
	}
	if s.active {
		if s.offset, err = segmentOffset(r, "data", index); err != nil {
			return err
		}
	}
	n, err := r.u32("segment's size")
	if err != nil {
		return err
	}
	at := r.pos
	if err := r.skip(int(n), "segment"); err != nil {
		return err
	}
	s.bytes = r.all[at:r.pos:r.pos]
	w.segments = append(w.segments, s)
	if !s.active {
		return nil
	}
	if !w.hasMemory {
		return malformed(start, r.where, "data segment %d is for a memory, but there is none", index)
	}
	if uint64(s.offset)+uint64(n) > uint64(w.out.MinPages)<<16 {
		return malformed(start, r.where, "data segment %d goes from address %d to %d, beyond the memory's %d pages",
			index, s.offset, uint64(s.offset)+uint64(n), w.out.MinPages)
	}
	if n > 0 {
		w.out.Data = append(w.out.Data, Segment{s.offset, s.bytes})
	}
	return nil
}

// segmentOffset reads where a segment of data or elements begins, an i32.const:
// others need imported globals, or are no offsets.
func segmentOffset(r *reader, of string, index int) (uint32, error) {
	start := r.pos
	op, err := r.byte("offset")
	if err != nil {
		return 0, err
	}
	if op != opI32Const {
		return 0, malformed(start, r.where, "the offset of %s segment %d is not an i32.const", of, index)
	}
	n, err := r.signed("offset", 32)
	if err != nil {
		return 0, err
	}
	_, err = r.byte("end of the offset")
	return uint32(n), err
}

// segmentBytes returns how many bytes memory.init can take of a segment.
func (w *rewriter) segmentBytes(segment uint32) int {
	if int64(segment) >= int64(len(w.segments)) || w.segments[segment].active {
		return 0
	}
	return len(w.segments[segment].bytes)
}

func (w *rewriter) readStart() error {
	r := w.section(sectionStart)
	if r == nil {
		return nil
	}
	start := r.pos
	index, err := r.u32("function index")
	if err != nil {
		return err
	}
	if err := w.checkFunction(start, r.where, index); err != nil {
		return err
	}
	if t := w.types[w.functions[index]]; len(t.params)+len(t.results) > 0 {
		return malformed(start, r.where, "the start function %d has params or results", index)
	}
	w.hasStart, w.start, w.out.Start = true, index, true
	return nil
}

// checkFunction refuses indices that would name a function of the rewriter's.
func (w *rewriter) checkFunction(at int, where string, index uint32) error {
	if int64(index) >= int64(len(w.functions)) {
		return malformed(at, where, "function %d is not there; there are %d", index, len(w.functions))
	}
	return nil
}

func (w *rewriter) checkGlobal(at int, where string, index uint32) error {
	if int64(index) >= int64(len(w.globals)) {
		return malformed(at, where, "global %d is not there; there are %d", index, len(w.globals))
	}
	return nil
}
