package carrel

import (
	"reflect"
	"slices"
	"strings"
)

// field is a member of a struct's JSON.
type field struct {
	name        string
	typ         reflect.Type
	description string
	optional    bool // it may be left out
	omitsNil    bool // it is left out when it is nil
	quoted      bool // the tag's option string: a number or boolean as text
	tagged      bool // the name is the tag's
	depth       int  // of embedding
}

// fieldsOf returns what encoding/json makes members of, in the order of the
// struct: of fields with one name the least deeply embedded, and of several at
// that depth the one whose tag says the name, or none.
func fieldsOf(t reflect.Type) []field {
	all := appendFields(nil, t, field{}, []reflect.Type{t})
	var out []field
	for i, f := range all {
		if wins(all, i) {
			out = append(out, f)
		}
	}
	return out
}

// wins reports whether no other field takes the name of the i-th.
func wins(all []field, i int) bool {
	for j, other := range all {
		switch f := all[i]; {
		case j == i || other.name != f.name || other.depth > f.depth:
		case other.depth < f.depth, other.tagged || !f.tagged:
			return false
		}
	}
	return true
}

// appendFields adds the fields of a struct type; outer tells of the field that
// embeds it, and around holds the struct types that do.
func appendFields(out []field, t reflect.Type, outer field, around []reflect.Type) []field {
	for i := range t.NumField() {
		sf := t.Field(i)
		tag := sf.Tag.Get("json")
		embedded := sf.Type
		if sf.Anonymous && embedded.Kind() == reflect.Pointer {
			embedded = embedded.Elem()
		}
		isStruct := sf.Anonymous && embedded.Kind() == reflect.Struct
		if tag == "-" || !sf.IsExported() && !isStruct {
			continue
		}
		name, options, _ := strings.Cut(tag, ",")
		list := strings.Split(options, ",")
		f := field{
			name: name, typ: sf.Type, description: sf.Tag.Get("desc"), tagged: name != "", depth: outer.depth,
			optional: outer.optional || slices.Contains(list, "omitempty") || slices.Contains(list, "omitzero"),
			quoted:   slices.Contains(list, "string") && isScalar(sf.Type.Kind()),
		}
		f.omitsNil = f.optional
		if isStruct && name == "" {
			if !slices.Contains(around, embedded) {
				// A nil embedded pointer leaves all of its members out.
				inner := field{depth: outer.depth + 1, optional: outer.optional || sf.Type != embedded}
				out = appendFields(out, embedded, inner, append(slices.Clip(around), embedded))
			}
			continue
		}
		if !sf.IsExported() {
			continue
		}
		if name == "" {
			f.name = sf.Name
		}
		out = append(out, f)
	}
	return out
}

func isScalar(k reflect.Kind) bool {
	return k >= reflect.Bool && k <= reflect.Float64 && k != reflect.Uintptr || k == reflect.String
}
