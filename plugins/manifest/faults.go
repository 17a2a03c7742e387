package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox/module"
	"github.com/carrelhost/carrel/host/schema"
)

// MaxFaults bounds the faults in one error; one more says how many there are
// besides.
const MaxFaults = 100

// checker collects the faults of one manifest.
type checker struct {
	known  Known
	layout layout
	faults []carrel.Fault
	set    schema.Set
	// schemas are those that compiled, by their JSON: methods often have the
	// same, which is compiled and counted once.
	schemas map[string]*schema.Schema
}

// compile compiles a schema of the manifest or reports its faults.
func (c *checker) compile(at string, raw []byte) bool {
	if _, done := c.schemas[string(raw)]; done {
		return true
	}
	s, err := c.set.Compile(raw)
	if err != nil {
		c.schemaFaults(at, err)
		return false
	}
	c.schemas[string(raw)] = s
	return true
}

func (c *checker) fault(at, format string, args ...any) {
	c.faults = append(c.faults, carrel.Fault{Pointer: at, Message: fmt.Sprintf(format, args...)})
}

// err returns all faults in document order, or nil.
func (c *checker) err(op, what string) error {
	if len(c.faults) == 0 {
		return nil
	}
	slices.SortStableFunc(c.faults, func(a, b carrel.Fault) int {
		return c.layout.position(a.Pointer) - c.layout.position(b.Pointer)
	})
	first, n := c.faults[0], len(c.faults)
	faults := c.faults
	if n > MaxFaults {
		faults = append(slices.Clone(faults[:MaxFaults]),
			carrel.Fault{Message: fmt.Sprintf("there are %d more faults; mend these first", n-MaxFaults)})
	}
	msg := fmt.Sprintf("%s has a fault at %s: %s", what, place(first.Pointer), first.Message)
	if n > 1 {
		msg = fmt.Sprintf("%s has %d faults, the first at %s: %s", what, n, place(first.Pointer), first.Message)
	}
	return &carrel.Error{Op: op, Code: abi.InvalidManifest, Msg: msg, Faults: faults}
}

func place(pointer string) string {
	if pointer == "" {
		return "its root"
	}
	return pointer
}

// Pointer appends a member to a JSON pointer, as the faults of a manifest have
// it. A name that would make the pointer a burden is cut: it is the sender's,
// of any length.
func Pointer(at, name string) string {
	const most = 200
	return string(jsontext.Pointer(at).AppendToken(module.Cut(name, most)))
}

func orList(names []string) string {
	const most = 20
	shown := names[:min(len(names), most)]
	quoted := make([]string, 0, len(shown))
	for _, n := range shown {
		quoted = append(quoted, module.Quote(n))
	}
	list := strings.Join(quoted, ", ")
	if more := len(names) - len(shown); more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	return list
}

// messageOf returns what a vocabulary error tells the sender.
func messageOf(err error) string {
	if e, ok := errors.AsType[*carrel.Error](err); ok {
		return e.Msg
	}
	return err.Error()
}

// layout says where in the manifest's bytes a value stands, by JSON pointer.
type layout struct {
	raw   []byte
	spans map[string]span
}

type span struct{ start, end int }

// layoutDepth is the depth of the deepest value whose place is needed:
// /services/0/methods/0/params and one level of its content.
const layoutDepth = 6

// layoutOf reads JSON that is known to be well-formed.
func layoutOf(raw []byte) layout {
	l := layout{raw, map[string]span{}}
	l.read(jsontext.NewDecoder(bytes.NewReader(raw)), "", layoutDepth)
	return l
}

func (l layout) read(d *jsontext.Decoder, at string, depth int) {
	start := int(d.InputOffset())
	kind := d.PeekKind()
	if depth == 0 || kind != '{' && kind != '[' {
		_ = d.SkipValue() // the JSON is well-formed
		l.spans[at] = span{start, int(d.InputOffset())}
		return
	}
	_, _ = d.ReadToken()
	for i := 0; d.PeekKind() != '}' && d.PeekKind() != ']' && d.PeekKind() > 0; i++ {
		name := strconv.Itoa(i)
		if kind == '{' {
			t, err := d.ReadToken()
			if err != nil {
				return
			}
			name = t.String()
		}
		l.read(d, Pointer(at, name), depth-1)
	}
	_, _ = d.ReadToken()
	l.spans[at] = span{start, int(d.InputOffset())}
}

// compact returns the JSON of a value without white space, members in the sender's order.
func (l layout) compact(at string) []byte {
	s := l.spans[at]
	// Between a value and what is before it stand only these.
	v := jsontext.Value(bytes.Clone(bytes.TrimLeft(l.raw[s.start:s.end], " \t\r\n,:")))
	if err := v.Compact(); err != nil {
		return nil
	}
	return v
}

// position returns where a value begins; one that is not there stands where
// the next object around it ends.
func (l layout) position(at string) int {
	if s, ok := l.spans[at]; ok {
		return s.start
	}
	for at != "" {
		at = string(jsontext.Pointer(at).Parent())
		if s, ok := l.spans[at]; ok {
			return s.end
		}
	}
	return math.MaxInt32
}
