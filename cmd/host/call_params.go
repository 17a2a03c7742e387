package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/client"
)

// parseParams reads KEY=VALUE and KEY:=JSON.
func parseParams(args []string) (map[string]any, error) {
	out := map[string]any{}
	for _, arg := range args {
		key, value, ok := strings.Cut(arg, "=")
		key, isJSON := strings.CutSuffix(key, ":")
		if !ok || key == "" {
			return nil, usageError{fmt.Errorf("%q is not KEY=VALUE or KEY:=JSON", arg)}
		}
		if _, twice := out[key]; twice {
			return nil, usageError{fmt.Errorf("%q is given twice", key)}
		}
		if !isJSON {
			out[key] = value
			continue
		}
		if !json.Valid([]byte(value)) {
			return nil, usageError{fmt.Errorf("%q: what follows := is not JSON", arg)}
		}
		out[key] = json.RawMessage(value)
	}
	return out, nil
}

// paramsSchema is what a person can get wrong of a method's params.
type paramsSchema struct {
	Properties map[string]struct {
		Type any `json:"type"`
	} `json:"properties"`
	Required             []string        `json:"required"`
	AdditionalProperties json.RawMessage `json:"additionalProperties"`
	PatternProperties    json.RawMessage `json:"patternProperties"`
}

func readSchema(m client.Method) (paramsSchema, error) {
	var s paramsSchema
	if err := json.Unmarshal(m.Params, &s); err != nil {
		return s, fmt.Errorf("the method's params: %w", err)
	}
	return s, nil
}

// warnUnknown says which params the method does not know. A host takes them,
// if the schema does not close itself, and nothing reads them. A schema that
// speaks of other params than its own means them.
func (s paramsSchema) warnUnknown(w io.Writer, params map[string]any) {
	closed := string(s.AdditionalProperties) == "false"
	if s.PatternProperties != nil || s.AdditionalProperties != nil && !closed {
		return
	}
	has := "it has none"
	if len(s.Properties) > 0 {
		has = "it has " + strings.Join(slices.Sorted(maps.Keys(s.Properties)), ", ")
	}
	for _, name := range slices.Sorted(maps.Keys(params)) {
		if _, known := s.Properties[name]; !known {
			fmt.Fprintf(w, "warning: the method has no param %s; %s\n", name, has)
		}
	}
}

// withHints adds to a refusal of params how those are written that were given
// as text and are to be something else.
func (s paramsSchema) withHints(params map[string]any, err error) error {
	p, ok := errors.AsType[*client.Problem](err)
	if !ok || p.Code != abi.InvalidParams.String() {
		return err
	}
	out := *p
	out.Errors = slices.Clone(p.Errors)
	for i, f := range out.Errors {
		name := strings.TrimPrefix(f.Pointer, "/")
		value, isText := params[name].(string)
		kind, isOne := s.Properties[name].Type.(string)
		if !isText || !isOne || kind == "string" {
			continue
		}
		if !json.Valid([]byte(value)) {
			value = strings.ToUpper(kind)
		}
		out.Errors[i].Message += fmt.Sprintf("; write %s:=%s", name, value)
		out.Detail = repeating(out.Detail, f, out.Errors[i].Message)
	}
	return &out
}

// repeating is a detail that still repeats a fault whose message is another
// now: what is shown then has it once.
func repeating(detail string, f carrel.Fault, message string) string {
	at := f.Pointer + ": " + f.Message
	if strings.Contains(detail, at) {
		return strings.Replace(detail, at, f.Pointer+": "+message, 1)
	}
	return strings.Replace(detail, f.Message, message, 1)
}
