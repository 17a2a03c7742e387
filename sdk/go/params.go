package carrel

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
)

// EncodeParams encodes a value as params that the schema of its type accepts:
// as encoding/json does, but that what is nil is left out where a handler's
// params may leave it out, and is empty where they may not, [], {} or "". A
// nil of an interface stays null. The caller owns the result.
func EncodeParams(v any) ([]byte, error) {
	raw, err := encode(v)
	if err != nil || v == nil || !bytes.Contains(raw, []byte("null")) {
		return raw, err
	}
	return withoutNil(raw, reflect.TypeOf(v))
}

// withoutNil takes out of the JSON of a value of type t what is null in it
// because it was nil.
func withoutNil(raw json.RawMessage, t reflect.Type) (json.RawMessage, error) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	isNull := string(raw) == "null"
	switch {
	case t == timeType || isJSONValue(t) || implements(t, textMarshal, textUnmarshal):
		return raw, nil
	case t.Kind() == reflect.Slice && isNull && isBytes(t):
		return json.RawMessage(`""`), nil
	case t.Kind() == reflect.Slice && isNull:
		return json.RawMessage("[]"), nil
	case t.Kind() == reflect.Map && isNull:
		return json.RawMessage("{}"), nil
	case isNull:
		return raw, nil
	case t.Kind() == reflect.Array || t.Kind() == reflect.Slice && !isBytes(t):
		return elementsWithoutNil(raw, t.Elem())
	case t.Kind() == reflect.Map:
		return membersWithoutNil(raw, func(string) (reflect.Type, bool) { return t.Elem(), false })
	case t.Kind() == reflect.Struct:
		fields := fieldsOf(t)
		return membersWithoutNil(raw, func(name string) (reflect.Type, bool) {
			for _, f := range fields {
				if f.name == name {
					return f.typ, f.typ.Kind() == reflect.Pointer
				}
			}
			return reflect.TypeFor[any](), false
		})
	default:
		return raw, nil
	}
}

func elementsWithoutNil(raw json.RawMessage, element reflect.Type) (json.RawMessage, error) {
	var list []json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, fmt.Errorf("encode params: %w", err)
	}
	for i := range list {
		var err error
		if list[i], err = withoutNil(list[i], element); err != nil {
			return nil, err
		}
	}
	return encode(list)
}

// membersWithoutNil keeps the order of members. about tells of a member's type,
// and whether it is left out when it is null.
func membersWithoutNil(raw json.RawMessage, about func(name string) (t reflect.Type, omit bool)) (json.RawMessage, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	if _, err := d.Token(); err != nil { // the brace
		return nil, fmt.Errorf("encode params: %w", err)
	}
	var out properties[json.RawMessage]
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return nil, fmt.Errorf("encode params: %w", err)
		}
		name, _ := token.(string)
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, fmt.Errorf("encode params: %w", err)
		}
		t, omit := about(name)
		if omit && string(value) == "null" {
			continue
		}
		if value, err = withoutNil(value, t); err != nil {
			return nil, err
		}
		out = append(out, property[json.RawMessage]{name, value})
	}
	return encode(out)
}
