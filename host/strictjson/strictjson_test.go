package strictjson_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/strictjson"
)

func nested(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }

func TestValueKeepsWhatWasSent(t *testing.T) {
	for name, tc := range map[string]struct {
		in   string
		want any
	}{
		"numbers keep their text": {
			`[1.0, 12345678901234567890, -0, 1E+2]`,
			[]any{json.Number("1.0"), json.Number("12345678901234567890"), json.Number("-0"), json.Number("1E+2")},
		},
		"the largest exponent is 400":     {`1e400`, json.Number("1e400")},
		"four hundred digits are allowed": {strings.Repeat("1", 400), json.Number(strings.Repeat("1", 400))},
		"escapes are decoded":             {`"a\u0000é"`, "a\x00é"},
		"the allowed depth is allowed":    {nested(3), []any{[]any{[]any{}}}},
		"white space around is allowed":   {" \n{\"a\":null} ", map[string]any{"a": nil}},
		"names in other case are others":  {`{"a":true,"A":false}`, map[string]any{"a": true, "A": false}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := strictjson.Value([]byte(tc.in), 3)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, tc.want) {
				t.Errorf("got %#v, want %#v", got, tc.want)
			}
		})
	}
}

func TestValueRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		in, pointer, message string
	}{
		"a duplicate member":                     {`{"a":{"b":1,"b":2}}`, "/a/b", "twice (byte"},
		"a duplicate member in another spell":    {`{"a":1,"\u0061":2}`, "/a", "twice"},
		"invalid UTF-8":                          {"[\"\xff\"]", "/0", "UTF-8"},
		"half a surrogate":                       {`"\ud800"`, "", "surrogate"},
		"data after the value":                   {`{} {}`, "", "more after the end"},
		"garbage after the value":                {`{} x`, "", "byte 3"},
		"nothing":                                {``, "", "ends before"},
		"a value that is cut off":                {`{"a":[1`, "/a", "ends before"},
		"one level too many":                     {`{"a":` + nested(3) + `}`, "/a/0/0", "too deeply"},
		"ten thousand levels":                    {nested(10000), "/0/0/0", "too deeply"},
		"an exponent bomb":                       {`{"n":1e1000000000}`, "/n", "exponent"},
		"an exponent that no int can hold":       {`1e99999999999999999999`, "", "exponent"},
		"a negative exponent bomb":               {`1E-1000000000`, "", "exponent"},
		"an exponent of 401":                     {`1e401`, "", "exponent"},
		"401 digits":                             {strings.Repeat("1", 401), "", "401 digits"},
		"401 digits behind the decimal point":    {"0." + strings.Repeat("1", 400), "", "401 digits"},
		"a comma at the end":                     {`[1,]`, "", "byte"},
		"a comment":                              {`{/*x*/}`, "", "byte"},
		"a single quote":                         {`{'a':1}`, "", "byte"},
		"NaN":                                    {`NaN`, "", "byte"},
		"a number with a zero before":            {`01`, "", "byte"},
		"a byte order mark":                      {"\ufeff{}", "", "byte"},
		"a control character inside of a string": {"\"a\nb\"", "", "byte"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := strictjson.Value([]byte(tc.in), 3)
			wantFault(t, err, abi.MalformedJSON, tc.pointer, tc.message)
		})
	}
}

func wantFault(t *testing.T, err error, code abi.Code, pointer, message string) {
	t.Helper()
	e, ok := errors.AsType[*carrel.Error](err)
	if !ok {
		t.Fatalf("want a *carrel.Error, got %v", err)
	}
	if e.Code != code || len(e.Faults) != 1 {
		t.Fatalf("want one fault and code %v, got %v with %v", code, e, e.Faults)
	}
	if f := e.Faults[0]; f.Pointer != pointer || !strings.Contains(f.Message, message) {
		t.Errorf("got fault %q %q, want %q …%s…", f.Pointer, f.Message, pointer, message)
	}
}

// count counts values as Bounds.Values does.
func count(v any) int {
	n := 1
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			n += count(e)
		}
	case map[string]any:
		for _, e := range v {
			n += count(e)
		}
	}
	return n
}

func repeated(s string, n int) string { return "[" + strings.Repeat(s+",", n-1) + s + "]" }

