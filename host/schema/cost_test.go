package schema_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/schema"
)

// listed joins n elements that are made from their index.
func listed(n int, element func(i int) string) string {
	parts := make([]string, n)
	for i := range parts {
		parts[i] = element(i)
	}
	return strings.Join(parts, ",")
}

func same(s string) func(int) string { return func(int) string { return s } }

// within nests a schema in others.
func within(levels int, keyword, in string) string {
	return strings.Repeat(`{"`+keyword+`":`, levels) + in + strings.Repeat("}", levels)
}

// shapes are families of schemas that were expensive to compile, each of a
// size n. What is worst about each is named; numbers of 1e400 have exact
// values of 400 digits.
var shapes = map[string]func(n int) string{
	"booleans": func(n int) string { return `{"allOf":[` + listed(n, same(`true`)) + `]}` },
	"objects":  func(n int) string { return `{"allOf":[` + listed(n, same(`{"type":"string"}`)) + `]}` },
	"names of one length": func(n int) string {
		return `{"properties":{` + listed(n, func(i int) string { return fmt.Sprintf(`"%030d":{"minimum":1e-400}`, i) }) + `}}`
	},
	"one long name": func(n int) string {
		return `{"properties":{"` + strings.Repeat("x", schema.MaxNameBytes) + `":{"allOf":[` + listed(n, same(`true`)) + `]}}}`
	},
	"long names in one another": func(n int) string {
		in := `{"allOf":[` + listed(n, same(`true`)) + `]}`
		for range 10 {
			in = `{"properties":{"` + strings.Repeat("x", schema.MaxNameBytes) + `":` + in + `}}`
		}
		return in
	},
	"deep below": func(n int) string {
		return within(28, "not", `{"allOf":[`+listed(n, same(`{"maxItems":1e400}`))+`]}`)
	},
	"chains": func(n int) string {
		return `{"$defs":{` + listed(n, func(i int) string { return fmt.Sprintf(`"%d":`, i) + within(4, "not", "{}") }) + `}}`
	},
	"references": func(n int) string {
		return `{"$defs":{"a":true},"allOf":[` + listed(n, same(`{"$ref":"#/$defs/a"}`)) + `]}`
	},
	"references by anchor": func(n int) string {
		return `{"allOf":[` + listed(n, func(i int) string { return fmt.Sprintf(`{"not":{"$ref":"#a%d"}},{"$anchor":"a%d"}`, i, i) }) + `]}`
	},
	"references to definitions": func(n int) string {
		return `{"definitions":{` + listed(n, func(i int) string { return fmt.Sprintf(`"%d":{}`, i) }) + `},"allOf":[` +
			listed(n, func(i int) string { return fmt.Sprintf(`{"$ref":"#/definitions/%d"}`, i) }) + `]}`
	},
	"large numbers": func(n int) string {
		return `{"allOf":[` + listed(n, same(`{"maximum":1e-400,"multipleOf":1e400,"minLength":1e400,"minItems":1e400,"minProperties":1e400,"type":["string","number","object"]}`)) + `]}`
	},
	"numbers to compare with": func(n int) string { return `{"enum":[` + listed(20*n, same("1e400")) + `]}` },
	"required members": func(n int) string {
		return `{"required":[` + listed(20*n, func(i int) string { return fmt.Sprintf(`"%d"`, i) }) + `]}`
	},
	"members that need none": func(n int) string {
		return `{"dependentRequired":{` + listed(10*n, func(i int) string { return fmt.Sprintf(`"%d":[]`, i) }) + `}}`
	},
	"different patterns": func(n int) string {
		return `{"allOf":[` + listed(n, func(i int) string { return fmt.Sprintf(`{"pattern":"%d"}`, i) }) + `]}`
	},
	"patterns as names": func(n int) string {
		return `{"patternProperties":{` + listed(n, func(i int) string { return fmt.Sprintf(`"%d":true`, i) }) + `}}`
	},
	"classes of letters": func(n int) string { return `{"pattern":"(?i)[` + strings.Repeat(`\\PL`, n) + `]"}` },
	"ranges without case": func(n int) string {
		return `{"pattern":"(?i)[` + strings.Repeat("B-\U0001e942", n) + `]"}`
	},
	"ranges written as escapes": func(n int) string { return `{"pattern":"(?i)[` + strings.Repeat(`B-\\x{1e942}`, n) + `]"}` },
	"keywords that nobody knows": func(n int) string {
		return within(28, "not", `{`+listed(10*n, func(i int) string { return fmt.Sprintf(`"%d":1`, i) })+`}`)
	},
	"keywords that are wrong": func(n int) string {
		return within(28, "not", `{"allOf":[`+listed(n, same(`{"type":1,"minItems":-1,"maxItems":-1}`))+`]}`)
	},
}

