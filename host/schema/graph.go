package schema

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/host/strictjson"
)

// graph is a schema document as its subschemas and what leads from one to
// another.
type graph struct {
	nodes    map[string]*node // by JSON pointer
	anchors  map[string]*node
	patterns patterns
	meter    *meter
	faults   []carrel.Fault
}

// node is one subschema. Its edges are grouped by which values follow them.
type node struct {
	at   string
	ref  string // $ref, or empty
	self weight // of looking at one value with it alone

	same       []*node // applied to the same value
	properties []*node // at most one of them is applied to a member
	everyChild []*node // may be applied to every member or element
	prefix     []*node // at most one of them is applied to an element

	state  state
	height int      // of the longest chain of edges below it
	memo   []weight // by depth below the value
}

type state int

const (
	fresh state = iota
	running
	done
)

func newGraph(m *meter) *graph {
	return &graph{
		nodes: map[string]*node{}, anchors: map[string]*node{}, meter: m,
		patterns: patterns{known: map[string]*pattern{}, meter: m},
	}
}

func (g *graph) fault(at, format string, args ...any) {
	if len(g.faults) <= 100 {
		g.faults = append(g.faults, carrel.Fault{Pointer: at, Message: fmt.Sprintf(format, args...)})
	}
}

// read collects the subschemas of a document and connects the references.
func (g *graph) read(doc any) {
	if root, ok := doc.(map[string]any); ok {
		// The root's own name means nothing where no reference can use it.
		delete(root, "$id")
	}
	if g.schema(doc, "") == nil {
		return
	}
	for _, at := range slices.Sorted(maps.Keys(g.nodes)) {
		if n := g.nodes[at]; n.ref != "" {
			if to := g.target(n); to != nil {
				n.same = append(n.same, to)
			}
		}
	}
}

// target finds what a $ref names.
func (g *graph) target(n *node) *node {
	at := n.at + "/$ref"
	fragment, ok := strings.CutPrefix(n.ref, "#")
	if !ok {
		g.fault(at, "a $ref may only point into the schema itself, such as \"#/$defs/order\"; copy the schema it names into $defs")
		return nil
	}
	fragment, err := url.PathUnescape(fragment)
	if err != nil {
		g.fault(at, "this is not a valid URI fragment")
		return nil
	}
	to := g.anchors[fragment]
	if fragment == "" || fragment[0] == '/' {
		to = g.nodes[fragment]
	}
	if to == nil {
		g.fault(at, "there is no subschema at this $ref; name one such as \"#/$defs/order\"")
	}
	return to
}

// schema reads a subschema; it returns nil if v cannot be one.
func (g *graph) schema(v any, at string) *node {
	n := &node{at: at, self: weight{evaluations: 1, failures: 1, perValue: costLook, perByte: 1}}
	if _, ok := v.(bool); ok {
		return g.add(n)
	}
	members, ok := v.(map[string]any)
	if !ok {
		g.fault(at, "a schema is an object, true or false, not %s", strictjson.KindOf(v))
		return nil
	}
	if g.add(n) == nil {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		g.keyword(n, name, members[name])
	}
	return n
}

// add counts a subschema; it returns nil if there are too many.
func (g *graph) add(n *node) *node {
	if g.spend(n.at, Cost{Subschemas: 1, PointerBytes: len(n.at)}) {
		g.nodes[n.at] = n
		return n
	}
	return nil
}

// spend takes from the bounds on compiling. After it said no, no more is read.
func (g *graph) spend(at string, c Cost) bool {
	if g.meter.over != "" {
		return false
	}
	if over := g.meter.spend(c); over != "" {
		g.fault(shortPointer(at), "%s", over)
		return false
	}
	return true
}

// named reports names that are too long; the pointers of all that is below
// would repeat them.
func (g *graph) named(at, name string) bool {
	if len(name) <= MaxNameBytes {
		return true
	}
	g.fault(shortPointer(at), "a name here is %d bytes long, at most %d are allowed (limit schemaNameBytes); shorten it", len(name), MaxNameBytes)
	g.meter.exceeded("schemaNameBytes")
	return false
}

// shortPointer leaves out of a fault what would only burden it.
func shortPointer(at string) string {
	const most = 1024
	if len(at) > most {
		return ""
	}
	return at
}