// members is an object of n members.
func members(n int, value string) string {
	parts := make([]string, n)
	for i := range parts {
		parts[i] = fmt.Sprintf(`"%d":%s`, i, value)
	}
	return "{" + strings.Join(parts, ",") + "}"
}

func TestTheCountOfValuesIsBounded(t *testing.T) {
	const most = strictjson.DefaultValues
	for name, tc := range map[string]struct {
		accepted, refused, pointer string
	}{
		"scalars":                {repeated("1", most-1), repeated("1", most), "/99999"},
		"empty arrays":           {repeated("[]", most-1), repeated("[]", most), "/99999"},
		"arrays in one another":  {repeated("[[0]]", most/3), repeated("[[0]]", most/3+1), "/33333"},
		"members, without names": {members(most-1, "1"), members(most, "1"), "/99999"},
		"objects of one member":  {repeated(`{"a":null}`, most/2-1), repeated(`{"a":null}`, most/2), "/49999/a"},
	} {
		t.Run(name, func(t *testing.T) {
			v, err := strictjson.Value([]byte(tc.accepted), 5)
			if err != nil || count(v) > most {
				t.Errorf("got %d values, %v", count(v), err)
			}
			for _, decode := range []func(string) error{
				func(s string) error { _, err := strictjson.Value([]byte(s), 5); return err },
				func(s string) error { var dst json.RawMessage; return strictjson.Into([]byte(s), &dst, 5) },
				func(s string) error { var dst any; return strictjson.Into([]byte(s), &dst, 5) },
			} {
				err := decode(tc.refused)
				wantFault(t, err, abi.LimitExceeded, tc.pointer, "more than 100000 values (limit jsonValues)")
				if e, ok := errors.AsType[*carrel.Error](err); !ok || e.Limit != "jsonValues" || !strings.Contains(e.Msg, "jsonValues") {
					t.Errorf("got %v", err)
				}
				if err := decode(tc.accepted); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func TestCallersChooseOtherBounds(t *testing.T) {
	bounds := strictjson.Bounds{Depth: 2, Values: 3}
	for in, code := range map[string]abi.Code{
		`[1,2]`:            abi.OK,
		`{"a":{"b":1}}`:    abi.OK,
		`[1,2,3]`:          abi.LimitExceeded,
		`{"a":1,"b":[2]}`:  abi.LimitExceeded,
		`[[[]]]`:           abi.MalformedJSON,
		repeated("1", 1e6): abi.LimitExceeded,
	} {
		if _, err := strictjson.ValueWithin([]byte(in), bounds); carrel.CodeOf(err) != code {
			t.Errorf("%.20s: want %v, got %v", in, code, err)
		}
	}
	if _, err := strictjson.ValueWithin([]byte(repeated("1", 1e6)), strictjson.Bounds{Depth: 1, Values: 1e6 + 1}); err != nil {
		t.Error(err)
	}
}

func TestADocumentTakesLittleMemory(t *testing.T) {
	const most = 32 << 20 // garbage included
	for name, unit := range map[string]string{
		"empty arrays":            "[]",
		"empty objects":           "{}",
		"arrays in one another":   "[[[[0]]]]",
		"objects of one member":   `{"a":0}`,
		"objects of nine members": `{"a":0,"b":0,"c":0,"d":0,"e":0,"f":0,"g":0,"h":0,"i":0}`,
		"objects in one another":  `{"a":{"a":{"a":{}}}}`,
		"numbers":                 "0",
	} {
		t.Run(name, func(t *testing.T) {
			raw := []byte(repeated(unit, 1<<20/(len(unit)+1)))
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, _ = strictjson.Value(raw, strictjson.DefaultDepth)
			runtime.ReadMemStats(&after)
			n := after.TotalAlloc - before.TotalAlloc
			if n > most {
				t.Errorf("decoding %d bytes took %d bytes of memory, want at most %d", len(raw), n, most)
			}
			t.Logf("%d", n)
		})
	}
}

func TestObjectRefusesWhatIsNoObject(t *testing.T) {
	if o, err := strictjson.Object([]byte(`{"a":1}`), 3); err != nil || len(o) != 1 {
		t.Fatalf("got %v, %v", o, err)
	}
	for _, in := range []string{`null`, `[]`, `"x"`, `1`, `true`} {
		_, err := strictjson.Object([]byte(in), 3)
		wantFault(t, err, abi.MalformedJSON, "", "object is expected")
	}
}

type body struct {
	Name  string          `json:"name"`
	Count int8            `json:"count"`
	Any   any             `json:"any"`
	Map   map[string]any  `json:"map"`
	Raw   json.RawMessage `json:"raw"`
	Num   json.Number     `json:"num"`
	List  []string        `json:"list"`
	At    *time.Time      `json:"at"`
	Deep  *struct {
		X bool `json:"x"`
	} `json:"deep"`
}

func TestIntoFillsAStruct(t *testing.T) {
	var got body
	err := strictjson.Into([]byte(`{"name":"n","count":5,"any":1.0,"map":{"big":12345678901234567890},"raw":[1.50],"num":7.0,"list":["a"],"deep":{"x":true}}`), &got, 5)
	if err != nil {
		t.Fatal(err)
	}
	if got.Name != "n" || got.Count != 5 || got.Any != json.Number("1.0") || got.Map["big"] != json.Number("12345678901234567890") ||
		string(got.Raw) != "[1.50]" || got.Num != "7.0" || len(got.List) != 1 || !got.Deep.X {
		t.Errorf("got %+v", got)
	}
}

func TestIntoRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		in      string
		code    abi.Code
		pointer string
		message string
	}{
		"a member that nobody knows":        {`{"nam":"x"}`, abi.BadRequest, "/nam", "no such member"},
		"a member in another case":          {`{"Name":"x"}`, abi.BadRequest, "/Name", "case"},
		"an unknown member deep inside":     {`{"deep":{"y":1}}`, abi.BadRequest, "/deep/y", "no such member"},
		"a number for a string":             {`{"name":1}`, abi.BadRequest, "/name", "a string is expected"},
		"a string for a number":             {`{"num":"1"}`, abi.BadRequest, "/num", "a number is expected"},
		"an integer that is too large":      {`{"count":300}`, abi.BadRequest, "/count", "8 bits"},
		"a fraction for an integer":         {`{"count":1.5}`, abi.BadRequest, "/count", "integer"},
		"an object for an array":            {`{"list":{}}`, abi.BadRequest, "/list", "an array is expected"},
		"a number for a time":               {`{"at":1}`, abi.BadRequest, "/at", "a time such as"},
		"a year that no time has":           {`{"at":"10000-01-01T00:00:00Z"}`, abi.BadRequest, "/at", "a time such as 2026-01-31T12:00:00Z (RFC 3339) is expected"},
		"a day that no month has":           {`{"at":"2026-02-30T00:00:00Z"}`, abi.BadRequest, "/at", "RFC 3339"},
		"an array for the whole":            {`[]`, abi.BadRequest, "", "an object is expected"},
		"a duplicate member in raw bytes":   {`{"raw":{"a":1,"a":2}}`, abi.MalformedJSON, "/raw/a", "twice"},
		"an exponent bomb in raw bytes":     {`{"raw":[1e999999999]}`, abi.MalformedJSON, "/raw/0", "exponent"},
		"too many levels in a field of any": {`{"any":` + nested(9) + `}`, abi.MalformedJSON, "/any/0/0/0/0", "too deeply"},
	} {
		t.Run(name, func(t *testing.T) {
			var got body
			wantFault(t, strictjson.Into([]byte(tc.in), &got, 5), tc.code, tc.pointer, tc.message)
		})
	}
}

// FuzzValue checks that Value accepts nothing that the standard library
// refuses, and that what it returns encodes to the same value again.
func FuzzValue(f *testing.F) {
	for _, s := range []string{`{"a":[1,2.50,"x",null,true]}`, `{"a":1,"a":2}`, `1e1000000000`, "\"\xff\"", nested(70)} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := strictjson.Value(b, 8)
		if err != nil {
			if code := carrel.CodeOf(err); code != abi.MalformedJSON && code != abi.LimitExceeded {
				t.Fatalf("want malformed_json or limit_exceeded, got %v", err)
			}
			return
		}
		if !json.Valid(b) {
			t.Fatalf("%q was accepted", b)
		}
		if n := count(v); n > strictjson.DefaultValues {
			t.Fatalf("%d values were accepted", n)
		}
		again, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		v2, err := strictjson.Value(again, 8)
		if err != nil || !reflect.DeepEqual(v, v2) {
			t.Fatalf("%q became %q: %v", b, again, err)
		}
	})
}
