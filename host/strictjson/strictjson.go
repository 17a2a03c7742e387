// Package strictjson is the one JSON decoder for what outsiders send: request
// bodies, manifests, schemas. It refuses what other decoders let pass:
// duplicate members, invalid UTF-8, data after the value, unbounded depth and
// numbers that a big-number library would choke on.
//
// All functions are safe for concurrent use and keep nothing of their input.
// The caller bounds the input's size. Go values are larger than their JSON, two
// bytes of [] become forty, so the number of values is bounded too.
package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
)

// DefaultDepth is how many objects and arrays may be nested in one another
// where the caller has no reason for another bound.
const DefaultDepth = 64

// DefaultValues is how many JSON values one document may hold where the caller
// has no reason for another bound: objects, arrays and what is in them, names
// not counted. Reading them takes 30 MB at most, the text of strings aside. It
// is the limit jsonValues.
const DefaultValues = 100_000

// Bounds are what a document may grow to.
type Bounds struct {
	Depth  int // objects and arrays that are nested in one another
	Values int // JSON values; 0 = DefaultValues
}

// MaxDigits and MaxExponent bound numbers: exact arithmetic on 1e1000000000
// would take all memory, and no float64 is outside of them.
const (
	MaxDigits   = 400
	MaxExponent = 400
)

// Value decodes one JSON value: nil, bool, string, json.Number, []any and
// map[string]any. Numbers keep the text that was sent. At most depth objects
// and arrays may be nested, and DefaultValues values be in it. The caller owns
// the result.
//
// Its error is a *carrel.Error with code malformed_json, or limit_exceeded
// (jsonValues) for too many values; the message has the byte offset, the one
// fault the JSON pointer.
func Value(b []byte, depth int) (any, error) {
	return ValueWithin(b, Bounds{Depth: depth})
}

// ValueWithin is Value within other bounds.
func ValueWithin(b []byte, bounds Bounds) (any, error) {
	r := newReader(newDecoder(bytes.NewReader(b)), bounds.Values)
	v, err := r.value(bounds.Depth)
	if err != nil {
		return nil, asError("strictjson.Value", err)
	}
	if err := atEnd(r.d); err != nil {
		return nil, asError("strictjson.Value", err)
	}
	return v, nil
}

// Object is Value for places where only an object makes sense.
func Object(b []byte, depth int) (map[string]any, error) {
	v, err := Value(b, depth)
	if err != nil {
		return nil, err
	}
	o, ok := v.(map[string]any)
	if !ok {
		return nil, failure("strictjson.Object", abi.MalformedJSON, "", "a JSON object is expected, not "+KindOf(v))
	}
	return o, nil
}

// KindOf names the JSON type of a decoded value, with its article, for
// messages.
func KindOf(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "a boolean"
	case string:
		return "a string"
	case json.Number:
		return "a number"
	case []any:
		return "an array"
	case map[string]any:
		return "an object"
	default:
		return fmt.Sprintf("a %T", v)
	}
}

func newDecoder(r io.Reader) *jsontext.Decoder {
	return jsontext.NewDecoder(r, jsontext.AllowDuplicateNames(false), jsontext.AllowInvalidUTF8(false))
}

// reader reads values until there are too many.
type reader struct {
	d          *jsontext.Decoder
	left, most int // values
}

func newReader(d *jsontext.Decoder, values int) *reader {
	if values == 0 {
		values = DefaultValues
	}
	return &reader{d, values, values}
}

