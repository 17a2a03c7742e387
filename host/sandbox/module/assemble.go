package module

import "github.com/carrelhost/carrel/abi"

const globalPrefix = abi.ReservedExportPrefix + "g"

// write puts the new module together. The code comes first: what it needs
// decides on helpers, types and data.
func (w *rewriter) write() error {
	if w.hasStart {
		w.helperIndex(helper{kind: helperStart})
	}
	bodies, err := w.codeSection()
	if err != nil {
		return err
	}
	var own []uint32 // types of the helpers
	for _, h := range w.helpers {
		own = append(own, w.helperType(h))
		bodies.bytes(w.helperBody(h))
	}
	imports, err := w.importSection()
	if err != nil {
		return err
	}
	globals, err := w.globalSection()
	if err != nil {
		return err
	}
	exports, err := w.exportSection()
	if err != nil {
		return err
	}
	elements, err := w.elementSection()
	if err != nil {
		return err
	}
	tables, err := w.sizes(sectionTable, w.options.TableMax, 1<<32-1)
	if err != nil {
		return err
	}
	memories, err := w.sizes(sectionMemory, w.options.MaxPages, mostPages)
	if err != nil {
		return err
	}
	declared := w.functions[w.module.importedFunctions:]
	var functions code
	functions.u32(uint32(len(declared) + len(own)))
	for _, list := range [][]uint32{declared, own} {
		for _, t := range list {
			functions.u32(t)
		}
	}
	var all code
	all.u32(uint32(len(declared) + len(own)))
	all = append(all, bodies...)

	out := code(Empty())
	out.section(sectionType, w.typeSection())
	out.section(sectionImport, imports)
	for _, s := range []struct {
		id      byte
		content code
	}{
		{sectionFunction, functions},
		{sectionTable, tables},
		{sectionMemory, memories},
		{sectionGlobal, globals},
		{sectionExport, exports},
		{sectionElement, elements},
	} {
		if s.content != nil {
			out.section(s.id, s.content)
		}
	}
	if w.usesData && w.counted {
		var count code
		count.u32(uint32(len(w.segments)))
		out.section(sectionDataCount, count)
	}
	out.section(sectionCode, all)
	if w.usesData && w.section(sectionData) != nil {
		out.section(sectionData, w.dataSection())
	}
	w.out.Code = out
	return w.checkSize(len(out))
}

func (w *rewriter) importSection() (code, error) {
	var c code
	c.u32(uint32(w.module.importedFunctions + ownImports))
	if r := w.section(sectionImport); r != nil {
		if _, err := r.vector(vectorLimit{}, 4); err != nil {
			return nil, err
		}
		c = append(c, r.all[r.pos:r.end]...)
	}
	for _, f := range []struct {
		name string
		typ  uint32
	}{
		{YieldImport, w.typeIndex(nil, []byte{typeI64})},
		{OverflowImport, w.typeIndex(nil, nil)},
	} {
		c.bytes([]byte(HostModule))
		c.bytes([]byte(f.name))
		c.op(kindFunction)
		c.u32(f.typ)
	}
	return c, nil
}

// sizes writes the tables or the memory.
func (w *rewriter) sizes(id byte, most, legal uint32) (code, error) {
	r := w.section(id)
	if r == nil {
		return nil, nil
	}
	n, err := r.vector(vectorLimit{}, 2)
	if err != nil {
		return nil, err
	}
	var c code
	c.u32(uint32(n))
	for range n {
		if id == sectionTable {
			t, err := r.byte("reference type")
			if err != nil {
				return nil, err
			}
			c.op(t)
		}
		s, err := readSize(r)
		if err != nil {
			return nil, err
		}
		s = s.clamp(most, legal)
		if !s.bounded {
			c.op(0)
			c.u32(s.least)
			continue
		}
		c.op(1)
		c.u32(s.least)
		c.u32(s.most)
	}
	return c, nil
}

func (w *rewriter) globalSection() (code, error) {
	var c code
	c.u32(uint32(len(w.globals) + 2))
	err := w.each(sectionGlobal, func(r *reader) error {
		start := r.pos
		r.pos += 2 // read before
		c.op(r.all[start:r.pos]...)
		return w.expression(r, &c)
	})
	c.op(typeI64, 1, opI64Const, 0, opEnd) // fuel
	c.op(typeI32, 1, opI32Const, 0, opEnd) // depth
	return c, err
}

