package carrel

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
)

// payload is what a method takes or returns.
type payload struct {
	schema func() (json.RawMessage, error)
	of     reflect.Type // of a handler's params; nil of anything else
	text   bool         // plain text, not JSON
}

// Handler returns a method that is the plugin's own code. In is the struct
// type of the params; struct{} if there are none. Out of kind string is the
// text that the method returns; any other Out is returned as JSON.
//
// The schemas that callers see are made of the two types, by the rules of
// encoding/json: a member is required unless its tag says omitempty or
// omitzero or, in params, its type is a pointer. The tag desc is its
// description. In an output a pointer, slice or map that is not omitted when
// it is empty may be null. Types that contain themselves have no schema; use
// json.RawMessage for such a part.
//
// What f returns as an error is the call's failure: an *Error with its own
// code, any other with the code "failed".
func Handler[In, Out any](name, description string, f func(ctx *Context, in In) (Out, error)) Method {
	in, out := reflect.TypeFor[In](), reflect.TypeFor[Out]()
	m := Method{
		name: name, description: description,
		params: payload{of: in, schema: func() (json.RawMessage, error) { return schemaOf(in, forParams) }},
		output: payload{schema: func() (json.RawMessage, error) { return schemaOf(out, forOutput) }},
	}
	if out.Kind() == reflect.String && !isJSONValue(out) {
		m.output = textPayload
	}
	if f == nil {
		return m // a fault of the manifest
	}
	warm[In, Out]()
	m.handle = func(ctx *Context) error {
		raw, err := ctx.host.Input()
		if err != nil {
			return err
		}
		var params In
		if err := json.Unmarshal(raw, &params); err != nil {
			return Fail("invalid_params", fmt.Sprintf("the params do not fit the handler's type: %v", err))
		}
		result, err := f(ctx, params)
		if err != nil {
			return err
		}
		if m.output.text {
			return ctx.host.Output([]byte(reflect.ValueOf(result).String()))
		}
		b, err := encode(result)
		if err != nil {
			return fmt.Errorf("encode the output: %w", err)
		}
		return ctx.host.Output(b)
	}
	return m
}

// warm makes encoding/json build what it keeps about the two types. It runs
// while the package is initialised, so the result is in the snapshot and no
// call pays for it. Marshalers of the user's may panic on a zero value; that
// is no reason to fail.
func warm[In, Out any]() {
	defer func() { _ = recover() }()
	_ = json.Unmarshal([]byte("{}"), new(In))
	_, _ = encode(*new(Out))
}

// encode returns JSON as it is, without the escapes that HTML would need.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