// value reads the next value; depth is what is left of the nesting.
func (r *reader) value(depth int) (any, error) {
	d := r.d
	t, err := d.ReadToken()
	if err != nil {
		return nil, err
	}
	if r.left--; r.left < 0 {
		e := refusal(d, fmt.Sprintf("it has more than %d values (limit jsonValues); send fewer at once", r.most))
		e.limit = "jsonValues"
		return nil, e
	}
	switch t.Kind() { //nolint:exhaustive // what begins and ends objects and arrays is below
	case 'n':
		var null any
		return null, nil
	case 't', 'f':
		return t.Bool(), nil
	case '"':
		return t.String(), nil
	case '0':
		text := t.String()
		if fault := numberFault(text); fault != "" {
			return nil, refusal(d, fault)
		}
		return json.Number(text), nil
	}
	if depth <= 0 {
		return nil, refusal(d, "objects and arrays are nested too deeply")
	}
	if t.Kind() == '[' {
		list := []any{}
		for d.PeekKind() != ']' {
			v, err := r.value(depth - 1)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err := d.ReadToken()
		return list, err
	}
	object := map[string]any{}
	for d.PeekKind() != '}' {
		name, err := d.ReadToken()
		if err != nil {
			return nil, err
		}
		key := name.String()
		v, err := r.value(depth - 1)
		if err != nil {
			return nil, err
		}
		object[key] = v
	}
	_, err = d.ReadToken()
	return object, err
}

// atEnd reports data after the value.
func atEnd(d *jsontext.Decoder) error {
	_, err := d.ReadToken()
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case err == nil:
		return refusal(d, "there is more after the end of the value")
	default:
		return err
	}
}

// numberFault judges a number that is well-formed JSON.
func numberFault(text string) string {
	digits, exponent := 0, ""
	for i := range len(text) {
		switch c := text[i]; {
		case c >= '0' && c <= '9':
			digits++
		case c == 'e' || c == 'E':
			exponent = text[i+1:]
		}
		if exponent != "" {
			break
		}
	}
	if digits > MaxDigits {
		return fmt.Sprintf("a number has %d digits, at most %d are allowed", digits, MaxDigits)
	}
	if exponent == "" {
		return ""
	}
	if e, err := strconv.Atoi(exponent); err != nil || e > MaxExponent || e < -MaxExponent {
		return fmt.Sprintf("a number's exponent is outside of -%d to %d", MaxExponent, MaxExponent)
	}
	return ""
}

// refused is a fault that the grammar does not know.
type refused struct {
	pointer string
	offset  int64
	message string
	limit   string // the bound that was exceeded, or empty
}

func (r *refused) Error() string { return r.message }

func refusal(d *jsontext.Decoder, message string) *refused {
	return &refused{pointer: string(d.StackPointer()), offset: d.InputOffset(), message: message}
}

func asError(op string, err error) error {
	if r, ok := errors.AsType[*refused](err); ok {
		message := fmt.Sprintf("%s (byte %d)", r.message, r.offset)
		if r.limit == "" {
			return failure(op, abi.MalformedJSON, r.pointer, message)
		}
		e := failure(op, abi.LimitExceeded, r.pointer, message)
		e.Limit, e.Msg = r.limit, "the JSON is too large: "+message
		return e
	}
	s, ok := errors.AsType[*jsontext.SyntacticError](err)
	switch {
	case !ok && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)):
		return failure(op, abi.MalformedJSON, "", "the JSON ends before its value does")
	case !ok:
		return fmt.Errorf("%s: %w", op, err)
	case errors.Is(s.Err, jsontext.ErrDuplicateName):
		return failure(op, abi.MalformedJSON, string(s.JSONPointer), fmt.Sprintf("this member is there twice (byte %d)", s.ByteOffset))
	case errors.Is(s.Err, io.ErrUnexpectedEOF):
		return failure(op, abi.MalformedJSON, string(s.JSONPointer), fmt.Sprintf("the JSON ends before its value does (byte %d)", s.ByteOffset))
	default:
		return failure(op, abi.MalformedJSON, string(s.JSONPointer), fmt.Sprintf("%v (byte %d)", s.Err, s.ByteOffset))
	}
}

// failure makes an error with one fault. Pointers repeat names of the input,
// so an overlong one is left out.
func failure(op string, code abi.Code, pointer, message string) *carrel.Error {
	const mostPointer = 1024
	if len(pointer) > mostPointer {
		pointer = ""
	}
	e := carrel.Fail(op, code, "not acceptable as JSON: "+message)
	if code != abi.MalformedJSON {
		e.Msg = message
	}
	e.Faults = []carrel.Fault{{Pointer: pointer, Message: message}}
	return e
}
