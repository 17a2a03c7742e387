package carreltest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// schema is the part of JSON Schema that the SDK makes of Go types.
type schema struct {
	Type                 typeNames
	Minimum, Maximum     *json.Number
	Properties           map[string]schema
	Required             []string
	Items                *schema
	MinItems, MaxItems   *int
	AdditionalProperties *schema
}

// typeNames is a type's name or a list of them.
type typeNames []string

// UnmarshalJSON reads both forms.
func (n *typeNames) UnmarshalJSON(b []byte) error {
	if bytes.HasPrefix(b, []byte("[")) {
		return json.Unmarshal(b, (*[]string)(n))
	}
	*n = make(typeNames, 1)
	return json.Unmarshal(b, &(*n)[0])
}

// check returns the first way in which a value does not match a schema.
func check(rawSchema, rawValue []byte) error {
	var s schema
	if err := json.Unmarshal(rawSchema, &s); err != nil {
		return fmt.Errorf("read the schema: %w", err)
	}
	d := json.NewDecoder(bytes.NewReader(rawValue))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return fmt.Errorf("it is not JSON: %w", err)
	}
	return s.check(v, "")
}

func (s schema) check(v any, at string) error {
	if len(s.Type) > 0 && !slices.ContainsFunc(s.Type, func(name string) bool { return isType(v, name) }) {
		return fmt.Errorf("%q must be of type %s", at, strings.Join(s.Type, " or "))
	}
	switch v := v.(type) {
	case json.Number:
		return s.checkNumber(v, at)
	case []any:
		return s.checkArray(v, at)
	case map[string]any:
		return s.checkObject(v, at)
	default:
		return nil
	}
}

func isType(v any, name string) bool {
	switch v := v.(type) {
	case nil:
		return name == "null"
	case bool:
		return name == "boolean"
	case string:
		return name == "string"
	case json.Number:
		return name == "number" || name == "integer" && !strings.ContainsAny(v.String(), ".eE")
	case []any:
		return name == "array"
	default:
		return name == "object"
	}
}

func (s schema) checkNumber(n json.Number, at string) error {
	v, err := n.Float64()
	if err != nil {
		return fmt.Errorf("%q is too large a number", at)
	}
	for _, bound := range []struct {
		limit *json.Number
		sign  float64
		what  string
	}{{s.Minimum, 1, "at least"}, {s.Maximum, -1, "at most"}} {
		if bound.limit == nil {
			continue
		}
		limit, err := bound.limit.Float64()
		if err != nil {
			return fmt.Errorf("read the schema: %w", err)
		}
		if (v-limit)*bound.sign < 0 {
			return fmt.Errorf("%q must be %s %v", at, bound.what, *bound.limit)
		}
	}
	return nil
}

func (s schema) checkArray(list []any, at string) error {
	if s.MinItems != nil && len(list) < *s.MinItems || s.MaxItems != nil && len(list) > *s.MaxItems {
		return fmt.Errorf("%q has %d elements, which is not as many as the schema wants", at, len(list))
	}
	for i, v := range list {
		if s.Items == nil {
			break
		}
		if err := s.Items.check(v, fmt.Sprintf("%s/%d", at, i)); err != nil {
			return err
		}
	}
	return nil
}

func (s schema) checkObject(object map[string]any, at string) error {
	for _, name := range s.Required {
		if _, ok := object[name]; !ok {
			return fmt.Errorf("%q is missing", at+"/"+name)
		}
	}
	for name, v := range object {
		member, ok := s.Properties[name]
		if !ok {
			if s.AdditionalProperties == nil {
				continue
			}
			member = *s.AdditionalProperties
		}
		if err := member.check(v, at+"/"+name); err != nil {
			return err
		}
	}
	return nil
}
