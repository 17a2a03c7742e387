package module

import "slices"

// signature is a function type; the slices are views of the module or static.
type signature struct{ params, results []byte }

// readSignatures returns all types of a module that Read accepted.
func (m *Module) readSignatures() ([]signature, error) {
	out := make([]signature, 0, len(m.types))
	for _, at := range m.types {
		r := &reader{all: m.bytes, pos: int(at) + 1, end: len(m.bytes), where: "type section"}
		var s signature
		for _, list := range []*[]byte{&s.params, &s.results} {
			n, err := r.vector(vectorLimit{}, 1)
			if err != nil {
				return nil, err
			}
			*list = r.all[r.pos : r.pos+n]
			r.pos += n
		}
		out = append(out, s)
	}
	return out, nil
}

// typeIndex returns the index of a type, which it adds if there is none.
func (w *rewriter) typeIndex(params, results []byte) uint32 {
	key := string(params) + "\x00" + string(results)
	if index, ok := w.typeOf[key]; ok {
		return index
	}
	index := uint32(len(w.types))
	w.types = append(w.types, signature{params, results})
	w.typeOf[key] = index
	return index
}

// indexTypes notes where each type is first.
func (w *rewriter) indexTypes() {
	w.typeOf = make(map[string]uint32, len(w.types))
	for i, t := range slices.Backward(w.types) {
		w.typeOf[string(t.params)+"\x00"+string(t.results)] = uint32(i)
	}
}

func (w *rewriter) typeSection() code {
	var c code
	c.u32(uint32(len(w.types)))
	for _, t := range w.types {
		c.op(functionForm)
		c.bytes(t.params)
		c.bytes(t.results)
	}
	return c
}
