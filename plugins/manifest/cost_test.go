package manifest_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/plugins/manifest"
)

// manyMethods is a manifest of handlers with the given params schemas.
func manyMethods(schemas ...string) string {
	methods := make([]string, len(schemas))
	for i, s := range schemas {
		methods[i] = fmt.Sprintf(`{"name":"m%d","kind":"handler","export":"x","params":%s}`, i, s)
	}
	return withService(`"methods":[` + strings.Join(methods, ",") + `]`)
}

// filled is a manifest of as many schemas as it can hold, each made from its
// number, so that no two are the same.
func filled(size int, schema func(i int) string) string {
	var list []string
	for n := 0; len(list) < abi.MaxMethods; {
		s := schema(len(list))
		if n += len(s) + 100; n > size {
			break
		}
		list = append(list, s)
	}
	return manyMethods(list...)
}

func objectOf(i, n int, element string) string {
	return fmt.Sprintf(`{"title":"%d","type":"object","allOf":[%s]}`, i, strings.TrimSuffix(strings.Repeat(element+",", n), ","))
}

// heavy are manifests that were expensive to admit.
var heavy = map[string]func(size int) string{
	"subschemas": func(size int) string {
		return filled(size, func(i int) string { return objectOf(i, 300, `{"type":"string"}`) })
	},
	"large numbers": func(size int) string {
		return filled(size, func(i int) string {
			return objectOf(i, 200, `{"minimum":1e-400,"maximum":1e400,"multipleOf":1e400,"minLength":1e400,"minItems":1e400}`)
		})
	},
	"many small schemas": func(size int) string {
		return filled(size, func(i int) string { return objectOf(i, 29, `{"minLength":1e400,"maximum":1e400}`) })
	},
	"long names": func(size int) string {
		return filled(size, func(i int) string {
			return fmt.Sprintf(`{"title":"%d","type":"object","properties":{"%0200d":{"allOf":[%strue]}}}`, i, i, strings.Repeat("true,", 150))
		})
	},
	"wide ranges": func(size int) string {
		return filled(size, func(i int) string {
			return fmt.Sprintf(`{"type":"object","properties":{"a":{"pattern":"(?i)%d[B-\\x{1e942}]"}}}`, i)
		})
	},
	"one name of thousands of bytes": func(size int) string {
		return filled(size, func(i int) string {
			return fmt.Sprintf(`{"type":"object","properties":{"%030000d":{"allOf":[%strue]}}}`, i, strings.Repeat("true,", 2700))
		})
	},
}

// heaviest returns the largest of a family that is not refused.
func heaviest(of func(size int) string) []byte {
	least, most := 0, abi.MaxManifestBytes-1000
	for least < most {
		size := (least + most + 1) / 2
		if _, err := manifest.Parse([]byte(of(size)), manifest.Known{}); err == nil {
			least = size
		} else {
			most = size - 1
		}
	}
	return []byte(of(least))
}

// BenchmarkParse measures the worst manifests that are accepted, and
// what refusing those beyond the bounds takes: each should be less than 300 ms.
func BenchmarkParse(b *testing.B) {
	for name, family := range heavy {
		for what, raw := range map[string][]byte{"accepted": heaviest(family), "whole": []byte(family(abi.MaxManifestBytes - 1000))} {
			b.Run(name+"/"+what, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					_, _ = manifest.Parse(raw, manifest.Known{})
				}
			})
		}
	}
}

// Whole manifests are handed in, also beyond the bounds: whatever an accepted
// one takes, these take as well before they are refused.
func TestTheWorstManifestTakesLittleMemory(t *testing.T) {
	const most = 128 << 20 // of all schemas, garbage included
	for name, family := range heavy {
		t.Run(name, func(t *testing.T) {
			raw := []byte(family(abi.MaxManifestBytes - 1000))
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, _ = manifest.Parse(raw, manifest.Known{})
			runtime.ReadMemStats(&after)
			if n := after.TotalAlloc - before.TotalAlloc; n > most {
				t.Errorf("a manifest of %d bytes took %d bytes of memory, want at most %d", len(raw), n, most)
			}
		})
	}
}

func TestTheSchemasOfAManifestAreBoundedTogether(t *testing.T) {
	for name, limit := range map[string]string{
		"subschemas":                     "manifestSubschemas",
		"wide ranges":                    "manifestPatternSteps",
		"one name of thousands of bytes": "schemaNameBytes",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := manifest.Parse([]byte(heavy[name](abi.MaxManifestBytes-1000)), manifest.Known{})
			e, ok := errors.AsType[*carrel.Error](err)
			if !ok || e.Code != abi.InvalidManifest || !strings.Contains(e.Msg, "(limit "+limit+")") ||
				!strings.HasPrefix(e.Faults[0].Pointer, "/services/0/methods/") || !strings.Contains(e.Faults[0].Pointer, "/params") {
				t.Errorf("want limit %s, got %.300v", limit, err)
			}
		})
	}
}

func TestSchemasThatAreTheSameCountOnce(t *testing.T) {
	schema := objectOf(1, 300, "true")
	list := make([]string, abi.MaxMethods)
	for i := range list {
		list[i] = schema
	}
	if _, err := manifest.Parse([]byte(manyMethods(list...)), manifest.Known{}); err != nil {
		t.Error(err)
	}
}

func TestAManifestOfTooManyValues(t *testing.T) {
	raw := `{"x":[1` + strings.Repeat(",1", 100_000) + `]}`
	_, err := manifest.Parse([]byte(raw), manifest.Known{})
	if e, ok := errors.AsType[*carrel.Error](err); !ok || e.Code != abi.LimitExceeded || e.Limit != "jsonValues" {
		t.Errorf("got %v", err)
	}
}