// expression copies a constant expression with its function index moved.
func (w *rewriter) expression(r *reader, c *code) error {
	start := r.pos
	if err := constant(r); err != nil {
		return err
	}
	end := r.pos
	op := r.all[start]
	if op != opRefFunc && op != opGlobalGet {
		*c = append(*c, r.all[start:end]...)
		return nil
	}
	r.pos = start + 1
	index, err := r.u32("index")
	if err != nil {
		return err
	}
	r.pos = end
	if op == opRefFunc {
		if err := w.checkFunction(start, r.where, index); err != nil {
			return err
		}
		index = w.moved(index)
	} else if err := w.checkGlobal(start, r.where, index); err != nil {
		return err
	}
	c.index(op, index)
	c.op(opEnd)
	return nil
}

func (w *rewriter) exportSection() (code, error) {
	var c code
	n := 0
	add := func(name string, kind byte, index uint32) {
		n++
		c.bytes([]byte(name))
		c.op(kind)
		c.u32(index)
	}
	err := w.each(sectionExport, func(r *reader) error {
		name, err := r.name("export's name")
		if err != nil {
			return err
		}
		start := r.pos
		kind, err := r.byte("export kind")
		if err != nil {
			return err
		}
		index, err := r.u32("index")
		if err != nil {
			return err
		}
		switch kind {
		case kindFunction:
			err = w.checkFunction(start, r.where, index)
			index = w.moved(index)
		case kindGlobal:
			err = w.checkGlobal(start, r.where, index)
		}
		add(name, kind, index)
		return err
	})
	for i, g := range w.globals {
		if w.mutable[i] {
			add(g.Export, kindGlobal, uint32(i))
		}
	}
	add(FuelExport, kindGlobal, w.fuel)
	add(DepthExport, kindGlobal, w.depth)
	if w.hasStart {
		// Not the function itself: an export would allow references to it.
		add(StartExport, kindFunction, w.helperIndex(helper{kind: helperStart}))
	}
	var out code
	out.u32(uint32(n))
	return append(out, c...), err
}

func (w *rewriter) elementSection() (code, error) {
	if w.section(sectionElement) == nil {
		return nil, nil
	}
	var c code
	n := 0
	err := w.each(sectionElement, func(r *reader) error {
		n++
		return w.element(r, n-1, &c)
	})
	var out code
	out.u32(uint32(n))
	return append(out, c...), err
}

// element copies a segment, with functions by their new indices. The engine
// leaves one out that does not fit its table, and those after it, without a
// word.
func (w *rewriter) element(r *reader, number int, c *code) error {
	begin := r.pos
	flags, err := r.u32("segment's kind")
	if err != nil {
		return err
	}
	c.u32(flags)
	var table, offset uint32
	active := flags&elementPassive == 0
	if active {
		if flags&elementIndexed != 0 {
			if table, err = r.u32("table index"); err != nil {
				return err
			}
			c.u32(table)
		}
		first := *r
		if err := w.expression(r, c); err != nil {
			return err
		}
		if offset, err = segmentOffset(&first, "element", number); err != nil {
			return err
		}
	}
	if flags&(elementPassive|elementIndexed) != 0 {
		kind, err := r.byte("element kind")
		if err != nil {
			return err
		}
		c.op(kind)
	}
	inits, err := r.vector(vectorLimit{}, 1)
	if err != nil {
		return err
	}
	if end := uint64(offset) + uint64(inits); active && int64(table) < int64(len(w.tables)) && end > w.tables[table] {
		return malformed(begin, r.where, "element segment %d goes from %d to %d in its table, which has %d elements: build the module with a larger table, or with the segment at a lower offset",
			number, offset, end, w.tables[table])
	}
	c.u32(uint32(inits))
	for range inits {
		if flags&elementExpressions != 0 {
			if err := w.expression(r, c); err != nil {
				return err
			}
			continue
		}
		start := r.pos
		index, err := r.u32("function index")
		if err != nil {
			return err
		}
		if err := w.checkFunction(start, r.where, index); err != nil {
			return err
		}
		c.u32(w.moved(index))
	}
	return nil
}

// dataSection keeps every segment's index. An active one is empty once it has
// been written, as if it had been dropped.
func (w *rewriter) dataSection() code {
	var c code
	c.u32(uint32(len(w.segments)))
	for _, s := range w.segments {
		c.op(1) // passive
		if s.active {
			c.op(0)
			continue
		}
		c.bytes(s.bytes)
	}
	return c
}