// largest returns the largest schema of a shape that Compile does not refuse
// for a limit of its own.
func largest(shape func(int) string) []byte {
	least, most := 1, 3300
	for least < most {
		n := (least + most + 1) / 2
		_, err := schema.Compile([]byte(shape(n)))
		if e, ok := errors.AsType[*carrel.Error](err); ok && e.Limit != "" {
			most = n - 1
		} else {
			least = n
		}
	}
	return []byte(shape(least))
}

// BenchmarkCompile measures the worst schemas that are within the bounds: each
// should take less than 50 ms and 20 MB.
func BenchmarkCompile(b *testing.B) {
	for name, shape := range shapes {
		raw := largest(shape)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = schema.Compile(raw)
			}
		})
	}
}

func TestTheWorstSchemaTakesLittleMemory(t *testing.T) {
	const most = 20 << 20
	for name, shape := range shapes {
		t.Run(name, func(t *testing.T) {
			raw := largest(shape)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, _ = schema.Compile(raw)
			runtime.ReadMemStats(&after)
			if n := after.TotalAlloc - before.TotalAlloc; n > most {
				t.Errorf("compiling %d bytes took %d bytes of memory, want at most %d", len(raw), n, most)
			}
		})
	}
}

// TestRefusedSchemasTakeLittleMemory hands whole schemas beyond the bounds in:
// what is read before they are refused is bounded as well.
func TestRefusedSchemasTakeLittleMemory(t *testing.T) {
	const most = 20 << 20
	for name, shape := range shapes {
		t.Run(name, func(t *testing.T) {
			n := 1
			for len(shape(2*n)) <= abi.MaxSchemaBytes {
				n *= 2
			}
			raw := []byte(shape(n))
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, _ = schema.Compile(raw)
			runtime.ReadMemStats(&after)
			if n := after.TotalAlloc - before.TotalAlloc; n > most {
				t.Errorf("compiling %d bytes took %d bytes of memory, want at most %d", len(raw), n, most)
			}
		})
	}
}

