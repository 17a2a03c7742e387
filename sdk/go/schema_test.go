package carrel_test

import (
	"encoding/json"
	"testing"
	"time"

	carrel "github.com/carrelhost/carrel/sdk/go"
)

// declared returns the schemas of a handler's params and output.
func declared[In, Out any](t *testing.T) (params, output string) {
	t.Helper()
	p := carrel.Plugin{Name: "p", Version: "1", Services: []carrel.Service{{
		Name: "S", Methods: []carrel.Method{carrel.Handler("m", "", func(*carrel.Context, In) (out Out, err error) { return out, nil })},
	}}}
	raw, err := p.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	var m struct {
		Services []struct {
			Methods []struct{ Params, Output json.RawMessage }
		}
	}
	if err := json.Unmarshal(raw, &m); err != nil {
		t.Fatal(err)
	}
	method := m.Services[0].Methods[0]
	return string(method.Params), string(method.Output)
}

type inner struct {
	City string `json:"city"`
}

type hidden struct {
	Shown string
}

type shadowed struct {
	Name  int    `json:"name"`
	Other string `json:"other"`
}

type level int8

func (l level) MarshalText() ([]byte, error) { return []byte("low"), nil }

type opaque struct{ inner }

func (opaque) MarshalJSON() ([]byte, error) { return []byte(`[1]`), nil }

// pair has the schemas of one type, going in and coming out.
type pair struct{ params, output string }

func both[T any](t *testing.T) pair {
	t.Helper()
	params, _ := declared[T, string](t)
	_, output := declared[struct{}, T](t)
	return pair{params, output}
}

func TestSchemasOfTypes(t *testing.T) {
	for name, tc := range map[string]struct {
		got  func(*testing.T) pair
		want pair
	}{
		"no members": {both[struct{}], pair{`{"type":"object"}`, `{"type":"object"}`}},
		"scalars have their types, and small integers their bounds": {both[struct {
			S string  `json:"s"`
			B bool    `json:"b"`
			I int     `json:"i"`
			J int8    `json:"j"`
			U uint16  `json:"u"`
			V uint64  `json:"v"`
			F float32 `json:"f"`
		}], same(`{"type":"object","properties":{"s":{"type":"string"},"b":{"type":"boolean"},"i":{"type":"integer"},` +
			`"j":{"type":"integer","minimum":-128,"maximum":127},"u":{"type":"integer","minimum":0,"maximum":65535},` +
			`"v":{"type":"integer","minimum":0},"f":{"type":"number"}},"required":["s","b","i","j","u","v","f"]}`)},
		"a member with omitempty or omitzero is not required": {both[struct {
			A string    `json:"a,omitempty"`
			B time.Time `json:"b,omitzero"`
			C string    `json:"c"`
		}], same(`{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"string","format":"date-time"},` +
			`"c":{"type":"string"}},"required":["c"]}`)},
		"the tag desc is a description, as it stands": {both[struct {
			A string `json:"a" desc:"<who> \"exactly\""`
		}], same(`{"type":"object","properties":{"a":{"type":"string","description":"<who> \"exactly\""}},"required":["a"]}`)},
		"a pointer may be left out of params, and is null in an output": {both[struct {
			A *int   `json:"a"`
			B *inner `json:"b,omitempty"`
		}], pair{
			`{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}}}`,
			`{"type":"object","properties":{"a":{"type":["integer","null"]},"b":{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}},"required":["a"]}`,
		}},
		"slices and maps are null in an output when they are nil": {both[struct {
			L []string         `json:"l"`
			M map[string]inner `json:"m"`
			O []int            `json:"o,omitempty"`
			D []byte           `json:"d"`
			A [2]bool          `json:"a"`
		}], pair{
			`{"type":"object","properties":{"l":{"type":"array","items":{"type":"string"}},` +
				`"m":{"type":"object","additionalProperties":{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}},` +
				`"o":{"type":"array","items":{"type":"integer"}},"d":{"type":"string","contentEncoding":"base64"},` +
				`"a":{"type":"array","items":{"type":"boolean"},"minItems":2,"maxItems":2}},"required":["l","m","d","a"]}`,
			`{"type":"object","properties":{"l":{"type":["array","null"],"items":{"type":"string"}},` +
				`"m":{"type":["object","null"],"additionalProperties":{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}},` +
				`"o":{"type":"array","items":{"type":"integer"}},"d":{"type":["string","null"],"contentEncoding":"base64"},` +
				`"a":{"type":"array","items":{"type":"boolean"},"minItems":2,"maxItems":2}},"required":["l","m","d","a"]}`,
		}},
		"types with a JSON form of their own": {both[struct {
			R json.RawMessage `json:"r"`
			N json.Number     `json:"n"`
			X any             `json:"x"`
			L level           `json:"l"`
			O opaque          `json:"o"`
			Q int             `json:"q,string"`
		}], same(`{"type":"object","properties":{"r":{},"n":{"type":"number"},"x":{},"l":{"type":"string"},"o":{},"q":{"type":"string"}},` +
			`"required":["r","n","x","l","o","q"]}`)},
		"names are those of encoding/json": {both[struct {
			Plain   string
			Tagged  string `json:"tagged"`
			Skipped string `json:"-"`
			private string
		}], same(`{"type":"object","properties":{"Plain":{"type":"string"},"tagged":{"type":"string"}},` +
			`"required":["Plain","tagged"]}`)},
		"embedded structs give their members, the outer ones first": {both[struct {
			hidden
			shadowed
			Name  string `json:"name"`
			Inner inner  `json:"inner"`
		}], same(`{"type":"object","properties":{"Shown":{"type":"string"},"other":{"type":"string"},"name":{"type":"string"},` +
			`"inner":{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}},"required":["Shown","other","name","inner"]}`)},
		"an embedded pointer's members may be missing": {both[struct {
			*Outer
		}], same(`{"type":"object","properties":{"x":{"type":"string"}}}`)},
		"one type may stand in several places": {both[struct {
			A inner `json:"a"`
			B inner `json:"b"`
		}], same(`{"type":"object","properties":{"a":{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]},` +
			`"b":{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}},"required":["a","b"]}`)},
	} {
		t.Run(name, func(t *testing.T) {
			got := tc.got(t)
			if got.params != tc.want.params {
				t.Errorf("params\n got %s\nwant %s", got.params, tc.want.params)
			}
			if got.output != tc.want.output {
				t.Errorf("output\n got %s\nwant %s", got.output, tc.want.output)
			}
		})
	}
}

// Outer is exported: encoding/json cannot fill in an embedded pointer to a
// type that is not.
type Outer struct {
	X string `json:"x"`
}

func same(s string) pair { return pair{s, s} }

func TestOutputsThatAreNoStructs(t *testing.T) {
	type word string
	for name, tc := range map[string]struct {
		got  func(*testing.T) string
		want string
	}{
		"a string is text":         {outputOf[string], `{"type":"string"}`},
		"so is a type made of one": {outputOf[word], `{"type":"string"}`},
		"a number":                 {outputOf[json.Number], `{"type":"number"}`},
		"a list that may be nil":   {outputOf[[]inner], `{"type":["array","null"],"items":{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}}`},
		"a pointer to a string":    {outputOf[*string], `{"type":["string","null"]}`},
		"anything":                 {outputOf[any], `{}`},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.got(t); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

func outputOf[T any](t *testing.T) string {
	t.Helper()
	_, output := declared[struct{}, T](t)
	return output
}
