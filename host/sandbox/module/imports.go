package module

import (
	"fmt"
	"slices"
	"strings"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
)

const functionForm = 0x60

// readTypes checks the type section and keeps the offset of each type, four
// bytes for at least three of the file.
func (s *scan) readTypes(r *reader) error {
	n, err := r.vector(vectorLimit{"module.types", s.limits.Types}, 3)
	if err != nil {
		return err
	}
	s.types = make([]uint32, 0, n)
	for range n {
		s.types = append(s.types, uint32(r.pos))
		if _, _, err := s.signature(r); err != nil {
			return err
		}
	}
	return r.done()
}

// signature reads one function type; the results are views.
func (s *scan) signature(r *reader) (params, results []byte, err error) {
	start := r.pos
	form, err := r.byte("type form")
	if err != nil {
		return nil, nil, err
	}
	if form != functionForm {
		return nil, nil, malformed(start, r.where, "type form 0x%02x is not a function's; "+
			"turn off the garbage collection proposal in the compiler", form)
	}
	if params, err = s.valTypes(r, vectorLimit{"module.params", s.limits.Params}); err != nil {
		return nil, nil, err
	}
	results, err = s.valTypes(r, vectorLimit{"module.results", s.limits.Results})
	return params, results, err
}

func (s *scan) valTypes(r *reader, l vectorLimit) ([]byte, error) {
	n, err := r.vector(l, 1)
	if err != nil {
		return nil, err
	}
	view := r.all[r.pos : r.pos+n]
	for i, t := range view {
		if valTypeName(t) == "" {
			return nil, malformed(r.pos+i, r.where, "0x%02x is not a value type of core WebAssembly 2.0", t)
		}
	}
	r.pos += n
	return view, nil
}

func valTypeName(t byte) string {
	switch t {
	case 0x7f:
		return "i32"
	case 0x7e:
		return "i64"
	case 0x7d:
		return "f32"
	case 0x7c:
		return "f64"
	case 0x7b:
		return "v128"
	case 0x70:
		return "funcref"
	case 0x6f:
		return "externref"
	default:
		return ""
	}
}

// The kinds of imports.
const (
	kindFunction byte = iota
	kindTable
	kindMemory
	kindGlobal
)

func (s *scan) readImports(r *reader) error {
	n, err := r.vector(vectorLimit{"module.imports", s.limits.Imports}, 4)
	if err != nil {
		return err
	}
	known := map[string]map[string]abi.Func{
		abi.Module:     byName(abi.Imports()),
		abi.WASIModule: byName(abi.WASIImports()),
	}
	for range n {
		mod, err := r.name("import's module name")
		if err != nil {
			return err
		}
		name, err := r.name("import's name")
		if err != nil {
			return err
		}
		if err := s.importDesc(r, known, mod, name); err != nil {
			return err
		}
	}
	return r.done()
}

func byName(list []abi.Func) map[string]abi.Func {
	out := make(map[string]abi.Func, len(list))
	for _, f := range list {
		out[f.Name] = f
	}
	return out
}

func (s *scan) importDesc(r *reader, known map[string]map[string]abi.Func, mod, name string) error {
	start := r.pos
	kind, err := r.byte("import kind")
	if err != nil {
		return err
	}
	full := Quote(mod) + " " + Quote(name)
	switch kind {
	case kindFunction:
		return s.functionImport(r, known, mod, name, full)
	case kindTable:
		if _, err := r.byte("table type"); err != nil {
			return err
		}
		s.refused.add(full + " (a table; only functions can be imported)")
		return limitsOf(r)
	case kindMemory:
		s.refused.add(full + " (a memory; only functions can be imported: define and export the memory)")
		return limitsOf(r)
	case kindGlobal:
		s.refused.add(full + " (a global; only functions can be imported)")
		if _, err := r.byte("global type"); err != nil {
			return err
		}
		_, err := r.byte("global mutability")
		return err
	default:
		return malformed(start, r.where, "import kind %d is not one of core WebAssembly 2.0", kind)
	}
}

func (s *scan) functionImport(r *reader, known map[string]map[string]abi.Func, mod, name, full string) error {
	start := r.pos
	index, err := r.u32("type index")
	if err != nil {
		return err
	}
	if int64(index) >= int64(len(s.types)) {
		return malformed(start, r.where, "type index %d, but there are %d types", index, len(s.types))
	}
	at := int(s.types[index])
	params, results, err := s.signature(&reader{all: r.all, pos: at, end: len(r.all), where: "type section"})
	if err != nil {
		return err
	}
	s.importedFunctions++
	want, ok := known[mod][name]
	switch {
	case !ok:
		s.refused.add(full)
	case !slices.Equal(params, encoded(want.Params)) || !slices.Equal(results, encoded(want.Results)):
		s.refused.add(fmt.Sprintf("%s (its signature is %s, it must be %s)", full,
			signatureText(params, results), signatureText(encoded(want.Params), encoded(want.Results))))
	}
	return nil
}

func encoded(types []abi.ValType) []byte {
	out := make([]byte, len(types))
	for i, t := range types {
		out[i] = byte(t)
	}
	return out
}

func signatureText(params, results []byte) string {
	var b strings.Builder
	list := func(types []byte) {
		b.WriteByte('(')
		for i, t := range types {
			if i > 0 {
				b.WriteString(", ")
			}
			b.WriteString(valTypeName(t))
		}
		b.WriteByte(')')
	}
	list(params)
	b.WriteString(" -> ")
	list(results)
	return b.String()
}

// limitsOf reads the limits of a table or memory, those of the threads and
// 64-bit proposals too, so that the import can be named and not only its byte.
func limitsOf(r *reader) error {
	start := r.pos
	flags, err := r.byte("limits")
	if err != nil {
		return err
	}
	if flags > 7 {
		return malformed(start, r.where, "limits flag %d is unknown", flags)
	}
	if _, err := r.leb("minimum", 64); err != nil {
		return err
	}
	if flags&1 != 0 {
		_, err = r.leb("maximum", 64)
	}
	return err
}

// refusedImports collects imports that the host does not offer: an author
// wants to see all of them at once.
type refusedImports struct {
	listed []string
	more   int
}

func (f *refusedImports) add(text string) {
	const most = 50
	if len(f.listed) < most {
		f.listed = append(f.listed, text)
	} else {
		f.more++
	}
}

func (f *refusedImports) err() error {
	if len(f.listed) == 0 {
		return nil
	}
	list := strings.Join(f.listed, ", ")
	if f.more > 0 {
		list += fmt.Sprintf(" and %d more", f.more)
	}
	return carrel.Fail("module.Read", abi.UnknownImport, fmt.Sprintf(
		"the module imports what this host does not offer: %s; a plugin may import the functions of %q and of %q with their documented signatures",
		list, abi.Module, abi.WASIModule))
}