func TestCompileNamesTheLimit(t *testing.T) {
	name := func(n int) string { return `{"properties":{"` + strings.Repeat("x", n) + `":true}}` }
	pointers := func(n int) string { // ten names of n bytes, one below the other, then 100 subschemas
		in := `{"allOf":[` + listed(100, same("true")) + `]}`
		for range 10 {
			in = `{"properties":{"` + strings.Repeat("x", n) + `":` + in + `}}`
		}
		return in
	}
	pattern := func(s string) string { return `{"pattern":"` + s + `"}` }
	for what, tc := range map[string]struct{ accepted, refused, limit string }{
		"a name of a property":            {name(256), name(257), "schemaNameBytes"},
		"a name of a keyword":             {`{"` + strings.Repeat("x", 256) + `":1}`, `{"` + strings.Repeat("x", 257) + `":1}`, "schemaNameBytes"},
		"a name that is a pattern":        {`{"patternProperties":{"` + strings.Repeat("x", 256) + `":true}}`, `{"patternProperties":{"` + strings.Repeat("x", 257) + `":true}}`, "schemaNameBytes"},
		"subschemas in a list":            {shapes["booleans"](399), shapes["booleans"](400), "schemaSubschemas"},
		"subschemas by name":              {shapes["patterns as names"](399), shapes["patterns as names"](400), "schemaSubschemas"},
		"pointers of subschemas":          {pointers(20), pointers(100), "schemaPointerBytes"},
		"pointers of keywords":            {shapes["keywords that nobody knows"](30), shapes["keywords that nobody knows"](80), "schemaPointerBytes"},
		"classes of letters":              {pattern(`[` + strings.Repeat(`\\pL`, 50) + `]`), pattern(`[` + strings.Repeat(`\\pL`, 60) + `]`), "schemaPatternSteps"},
		"classes of no letters":           {pattern(`[` + strings.Repeat(`\\PL`, 50) + `]`), pattern(`[` + strings.Repeat(`\\PL`, 60) + `]`), "schemaPatternSteps"},
		"ranges to be folded":             {pattern("(?i)[B-\U0001e942]"), pattern("(?i)[" + strings.Repeat("B-\U0001e942", 3) + "]"), "schemaPatternSteps"},
		"ranges to be folded, escaped":    {pattern(`(?i)[B-\\x{1e942}]`), pattern(`(?i)[` + strings.Repeat(`B-\\x{1e942}`, 3) + `]`), "schemaPatternSteps"},
		"ranges to be folded, beyond all": {pattern(`(?i)[B-\\x{10ffff}]`), pattern(`(?i)[` + strings.Repeat(`B-\\x{10ffff}`, 3) + `]`), "schemaPatternSteps"},
		"the flag behind others":          {pattern("(?s-m:a)"), pattern("(?si-m:[" + strings.Repeat("B-\U0001e942", 3) + "])"), "schemaPatternSteps"},
		"a pattern's bytes":               {pattern(strings.Repeat("a", 1024)), pattern(strings.Repeat("a", 1025)), "schemaPatternBytes"},
		"a pattern's size":                {pattern(`a{600}`), pattern(`a{900}`), "schemaPatternSize"},
		"bytes":                           {`{}`, `{"description":"` + strings.Repeat("x", abi.MaxSchemaBytes) + `"}`, "schemaBytes"},
	} {
		t.Run(what, func(t *testing.T) {
			if _, err := schema.Compile([]byte(tc.accepted)); err != nil {
				t.Error(err)
			}
			_, err := schema.Compile([]byte(tc.refused))
			e, ok := errors.AsType[*carrel.Error](err)
			if !ok || e.Code != abi.InvalidManifest || e.Limit != tc.limit || len(e.Faults) == 0 || !strings.Contains(e.Faults[0].Message, "(limit "+tc.limit+")") {
				t.Errorf("want limit %s, got %.300v", tc.limit, err)
			}
		})
	}
}

func TestWideRangesWithoutCaseFoldingAreCheap(t *testing.T) {
	compile(t, `{"pattern":"^[`+strings.Repeat("一-龥", 100)+`]+$"}`)
	compile(t, `{"pattern":"(?i)^[a-z0-9à-ÿ_.-]+@[a-z0-9-]+\\.[a-z]{2,}$"}`)
}

func TestASetBoundsTheSumOfItsSchemas(t *testing.T) {
	wide := shapes["ranges written as escapes"](2)
	pointers := `{"properties":{` + listed(200, func(i int) string { return fmt.Sprintf(`"%0200d":true`, i) }) + `}}`
	for name, tc := range map[string]struct {
		raw      string
		accepted int
		limit    string
	}{
		"subschemas": {shapes["booleans"](399), 7, "manifestSubschemas"},
		"pointers":   {pointers, 9, "manifestPointerBytes"},
		"patterns":   {wide, 4, "manifestPatternSteps"},
	} {
		t.Run(name, func(t *testing.T) {
			var set schema.Set
			for i := range tc.accepted {
				if _, err := set.Compile([]byte(tc.raw)); err != nil {
					t.Fatalf("schema %d: %v", i, err)
				}
			}
			spent := set.Spent()
			if alone, err := schema.Compile([]byte(tc.raw)); err != nil || alone == nil {
				t.Errorf("alone it is %v", err)
			}
			for range 3 { // a refusal changes nothing about the next
				_, err := set.Compile([]byte(tc.raw))
				if e, ok := errors.AsType[*carrel.Error](err); !ok || e.Limit != tc.limit {
					t.Errorf("after %+v want limit %s, got %v", spent, tc.limit, err)
				}
			}
		})
	}
}

func TestRefusedSchemasCountTowardTheirSet(t *testing.T) {
	var set schema.Set
	for i := range 100 {
		_, err := set.Compile([]byte(`{"type":1,"allOf":[` + listed(99, same("true")) + `]}`))
		e, ok := errors.AsType[*carrel.Error](err)
		if !ok {
			t.Fatal(err)
		}
		if e.Limit != "" {
			if e.Limit != "manifestSubschemas" || i != 30 {
				t.Errorf("schema %d is refused for limit %s", i, e.Limit)
			}
			return
		}
	}
	t.Error("a set compiles refused schemas without end")
}
