package strictjson

import (
	"bytes"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/carrelhost/carrel/abi"
)

// Into decodes one JSON value into dst, a pointer to a struct with json tags
// or to anything else that JSON decodes into. Member names match exactly, in
// case too; a member that dst does not have is refused. Inside a field of type
// any, and for json.Number, numbers keep the text that was sent. dst is
// undefined after an error.
//
// Its error is a *carrel.Error: malformed_json or limit_exceeded as of Value, or
// bad_request for a member that dst does not know or a value of another type,
// with the JSON pointer in the one fault.
func Into(b []byte, dst any, depth int) error {
	const op = "strictjson.Into"
	// The first pass judges what the second has no options for: depth, the
	// count of values and numbers, also in members that dst takes as raw bytes.
	if _, err := Value(b, depth); err != nil {
		return err
	}
	err := json.Unmarshal(b, dst,
		json.RejectUnknownMembers(true),
		json.MatchCaseInsensitiveNames(false),
		jsontext.AllowDuplicateNames(false),
		jsontext.AllowInvalidUTF8(false),
		json.WithUnmarshalers(json.JoinUnmarshalers(
			json.UnmarshalFromFunc(func(d *jsontext.Decoder, v *any) (err error) {
				*v, err = newReader(d, DefaultValues).value(depth)
				return err
			}),
			json.UnmarshalFromFunc(intoNumber),
		)))
	if err == nil {
		return nil
	}
	s, ok := errors.AsType[*json.SemanticError](err)
	if !ok {
		return asError(op, err)
	}
	pointer := string(s.JSONPointer)
	switch {
	case errors.Is(s.Err, json.ErrUnknownName):
		return failure(op, abi.BadRequest, pointer, "there is no such member here; names are exact, in case too")
	case s.GoType != nil:
		return failure(op, abi.BadRequest, pointer, fmt.Sprintf("%s is expected here", expected(s.GoType)))
	default:
		return failure(op, abi.BadRequest, pointer, "this value is not acceptable here")
	}
}

func intoNumber(d *jsontext.Decoder, n *stdjson.Number) error {
	raw, err := d.ReadValue()
	if err != nil {
		return err
	}
	if raw.Kind() != '0' {
		return errors.New("not a number")
	}
	*n = stdjson.Number(bytes.Clone(raw))
	return nil
}

// expected says in JSON's words what decodes into a Go type.
func expected(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[stdjson.Number]():
		return "a number"
	case reflect.TypeFor[time.Time]():
		return "a time such as 2026-01-31T12:00:00Z (RFC 3339)"
	}
	switch t.Kind() {
	case reflect.Pointer:
		return expected(t.Elem())
	case reflect.Bool:
		return "a boolean"
	case reflect.String:
		return "a string"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return fmt.Sprintf("an integer of at most %d bits", t.Bits())
	case reflect.Float32, reflect.Float64:
		return "a number that fits a 64-bit float"
	case reflect.Slice, reflect.Array:
		return "an array"
	case reflect.Struct, reflect.Map:
		return "an object"
	default:
		return "another value"
	}
}
