package schema

import (
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"github.com/carrelhost/carrel"
)

// maxParamFaults bounds the faults of one validation.
const maxParamFaults = 20

// compileFaults takes the faults out of the library's error.
func compileFaults(err error) []carrel.Fault {
	if invalid, ok := errors.AsType[*jsonschema.SchemaValidationError](err); ok {
		if failed, ok := errors.AsType[*jsonschema.ValidationError](invalid.Err); ok {
			return paramFaults(failed)
		}
	}
	return []carrel.Fault{{Message: "the schema cannot be used: " + strings.ReplaceAll(err.Error(), location, "")}}
}

// paramFaults returns the failures at the leaves of the library's error tree,
// by pointer, each once.
func paramFaults(failed *jsonschema.ValidationError) []carrel.Fault {
	var out []carrel.Fault
	collect(failed, &out)
	slices.SortStableFunc(out, func(a, b carrel.Fault) int { return strings.Compare(a.Pointer, b.Pointer) })
	out = slices.Compact(out)
	if n := len(out); n > maxParamFaults {
		out = append(out[:maxParamFaults-1:maxParamFaults-1], carrel.Fault{Message: fmt.Sprintf("there are %d more faults", n-maxParamFaults+1)})
	}
	return out
}

func collect(e *jsonschema.ValidationError, out *[]carrel.Fault) {
	at := ""
	for _, token := range e.InstanceLocation {
		at = pointer(at, token)
	}
	add := func(at, format string, args ...any) {
		*out = append(*out, carrel.Fault{Pointer: at, Message: fmt.Sprintf(format, args...)})
	}
	switch k := e.ErrorKind.(type) {
	case *kind.Required:
		for _, name := range k.Missing {
			add(pointer(at, name), "this member is missing")
		}
	case *kind.DependentRequired:
		for _, name := range k.Missing {
			add(pointer(at, name), "this member is missing; %s needs it", quote(k.Prop))
		}
	case *kind.AdditionalProperties:
		for _, name := range k.Properties {
			add(pointer(at, name), "there is no such member here")
		}
	case *kind.PropertyNames:
		add(pointer(at, k.Property), "this name is not allowed here")
	case *kind.AnyOf:
		add(at, "none of the alternatives matches (%s)", alternatives(e))
	case *kind.OneOf:
		if len(k.Subschemas) > 0 {
			add(at, "more than one of the alternatives matches; exactly one must")
		} else {
			add(at, "none of the alternatives matches (%s)", alternatives(e))
		}
	case *kind.Contains, *kind.MinContains:
		add(at, "too few elements are as they must be")
	default:
		if len(e.Causes) == 0 {
			add(at, "%s", expectation(e.ErrorKind))
			return
		}
		for _, c := range e.Causes {
			collect(c, out)
		}
	}
}

// alternatives says what the first branches of anyOf or oneOf expect.
func alternatives(e *jsonschema.ValidationError) string {
	const most = 5
	var texts []string
	for _, c := range e.Causes {
		var faults []carrel.Fault
		if _, nested := c.ErrorKind.(*kind.AnyOf); !nested {
			collect(c, &faults)
		}
		if len(faults) > 0 && !slices.Contains(texts, faults[0].Message) {
			texts = append(texts, faults[0].Message)
		}
		if len(texts) == most {
			break
		}
	}
	if len(texts) == 0 {
		return "see the method's description"
	}
	return strings.Join(texts, "; or ")
}

// expectation says in plain words what a keyword wants.
func expectation(k jsonschema.ErrorKind) string {
	switch k := k.(type) {
	case *kind.Type:
		return "type " + strings.Join(k.Want, " or ") + " is expected, not " + k.Got
	case *kind.Enum:
		return "one of " + shortList(k.Want) + " is expected"
	case *kind.Const:
		return short(k.Want) + " is expected"
	case *kind.FalseSchema:
		return "nothing is allowed here"
	case *kind.Not:
		return "this value is excluded by the schema"
	case *kind.MinProperties:
		return fmt.Sprintf("at least %d members are expected, not %d", k.Want, k.Got)
	case *kind.MaxProperties:
		return fmt.Sprintf("at most %d members are allowed, not %d", k.Want, k.Got)
	case *kind.MinItems:
		return fmt.Sprintf("at least %d elements are expected, not %d", k.Want, k.Got)
	case *kind.MaxItems:
		return fmt.Sprintf("at most %d elements are allowed, not %d", k.Want, k.Got)
	case *kind.UniqueItems:
		return fmt.Sprintf("elements must differ, but %d and %d are equal", k.Duplicates[0], k.Duplicates[1])
	case *kind.MaxContains:
		return fmt.Sprintf("at most %d such elements are allowed, not %d", k.Want, len(k.Got))
	case *kind.MinLength:
		return fmt.Sprintf("at least %d characters are expected, not %d", k.Want, k.Got)
	case *kind.MaxLength:
		return fmt.Sprintf("at most %d characters are allowed, not %d", k.Want, k.Got)
	case *kind.Pattern:
		return "text that matches " + quote(k.Want) + " is expected"
	case *kind.Minimum:
		return "a number of at least " + decimal(k.Want) + " is expected"
	case *kind.Maximum:
		return "a number of at most " + decimal(k.Want) + " is expected"
	case *kind.ExclusiveMinimum:
		return "a number above " + decimal(k.Want) + " is expected"
	case *kind.ExclusiveMaximum:
		return "a number below " + decimal(k.Want) + " is expected"
	case *kind.MultipleOf:
		return "a multiple of " + decimal(k.Want) + " is expected"
	case *kind.Format:
		return "this is not a valid " + k.Want
	default:
		return "this value does not match the schema"
	}
}

func shortList(list []any) string {
	const most = 10
	texts := make([]string, 0, most)
	for _, v := range list[:min(len(list), most)] {
		texts = append(texts, short(v))
	}
	if more := len(list) - most; more > 0 {
		texts = append(texts, fmt.Sprintf("%d more", more))
	}
	return strings.Join(texts, ", ")
}

// short shows a scalar of the schema.
func short(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case string:
		return quote(v)
	case []any:
		return "a certain array"
	case map[string]any:
		return "a certain object"
	default:
		return quoteFree(fmt.Sprint(v))
	}
}

func quote(s string) string { return strconv.Quote(quoteFree(s)) }

func quoteFree(s string) string {
	const most = 80
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

// decimal shows an exact number as people write it.
func decimal(r *big.Rat) string {
	if r.IsInt() && r.Num().BitLen() < 64 {
		return r.Num().String()
	}
	f, _ := r.Float64()
	return strconv.FormatFloat(f, 'g', -1, 64)
}
