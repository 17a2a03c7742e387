// Package schema validates params against the JSON Schemas (draft 2020-12) of
// manifests. Schemas and params are both outsiders' bytes, so the cost of a
// validation is bounded before it begins: nothing is loaded from anywhere,
// recursion is refused, and the most work that one value can cause is computed
// when a schema is compiled.
package schema

import (
	"errors"
	"fmt"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
)

// The bounds of schemas. The first ones make a schema invalid.
const (
	// MaxDepth is how deep a schema's JSON may be nested.
	MaxDepth = 32
	// MaxWeight bounds the program sizes of a schema's patterns, and the
	// subschemas that one value of the params can meet after every $ref is
	// replaced by what it names.
	MaxWeight = 5000
	// MaxNameBytes bounds the names of keywords and of subschemas. It is the
	// limit schemaNameBytes.
	MaxNameBytes = 256
	// MaxPatternBytes bounds one regular expression.
	MaxPatternBytes = 1024
	// MaxWork bounds a validation's time, in units of about ten nanoseconds:
	// what a schema can cost per value and per byte, times the values and the
	// bytes of the params.
	MaxWork = 1 << 27
	// MaxEvaluations bounds a validation's memory: (value, subschema) pairs
	// that may be looked at. Each can leave an error behind before the first
	// one is reported.
	MaxEvaluations = 1 << 19
)

// maxExplained bounds the failures that a validation may have to collect to
// say where the faults are; beyond it the answer is only that there are some.
const maxExplained = 1 << 16

// maxInVain bounds the failures that a validation may have to collect of
// params that match in the end, as where one of several schemas has to hold;
// beyond it they are asked first whether they match, without collecting any.
const maxInVain = 1 << 8

// location is the made-up address of the schema; nothing is ever loaded.
const location = "schema:params"

// Schema is a compiled schema. It is read-only and safe for concurrent use.
type Schema struct {
	compiled *jsonschema.Schema
	negated  *jsonschema.Schema // "not" of it: validates without collecting errors
	weight   weight
}

// Validate checks v, a value of strictjson.Value that was decoded from size
// bytes of JSON. It does not change v.
//
// Its error is a *carrel.Error: invalid_params with one fault per failure (20
// at most), or limit_exceeded (schemaWork) for params that are too large to be
// checked against this schema.
func (s *Schema) Validate(v any, size int) error {
	n := int64(values(v))
	if s.weight.work(int64(size), n) > MaxWork || times(s.weight.evaluations, n) > MaxEvaluations {
		return carrel.FailLimit("schema.Validate", abi.LimitExceeded, "schemaWork", fmt.Sprintf(
			"params of %d bytes are too much work for this method's params schema (limit schemaWork); send smaller params, or simplify the schema", size))
	}
	failures := times(s.weight.failures, n)
	if failures > maxInVain && s.holds(v) {
		return nil
	}
	if failures > maxExplained {
		return invalidParams([]carrel.Fault{{Message: "the params do not match the method's schema; they are too large to say where"}})
	}
	err := s.compiled.Validate(v)
	if err == nil {
		return nil
	}
	if failed, ok := errors.AsType[*jsonschema.ValidationError](err); ok {
		return invalidParams(paramFaults(failed))
	}
	return fmt.Errorf("schema.Validate: the schema refuses without a reason: %w", err)
}

// holds only says yes or no, and collects no faults on the way: "not" of the
// schema fails when the schema holds.
func (s *Schema) holds(v any) bool { return s.negated.Validate(v) != nil }

// values counts the JSON values in v.
func values(v any) int {
	n := 1
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			n += values(e)
		}
	case map[string]any:
		for _, e := range v {
			n += 1 + values(e) // a name is a value for propertyNames
		}
	}
	return n
}

type noLoader struct{}

func (noLoader) Load(string) (any, error) {
	return nil, errors.New("a $ref may only point into the schema itself")
}

// invalid refuses a schema; limit names the bound that it exceeds, or is empty.
func invalid(limit string, faults ...carrel.Fault) error {
	const most = 20
	if n := len(faults); n > most {
		faults = append(faults[:most:most], carrel.Fault{Message: fmt.Sprintf("there are %d more faults", n-most)})
	}
	return &carrel.Error{Op: "schema.Compile", Code: abi.InvalidManifest, Limit: limit, Faults: faults,
		Msg: "the schema is not acceptable: " + describe(faults[0])}
}

func invalidParams(faults []carrel.Fault) error {
	texts := make([]string, 0, len(faults))
	for _, f := range faults[:min(len(faults), 3)] {
		texts = append(texts, describe(f))
	}
	return &carrel.Error{Op: "schema.Validate", Code: abi.InvalidParams, Faults: faults,
		Msg: "the params do not match the method's schema: " + strings.Join(texts, "; ")}
}

func describe(f carrel.Fault) string {
	if f.Pointer == "" {
		return f.Message
	}
	return f.Pointer + ": " + f.Message
}
