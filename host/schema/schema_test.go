package schema_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/schema"
	"github.com/carrelhost/carrel/host/strictjson"
)

func compile(t testing.TB, raw string) *schema.Schema {
	t.Helper()
	s, err := schema.Compile([]byte(raw))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func validate(t testing.TB, s *schema.Schema, raw string) error {
	t.Helper()
	v, err := strictjson.ValueWithin([]byte(raw), strictjson.Bounds{Depth: strictjson.DefaultDepth, Values: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	return s.Validate(v, len(raw))
}

// wantFaults wants a code and exactly the given faults, as pairs of pointer
// and a part of the message.
func wantFaults(t *testing.T, err error, code abi.Code, pairs ...string) {
	t.Helper()
	e, ok := errors.AsType[*carrel.Error](err)
	if !ok || e.Code != code {
		t.Fatalf("want %v, got %v", code, err)
	}
	if len(e.Faults) != len(pairs)/2 {
		t.Errorf("want %d faults", len(pairs)/2)
	}
	for i, f := range e.Faults {
		if 2*i >= len(pairs) || f.Pointer != pairs[2*i] || !strings.Contains(f.Message, pairs[2*i+1]) {
			t.Errorf("fault %d is %q: %q", i, f.Pointer, f.Message)
		}
	}
}

const order = `{"$schema":"https://json-schema.org/draft/2020-12/schema","$id":"https://acme.com/order","type":"object",
	"properties":{
		"id":{"type":"string","pattern":"^[a-z]{2,8}$","maxLength":8},
		"size":{"enum":["S","M",3]},
		"n":{"type":"integer","minimum":1,"maximum":10},
		"lines":{"type":"array","items":{"$ref":"#/$defs/line"},"maxItems":3,"uniqueItems":true},
		"who":{"anyOf":[{"type":"string"},{"type":"null"}]},
		"email":{"format":"email"}},
	"required":["id"],"additionalProperties":false,
	"$defs":{"line":{"$anchor":"line","type":"object","properties":{"sku":{"type":"string"}},"required":["sku"]}}}`

func TestValidateAccepts(t *testing.T) {
	s := compile(t, order)
	for name, in := range map[string]string{
		"the least":                       `{"id":"abc"}`,
		"everything":                      `{"id":"abc","size":3,"n":10,"lines":[{"sku":"x"},{"sku":"y","z":1}],"who":null}`,
		"an integer that is written 1.0":  `{"id":"abc","n":1.0}`,
		"an enum's number in other style": `{"id":"abc","size":3.0}`,
		"a format is only a remark":       `{"id":"abc","email":"nobody"}`,
	} {
		t.Run(name, func(t *testing.T) {
			if err := validate(t, s, in); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestValidateNamesEveryFault(t *testing.T) {
	s := compile(t, order)
	for name, tc := range map[string]struct {
		in   string
		want []string
	}{
		"another type at the root":    {`[]`, []string{"", "type object is expected, not array"}},
		"a missing member":            {`{}`, []string{"/id", "missing"}},
		"a member that is not known":  {`{"id":"abc","a/b~c":1}`, []string{"/a~1b~0c", "no such member"}},
		"several faults at once":      {`{"n":0,"size":"L"}`, []string{"/id", "missing", "/n", "at least 1", "/size", `one of "S", "M", 3 is expected`}},
		"a number that is too large":  {`{"id":"abc","n":1e400}`, []string{"/n", "at most 10"}},
		"a fraction":                  {`{"id":"abc","n":1.5}`, []string{"/n", "type integer is expected, not number"}},
		"text that does not match":    {`{"id":"A"}`, []string{"/id", `"^[a-z]{2,8}$"`}},
		"a fault behind a reference":  {`{"id":"abc","lines":[{"sku":"x"},{"sku":1}]}`, []string{"/lines/1/sku", "type string is expected"}},
		"elements that are equal":     {`{"id":"abc","lines":[{"sku":"x"},{"sku":"x"}]}`, []string{"/lines", "0 and 1 are equal"}},
		"too many elements":           {`{"id":"abc","lines":[{"sku":"1"},{"sku":"2"},{"sku":"3"},{"sku":"4"}]}`, []string{"/lines", "at most 3 elements"}},
		"no alternative that matches": {`{"id":"abc","who":1}`, []string{"/who", "none of the alternatives matches (type string is expected, not number; or type null"}},
	} {
		t.Run(name, func(t *testing.T) {
			wantFaults(t, validate(t, s, tc.in), abi.InvalidParams, tc.want...)
		})
	}
}

func TestValidateOfEachKeyword(t *testing.T) {
	for name, tc := range map[string]struct{ schema, in, pointer, message string }{
		"false":                                 {`{"properties":{"a":false}}`, `{"a":1}`, "/a", "nothing is allowed"},
		"const":                                 {`{"const":"x"}`, `"y"`, "", `"x" is expected`},
		"not":                                   {`{"not":{"type":"null"}}`, `null`, "", "excluded"},
		"oneOf with two":                        {`{"oneOf":[{"type":"number"},{"type":"integer"}]}`, `1`, "", "more than one"},
		"allOf":                                 {`{"allOf":[{"type":"string"},{"minLength":3}]}`, `"ab"`, "", "at least 3 characters"},
		"if and then":                           {`{"if":{"type":"string"},"then":{"maxLength":1}}`, `"ab"`, "", "at most 1 characters"},
		"minProperties":                         {`{"minProperties":2}`, `{"a":1}`, "", "at least 2 members"},
		"maxProperties":                         {`{"maxProperties":0}`, `{"a":1}`, "", "at most 0 members"},
		"minItems":                              {`{"minItems":2}`, `[]`, "", "at least 2 elements"},
		"contains":                              {`{"contains":{"type":"string"}}`, `[1]`, "", "too few elements"},
		"maxContains":                           {`{"contains":{"type":"string"},"maxContains":1}`, `["a","b"]`, "", "at most 1 such"},
		"prefixItems":                           {`{"prefixItems":[{"type":"string"}],"items":false}`, `["a",1]`, "/1", "nothing is allowed"},
		"exclusiveMinimum":                      {`{"exclusiveMinimum":0.5}`, `0.5`, "", "above 0.5"},
		"exclusiveMaximum":                      {`{"exclusiveMaximum":5}`, `5`, "", "below 5"},
		"multipleOf":                            {`{"multipleOf":0.1}`, `0.25`, "", "multiple of 0.1"},
		"patternProperties":                     {`{"patternProperties":{"^x":{"type":"null"}}}`, `{"x1":1}`, "/x1", "type null"},
		"additionalProperties":                  {`{"additionalProperties":{"type":"null"}}`, `{"x":1}`, "/x", "type null"},
		"propertyNames":                         {`{"propertyNames":{"maxLength":1}}`, `{"ab":1}`, "/ab", "name is not allowed"},
		"dependentRequired":                     {`{"dependentRequired":{"a":["b"]}}`, `{"a":1}`, "/b", `"a" needs it`},
		"dependentSchemas":                      {`{"dependentSchemas":{"a":{"required":["c"]}}}`, `{"a":1}`, "/c", "missing"},
		"unevaluatedProperties":                 {`{"properties":{"a":true},"unevaluatedProperties":false}`, `{"b":1}`, "/b", "nothing is allowed"},
		"a reference by anchor":                 {`{"$defs":{"x":{"$anchor":"s","type":"string"}},"$ref":"#s"}`, `1`, "", "type string"},
		"a reference to itself that is escaped": {`{"$defs":{"a b":{"type":"string"}},"$ref":"#/$defs/a%20b"}`, `1`, "", "type string"},
	} {
		t.Run(name, func(t *testing.T) {
			wantFaults(t, validate(t, compile(t, tc.schema), tc.in), abi.InvalidParams, tc.pointer, tc.message)
		})
	}
}

func TestValidateBoundsItsFaults(t *testing.T) {
	s := compile(t, `{"items":{"type":"string"}}`)
	err := validate(t, s, "["+strings.Repeat("1,", 99)+"1]")
	e, ok := errors.AsType[*carrel.Error](err)
	if !ok || len(e.Faults) != 20 || !strings.Contains(e.Faults[19].Message, "81 more") {
		t.Errorf("got %v with %d faults", err, len(e.Faults))
	}
	err = validate(t, s, "["+strings.Repeat("1,", 1<<17)+"1]")
	wantFaults(t, err, abi.InvalidParams, "", "too large to say where")
}

func TestCompileRefuses(t *testing.T) {
	var chain strings.Builder
	chain.WriteString(`{"$ref":"#/$defs/d0","$defs":{"d100":true`)
	for i := range 100 {
		fmt.Fprintf(&chain, `,"d%d":{"$ref":"#/$defs/d%d"}`, i, i+1)
	}
	chain.WriteString(`}}`)
	var doubling strings.Builder
	doubling.WriteString(`{"$ref":"#/$defs/d0","$defs":{"d30":{"type":"string"}`)
	for i := range 30 {
		fmt.Fprintf(&doubling, `,"d%d":{"allOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]}`, i, i+1, i+1)
	}
	doubling.WriteString(`}}`)
	for name, tc := range map[string]struct{ raw, pointer, message string }{
		"no JSON":                         {`{`, "", "ends before"},
		"a number":                        {`1`, "", "a schema is an object, true or false, not a number"},
		"a type that nobody knows":        {`{"properties":{"a":{"type":"text"}}}`, "/properties/a/type", ""},
		"a length that is negative":       {`{"minLength":-1}`, "/minLength", "at least 0"},
		"a list of schemas that is none":  {`{"allOf":{}}`, "/allOf", "array of schemas"},
		"properties that are a list":      {`{"properties":[]}`, "/properties", "object of schemas"},
		"a reference into the network":    {`{"$ref":"https://example.com/a.json"}`, "/$ref", "only point into the schema itself"},
		"a reference to a file":           {`{"$ref":"file:///etc/passwd"}`, "/$ref", "only point into the schema itself"},
		"a relative reference":            {`{"$ref":"other.json"}`, "/$ref", "only point into the schema itself"},
		"a reference to the metaschema":   {`{"$ref":"https://json-schema.org/draft/2020-12/schema"}`, "/$ref", "only point into the schema itself"},
		"a reference to nothing":          {`{"$ref":"#/$defs/x"}`, "/$ref", "no subschema"},
		"a reference to no schema":        {`{"$ref":"#/enum/0","enum":[{}]}`, "/$ref", "no subschema"},
		"a reference to itself":           {`{"$ref":"#"}`, "", "recursive $ref is not supported by this host"},
		"a recursive list":                {`{"properties":{"next":{"$ref":"#"}}}`, "", "recursive $ref"},
		"recursion between two":           {`{"$defs":{"a":{"items":{"$ref":"#/$defs/b"}},"b":{"not":{"$ref":"#/$defs/a"}}}}`, "", "recursive $ref"},
		"a dynamic reference":             {`{"$dynamicRef":"#x"}`, "/$dynamicRef", "not supported"},
		"an id inside":                    {`{"$defs":{"a":{"$id":"http://x/y"}}}`, "/$defs/a/$id", "not supported"},
		"another draft":                   {`{"$schema":"http://json-schema.org/draft-07/schema#"}`, "/$schema", "draft 2020-12 only"},
		"a schema of the author's own":    {`{"$schema":"http://example.com/meta"}`, "/$schema", "draft 2020-12 only"},
		"a vocabulary":                    {`{"$vocabulary":{"http://x":true}}`, "/$vocabulary", "not supported"},
		"a pattern with a back-reference": {`{"pattern":"(a)\\1"}`, "/pattern", "RE2"},
		"a pattern that is large":         {`{"pattern":"\\pL{900}"}`, "/pattern", "too large"},
		"a name pattern that is large":    {`{"patternProperties":{"\\pL{900}":true}}`, `/patternProperties/\pL{900}`, "too large"},
		"patterns large together":         {`{"properties":{"a":{"pattern":"a{900}"},"b":{"pattern":"b{900}"},"c":{"pattern":"c{900}"}}}`, "/properties/b/pattern", "too large together"},
		"a pattern that is long":          {`{"pattern":"` + strings.Repeat("a", 1025) + `"}`, "/pattern", "at most 1024 bytes"},
		"an exponent bomb":                {`{"minimum":1e1000000000}`, "/minimum", "exponent"},
		"a long chain of references":      {chain.String(), "", "nested more than 64 deep"},
		"references that double":          {doubling.String(), "", "more than 5000 subschemas"},
		"too many levels":                 {strings.Repeat(`{"not":`, 33) + "true" + strings.Repeat("}", 33), strings.Repeat("/not", 32), "too deeply"},
		"too many subschemas":             {`{"allOf":[` + strings.Repeat("true,", 400) + `true]}`, "/allOf/399", "limit schemaSubschemas"},
		"too many bytes":                  {`{"description":"` + strings.Repeat("x", abi.MaxSchemaBytes) + `"}`, "", "at most 65536"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := schema.Compile([]byte(tc.raw))
			e, ok := errors.AsType[*carrel.Error](err)
			if !ok || e.Code != abi.InvalidManifest || len(e.Faults) == 0 {
				t.Fatalf("want invalid_manifest, got %v", err)
			}
			for _, f := range e.Faults {
				if f.Pointer == tc.pointer && strings.Contains(f.Message, tc.message) {
					return
				}
				if tc.pointer == "" && strings.Contains(f.Message, tc.message) {
					return // where a cycle is reported does not matter
				}
			}
			t.Errorf("got %v", e.Faults)
		})
	}
}

func TestValidateRefusesTooMuchWork(t *testing.T) {
	number := strings.Repeat("9", 18)
	for name, tc := range map[string]struct{ schema, in string }{
		"a heavy pattern on long text":  {`{"pattern":"(a|b){400}c"}`, `"` + strings.Repeat("a", 1<<18) + `"`},
		"many alternatives per element": {`{"items":{"anyOf":[` + strings.TrimSuffix(strings.Repeat(`{"type":"null"},`, 390), ",") + `]}}`, "[" + strings.Repeat("1,", 5000) + "1]"},
		"many numbers to compare with":  {`{"items":{"enum":[` + number + strings.Repeat(","+number, 3000) + `]}}`, "[" + strings.Repeat("1,", 1000) + "1]"},
		"unique elements without end":   {`{"uniqueItems":true}`, "[" + strings.Repeat("1,", 1<<18) + "2]"},
		"exact divisions without end":   {`{"items":{"multipleOf":1e-400}}`, "[" + strings.Repeat("1e400,", 1<<16) + "2]"},
		"a requirement of many members": {`{"items":{"required":["a"` + requireMany(4000) + `]}}`, "[" + strings.Repeat("{},", 1<<16) + "{}]"},
	} {
		t.Run(name, func(t *testing.T) {
			err := validate(t, compile(t, tc.schema), tc.in)
			e, ok := errors.AsType[*carrel.Error](err)
			if !ok || e.Code != abi.LimitExceeded || e.Limit != "schemaWork" {
				t.Errorf("got %v", err)
			}
		})
	}
}

func requireMany(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"k%d"`, i)
	}
	return b.String()
}

func TestAnOrdinarySchemaTakesLargeParams(t *testing.T) {
	text := strings.Repeat("x", 1<<20)
	if err := validate(t, compile(t, `{"type":"object","properties":{"msg":{"type":"string","pattern":"^x+$"},"n":{"type":"integer"}},"required":["msg"],"additionalProperties":false}`), `{"msg":"`+text+`"}`); err != nil {
		t.Error(err)
	}
	if err := validate(t, compile(t, `{"items":{"type":"integer"}}`), "["+strings.Repeat("12345,", 1<<17)+"1]"); err != nil {
		t.Error(err)
	}
}

// FuzzSchema checks that no schema and no params make the package panic, and
// that verdicts do not depend on the run.
func FuzzSchema(f *testing.F) {
	f.Add([]byte(order), []byte(`{"id":"abc","n":1}`))
	f.Add([]byte(`{"$ref":"#"}`), []byte(`1`))
	f.Add([]byte(`{"allOf":[{"$ref":"#/$defs/a"}],"$defs":{"a":{"pattern":"a{9}"}}}`), []byte(`"a"`))
	f.Add([]byte(`{"unevaluatedItems":false,"prefixItems":[true],"uniqueItems":true}`), []byte(`[1,1]`))
	f.Fuzz(func(t *testing.T, raw, params []byte) {
		var set schema.Set
		s, err := set.Compile(raw)
		if spent := set.Spent(); err == nil && (spent.Subschemas > schema.MaxSubschemas ||
			spent.PointerBytes > schema.MaxPointerBytes || spent.PatternSteps > schema.MaxPatternSteps) {
			t.Fatalf("accepted at the cost of %+v", spent)
		}
		if err != nil {
			if carrel.CodeOf(err) != abi.InvalidManifest {
				t.Fatal(err)
			}
			return
		}
		v, err := strictjson.Value(params, strictjson.DefaultDepth)
		if err != nil {
			return
		}
		first := carrel.CodeOf(s.Validate(v, len(params)))
		if first != abi.OK && first != abi.InvalidParams && first != abi.LimitExceeded {
			t.Fatalf("%v", s.Validate(v, len(params)))
		}
		if again := carrel.CodeOf(s.Validate(v, len(params))); again != first {
			t.Fatalf("first %v, then %v", first, again)
		}
	})
}
