package manifest

import (
	"errors"
	"maps"
	"slices"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
)

// params is what a manifest has to know of a method's params schema.
type params struct {
	known    bool              // the schema is sound, the rest is filled in
	names    []string          // of the properties, sorted
	types    map[string]string // "type" of each property; "" for none or several
	required []string
}

// params reads a method's params schema into m.
func (c *checker) params(o object, m *abi.Method) params {
	at := o.at + "/params"
	v, ok := o.members["params"]
	if !ok {
		// The default is compiled too: it counts when it is written out.
		return params{known: c.compile(at, m.Params)}
	}
	raw := c.layout.compact(at)
	if !c.compile(at, raw) {
		return params{}
	}
	m.Params = raw
	root, ok := v.(map[string]any)
	if !ok || root["type"] != "object" {
		c.fault(at, "params must be the schema of an object; write \"type\": \"object\" at its root")
		return params{}
	}
	p := params{known: true, types: map[string]string{}}
	properties, _ := root["properties"].(map[string]any)
	p.names = slices.Sorted(maps.Keys(properties))
	for name, v := range properties {
		property, _ := v.(map[string]any)
		p.types[name], _ = property["type"].(string)
	}
	required, _ := root["required"].([]any)
	for _, v := range required {
		if name, ok := v.(string); ok {
			p.required = append(p.required, name)
		}
	}
	return p
}

// schemaFaults takes over the faults of a schema, whose pointers begin at its
// own root.
func (c *checker) schemaFaults(at string, err error) {
	e, ok := errors.AsType[*carrel.Error](err)
	if !ok || len(e.Faults) == 0 {
		c.fault(at, "%s", messageOf(err))
		return
	}
	for _, f := range e.Faults {
		c.fault(at+f.Pointer, "%s", f.Message)
	}
}