func (g *graph) keyword(n *node, name string, v any) {
	if !g.named(n.at, name) || !g.spend(n.at, Cost{PointerBytes: len(n.at) + len("/") + len(name)}) {
		return
	}
	at := pointer(n.at, name)
	switch name {
	case "$schema":
		if s, _ := v.(string); strings.TrimSuffix(s, "#") != "https://json-schema.org/draft/2020-12/schema" {
			g.fault(at, "this host reads draft 2020-12 only; remove $schema and write the schema in that draft")
		}
	case "$id", "$dynamicRef", "$dynamicAnchor", "$recursiveRef", "$recursiveAnchor", "$vocabulary", "dependencies":
		if _, isText := v.(string); isText || name == "$vocabulary" || name == "dependencies" {
			g.fault(at, "%s is not supported by this host; remove it", name)
		}
	case "$ref":
		n.ref, _ = v.(string)
	case "$anchor":
		if s, ok := v.(string); ok {
			g.anchors[s] = n
		}
	case "pattern":
		if s, ok := v.(string); ok {
			n.self.perByte = plus(n.self.perByte, g.pattern(s, at))
		}
	case "allOf", "anyOf", "oneOf":
		n.same = append(n.same, g.list(v, at)...)
	case "not", "if", "then", "else":
		n.same = append(n.same, g.one(v, at)...)
	case "dependentSchemas":
		n.same = append(n.same, g.mapped(v, at)...)
	case "$defs", "definitions":
		g.mapped(v, at)
	case "contentSchema":
		g.one(v, at)
	case "properties":
		n.properties = g.mapped(v, at)
	case "patternProperties":
		n.everyChild = append(n.everyChild, g.mapped(v, at)...)
		object, _ := v.(map[string]any)
		for _, expression := range slices.Sorted(maps.Keys(object)) {
			if len(expression) > MaxNameBytes {
				continue // reported by mapped
			}
			n.self.perByte = plus(n.self.perByte, g.pattern(expression, pointer(at, expression)))
		}
	case "additionalProperties", "unevaluatedProperties", "propertyNames", "items", "contains", "unevaluatedItems":
		n.everyChild = append(n.everyChild, g.one(v, at)...)
	case "prefixItems":
		n.prefix = g.list(v, at)
	default:
		assertion(&n.self, name, v)
	}
}

// The costs of looking at one value, in units of about ten nanoseconds. Two
// numbers of 400 digits or of exponent 400 are the worst case of each.
const (
	costLook     = 32   // a subschema that checks nothing
	costBound    = 256  // against a bound, or for being an integer
	costEqual    = 1024 // against another number, both read anew
	costMultiple = 2048 // for being a multiple
	costHash     = 1024 // of an array's elements, if there are few
)

// assertion adds what a keyword without subschemas costs.
func assertion(w *weight, name string, v any) {
	switch name {
	case "type":
		if list, ok := v.([]any); v == "integer" || ok && slices.Contains(list, any("integer")) {
			w.perValue = plus(w.perValue, costBound) // 1.0 is one, too
		}
	case "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum":
		w.perValue = plus(w.perValue, costBound)
	case "multipleOf":
		w.perValue = plus(w.perValue, costMultiple)
	case "enum", "const":
		w.perValue = plus(w.perValue, comparison(v))
	case "required", "dependentRequired":
		n := int64(values(v))
		w.perValue, w.failures = plus(w.perValue, n), plus(w.failures, n)
	case "uniqueItems":
		w.perValue, w.perByte = plus(w.perValue, costHash), plus(w.perByte, costBound)
		w.pairs++
	}
}

// comparison is the cost of comparing with a value.
func comparison(v any) int64 {
	var n int64 = 1
	switch v := v.(type) {
	case json.Number:
		n = costEqual
	case string:
		n += int64(len(v)) / 64
	case []any:
		for _, e := range v {
			n = plus(n, comparison(e))
		}
	case map[string]any:
		for _, e := range v {
			n = plus(n, comparison(e))
		}
	}
	return n
}

func (g *graph) pattern(expression, at string) int64 {
	if g.meter.over != "" {
		return 0
	}
	size, err := g.patterns.measure(expression)
	if err != nil {
		g.fault(shortPointer(at), "%v", err)
	}
	return size
}

func (g *graph) one(v any, at string) []*node {
	if n := g.schema(v, at); n != nil {
		return []*node{n}
	}
	return nil
}

func (g *graph) list(v any, at string) []*node {
	list, ok := v.([]any)
	if !ok {
		g.fault(at, "an array of schemas is expected, not %s", strictjson.KindOf(v))
	}
	var out []*node
	for i, e := range list {
		if g.meter.over != "" {
			break
		}
		out = append(out, g.one(e, pointer(at, strconv.Itoa(i)))...)
	}
	return out
}

func (g *graph) mapped(v any, at string) []*node {
	object, ok := v.(map[string]any)
	if !ok {
		g.fault(at, "an object of schemas is expected, not %s", strictjson.KindOf(v))
	}
	var out []*node
	for _, name := range slices.Sorted(maps.Keys(object)) {
		if g.meter.over != "" {
			break
		}
		if !g.named(at, name) {
			continue
		}
		out = append(out, g.one(object[name], pointer(at, name))...)
	}
	return out
}

func pointer(at, name string) string { return string(jsontext.Pointer(at).AppendToken(name)) }
