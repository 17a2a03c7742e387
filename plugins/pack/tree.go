package pack

import (
	"bytes"
	"encoding/json"
)

// tree is a JSON object whose members keep the order of the source: people
// and models read params in that order.
type tree struct {
	names  []string
	values map[string]any
}

// newTree returns an object of names and values in turn.
func newTree(pairs ...any) *tree {
	t := &tree{values: map[string]any{}}
	for i := 0; i+1 < len(pairs); i += 2 {
		if name, ok := pairs[i].(string); ok {
			t.set(name, pairs[i+1])
		}
	}
	return t
}

func (t *tree) has(name string) bool {
	_, ok := t.values[name]
	return ok
}

func (t *tree) set(name string, v any) {
	if !t.has(name) {
		t.names = append(t.names, name)
	}
	t.values[name] = v
}

func (t *tree) text(name string) string {
	s, _ := t.values[name].(string)
	return s
}

// trees returns the objects of an array member, nil for what is no object.
func (t *tree) trees(name string) []*tree {
	list, _ := t.values[name].([]any)
	out := make([]*tree, len(list))
	for i, v := range list {
		out[i], _ = v.(*tree)
	}
	return out
}

// MarshalJSON writes the members in order.
func (t *tree) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	b.WriteByte('{')
	for i, name := range t.names {
		if i > 0 {
			b.WriteByte(',')
		}
		if err := enc.Encode(name); err != nil {
			return nil, err
		}
		b.WriteByte(':')
		if err := enc.Encode(t.values[name]); err != nil {
			return nil, err
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}
