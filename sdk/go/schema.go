package carrel

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"time"
)

// direction says which way a value goes: what may be left out and what may be
// null differ.
type direction int

const (
	forParams direction = iota
	forOutput
)

// schema is the part of JSON Schema that Go types need.
type schema struct {
	Type                 any                 `json:"type,omitempty"` // a name, or a name and "null"
	Description          string              `json:"description,omitempty"`
	Format               string              `json:"format,omitempty"`
	ContentEncoding      string              `json:"contentEncoding,omitempty"`
	Minimum              *int64              `json:"minimum,omitempty"`
	Maximum              *int64              `json:"maximum,omitempty"`
	Properties           properties[*schema] `json:"properties,omitempty"`
	Required             []string            `json:"required,omitempty"`
	Items                *schema             `json:"items,omitempty"`
	MinItems             *int                `json:"minItems,omitempty"`
	MaxItems             *int                `json:"maxItems,omitempty"`
	AdditionalProperties *schema             `json:"additionalProperties,omitempty"`
}

// properties are the members of an object in the order of the struct's fields.
type properties[V any] []property[V]

type property[V any] struct {
	name  string
	value V
}

// MarshalJSON writes an object.
func (p properties[V]) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, member := range p {
		if i > 0 {
			b.WriteByte(',')
		}
		name, err := encode(member.name)
		if err != nil {
			return nil, err
		}
		value, err := encode(member.value)
		if err != nil {
			return nil, err
		}
		b.Write(name)
		b.WriteByte(':')
		b.Write(value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// schemaOf returns the schema of a type. Its error joins every part of the
// type that has none; the schema accepts anything there.
func schemaOf(t reflect.Type, d direction) (json.RawMessage, error) {
	r := reflector{direction: d, inside: map[reflect.Type]bool{}}
	s := r.schema(t, "")
	raw, err := encode(s)
	return raw, errors.Join(append(r.faults, err)...)
}

type reflector struct {
	direction direction
	inside    map[reflect.Type]bool // struct types around the current one
	faults    []error
}

func (r *reflector) fault(at, format string, args ...any) *schema {
	if at != "" {
		at += ": "
	}
	r.faults = append(r.faults, errors.New(at+fmt.Sprintf(format, args...)))
	return &schema{}
}

var (
	timeType      = reflect.TypeFor[time.Time]()
	numberType    = reflect.TypeFor[json.Number]()
	marshaler     = reflect.TypeFor[json.Marshaler]()
	unmarshaler   = reflect.TypeFor[json.Unmarshaler]()
	textMarshal   = reflect.TypeFor[encoding.TextMarshaler]()
	textUnmarshal = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// implements reports whether t or a pointer to it has the methods.
func implements(t reflect.Type, of ...reflect.Type) bool {
	for _, i := range of {
		if t.Implements(i) || reflect.PointerTo(t).Implements(i) {
			return true
		}
	}
	return false
}

// isJSONValue reports whether a type has a JSON form of its own making.
func isJSONValue(t reflect.Type) bool {
	return t == numberType || implements(t, marshaler, unmarshaler)
}

// isBytes reports whether encoding/json writes a slice as base64.
func isBytes(t reflect.Type) bool {
	return t.Elem().Kind() == reflect.Uint8 && !implements(t.Elem(), marshaler, textMarshal)
}

// schema returns the schema of a type; at names the place for faults.
func (r *reflector) schema(t reflect.Type, at string) *schema {
	switch {
	case t == timeType:
		return &schema{Type: "string", Format: "date-time"}
	case t == numberType:
		return &schema{Type: "number"}
	case t.Kind() == reflect.Pointer:
		return r.nullable(r.schema(t.Elem(), at))
	case isJSONValue(t):
		return &schema{} // anything; json.RawMessage is one of these
	case implements(t, textMarshal, textUnmarshal):
		return &schema{Type: "string"}
	}
	switch t.Kind() {
	case reflect.Bool:
		return &schema{Type: "boolean"}
	case reflect.Int, reflect.Int64:
		return &schema{Type: "integer"}
	case reflect.Int8, reflect.Int16, reflect.Int32:
		half := int64(1) << (t.Bits() - 1)
		return integer(-half, half-1)
	case reflect.Uint8, reflect.Uint16, reflect.Uint32:
		return integer(0, int64(1)<<t.Bits()-1)
	case reflect.Uint, reflect.Uint64, reflect.Uintptr:
		return &schema{Type: "integer", Minimum: new(int64)}
	case reflect.Float32, reflect.Float64:
		return &schema{Type: "number"}
	case reflect.String:
		return &schema{Type: "string"}
	case reflect.Slice:
		if isBytes(t) {
			return r.nullable(&schema{Type: "string", ContentEncoding: "base64"})
		}
		return r.nullable(&schema{Type: "array", Items: r.schema(t.Elem(), at+"[]")})
	case reflect.Array:
		n := t.Len()
		return &schema{Type: "array", Items: r.schema(t.Elem(), at+"[]"), MinItems: &n, MaxItems: &n}
	case reflect.Map:
		return r.object(t, at)
	case reflect.Struct:
		return r.structure(t, at)
	case reflect.Interface:
		return &schema{}
	default:
		return r.fault(at, "the type %s has no JSON form", t)
	}
}

// integer bounds the small types, so that what the schema accepts can be decoded.
func integer(least, most int64) *schema {
	return &schema{Type: "integer", Minimum: &least, Maximum: &most}
}

// nullable allows null in an output: encoding/json writes it for what is nil.
func (r *reflector) nullable(s *schema) *schema {
	if name, ok := s.Type.(string); ok && r.direction == forOutput {
		s.Type = []string{name, "null"}
	}
	return s
}

func (r *reflector) object(t reflect.Type, at string) *schema {
	switch k := t.Key(); {
	case k.Kind() == reflect.String, k.Kind() >= reflect.Int && k.Kind() <= reflect.Uintptr, implements(k, textMarshal):
	default:
		return r.fault(at, "a map with keys of type %s has no JSON form; use strings or integers", k)
	}
	return r.nullable(&schema{Type: "object", AdditionalProperties: r.schema(t.Elem(), at+"{}")})
}

func (r *reflector) structure(t reflect.Type, at string) *schema {
	if r.inside[t] {
		return r.fault(at, "the type %s contains itself, which a schema cannot say; use json.RawMessage here", t)
	}
	r.inside[t] = true
	defer delete(r.inside, t)
	s := &schema{Type: "object"}
	for _, f := range fieldsOf(t) {
		fs := r.field(f, at)
		fs.Description = f.description
		s.Properties = append(s.Properties, property[*schema]{f.name, fs})
		if !f.optional && (r.direction == forOutput || f.typ.Kind() != reflect.Pointer) {
			s.Required = append(s.Required, f.name)
		}
	}
	return s
}

func (r *reflector) field(f field, at string) *schema {
	if at != "" {
		at += "."
	}
	if f.quoted {
		return &schema{Type: "string"}
	}
	s := r.schema(f.typ, at+f.name)
	if names, ok := s.Type.([]string); ok && f.omitsNil {
		s.Type = names[0]
	}
	return s
}
