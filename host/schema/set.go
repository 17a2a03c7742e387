package schema

import (
	"errors"
	"fmt"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/strictjson"
)

// Bounds on what compiling takes beyond the schema's bytes, of one schema and
// of all schemas of a Set together. The worst schema within them compiles in
// less than 50 ms and 20 MB, the worst set in less than 300 ms; the benchmark
// of this package measures both.
const (
	// MaxSubschemas bounds the subschemas of a schema, the root included: the
	// validator compares each with all others. It is the limit
	// schemaSubschemas.
	MaxSubschemas = 400
	// MaxPointerBytes bounds the JSON pointers of a schema's subschemas and
	// keywords, all lengths added up. It is the limit schemaPointerBytes.
	MaxPointerBytes = 48 << 10
	// MaxPatternSteps bounds what parsing a schema's regular expressions
	// takes, in units of about 40 nanoseconds. It is the limit
	// schemaPatternSteps.
	MaxPatternSteps = 1 << 18

	// MaxSetSubschemas, MaxSetPointerBytes and MaxSetPatternSteps bound the
	// same of a Set. They are the limits manifestSubschemas,
	// manifestPointerBytes and manifestPatternSteps.
	MaxSetSubschemas   = 3000
	MaxSetPointerBytes = 384 << 10
	MaxSetPatternSteps = 1 << 20
)

// Cost is what compiling takes beyond the schema's bytes.
type Cost struct {
	Subschemas   int
	PointerBytes int
	PatternSteps int
}

func (c Cost) plus(o Cost) Cost {
	return Cost{c.Subschemas + o.Subschemas, c.PointerBytes + o.PointerBytes, c.PatternSteps + o.PatternSteps}
}

// Set compiles the schemas of one manifest within bounds on their sum. The
// zero value is ready. It must not be used by two goroutines at once; what it
// compiled is independent of it.
type Set struct {
	spent Cost // by refused schemas, too
}

// Spent returns what was compiled so far, refused schemas included.
func (s *Set) Spent() Cost { return s.spent }

// Compile reads a schema that stands alone, see Set.Compile.
func Compile(raw []byte) (*Schema, error) { return new(Set).Compile(raw) }

// Compile reads a schema. $ref may only point into the schema itself and must
// not be recursive; $schema, if it is there, must name draft 2020-12; $id and
// dynamic references are not supported. "format" is a remark, not a check.
//
// Its error is a *carrel.Error with code invalid_manifest; the faults'
// pointers begin at the schema's root. If the schema is beyond a bound on
// compiling, of its own or of the set, Limit names it.
func (s *Set) Compile(raw []byte) (*Schema, error) {
	if len(raw) > abi.MaxSchemaBytes {
		return nil, invalid("schemaBytes", carrel.Fault{Message: fmt.Sprintf(
			"the schema is %d bytes, at most %d are allowed (limit schemaBytes); shorten it", len(raw), abi.MaxSchemaBytes)})
	}
	doc, err := strictjson.Value(raw, MaxDepth)
	if err != nil {
		e, ok := errors.AsType[*carrel.Error](err)
		if !ok {
			return nil, fmt.Errorf("schema.Compile: %w", err)
		}
		return nil, invalid(e.Limit, e.Faults...)
	}
	m := &meter{set: s}
	g := newGraph(m)
	g.read(doc)
	if len(g.faults) > 0 {
		return nil, invalid(m.limit, g.faults...)
	}
	w, faults := g.weigh()
	if len(faults) > 0 {
		return nil, invalid("", faults...)
	}
	return compile(doc, g, w)
}

// compile hands a schema that was judged to the validator.
func compile(doc any, g *graph, w weight) (*Schema, error) {
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.UseLoader(noLoader{})
	c.UseRegexpEngine(g.regexp)
	if err := c.AddResource(location, doc); err != nil {
		return nil, fmt.Errorf("schema.Compile: %w", err)
	}
	s := &Schema{weight: w}
	var err error
	if s.compiled, err = c.Compile(location); err != nil {
		return nil, invalid("", compileFaults(err)...)
	}
	if err := c.AddResource(location+"-not", map[string]any{"not": map[string]any{"$ref": location}}); err != nil {
		return nil, fmt.Errorf("schema.Compile: %w", err)
	}
	if s.negated, err = c.Compile(location + "-not"); err != nil {
		return nil, fmt.Errorf("schema.Compile: %w", err)
	}
	return s, nil
}

// meter counts what one schema takes, for itself and for its set.
type meter struct {
	set   *Set
	spent Cost
	over  string // what to say of the bound that was exceeded; nothing more is read then
	limit string // the name of the first bound that was exceeded, this or another
}

func (m *meter) exceeded(limit string) {
	if m.limit == "" {
		m.limit = limit
	}
}

// spend counts, and says what is wrong if a bound is exceeded.
func (m *meter) spend(c Cost) string {
	m.spent, m.set.spent = m.spent.plus(c), m.set.spent.plus(c)
	for _, b := range []struct {
		spent, most        int
		limit, what, whose string
		remedy             string
	}{
		{m.spent.Subschemas, MaxSubschemas, "schemaSubschemas", "subschemas", "the schema has", "simplify it"},
		{m.spent.PointerBytes, MaxPointerBytes, "schemaPointerBytes", "bytes of JSON pointers, each keyword's counted", "the schema has", "shorten names or nest less deeply"},
		{m.spent.PatternSteps, MaxPatternSteps, "schemaPatternSteps", "steps to parse its regular expressions", "the schema takes", "use fewer classes such as \\pL and no wide ranges under (?i)"},
		{m.set.spent.Subschemas, MaxSetSubschemas, "manifestSubschemas", "subschemas", "all schemas up to this one have", "simplify them or declare fewer methods"},
		{m.set.spent.PointerBytes, MaxSetPointerBytes, "manifestPointerBytes", "bytes of JSON pointers, each keyword's counted", "all schemas up to this one have", "shorten names, nest less deeply or declare fewer methods"},
		{m.set.spent.PatternSteps, MaxSetPatternSteps, "manifestPatternSteps", "steps to parse their regular expressions", "all schemas up to this one take", "use fewer classes such as \\pL and no wide ranges under (?i)"},
	} {
		if b.spent > b.most {
			m.exceeded(b.limit)
			m.over = fmt.Sprintf("%s more than %d %s (limit %s); %s", b.whose, b.most, b.what, b.limit, b.remedy)
			break
		}
	}
	return m.over
}
