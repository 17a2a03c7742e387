package module_test

import (
	"math"
	"reflect"
	"testing"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox/hostile"
	"github.com/carrelhost/carrel/host/sandbox/module"
)

// TestEachLimitHoldsWhatIsPastIt lifts one limit after the other: what was
// refused for it is then not refused for it any more, so no other limit of
// that name stands behind it. A field of Limits without a module that is past
// it fails.
func TestEachLimitHoldsWhatIsPastIt(t *testing.T) {
	past := map[string]hostile.Module{}
	for _, m := range hostile.Modules() {
		if m.Field != "" {
			past[m.Field] = m
		}
	}
	for f := range reflect.TypeFor[module.Limits]().Fields() {
		t.Run(f.Name, func(t *testing.T) {
			m, ok := past[f.Name]
			if !ok {
				t.Fatalf("no module of the corpus is past Limits.%s", f.Name)
			}
			limit := m.Limit
			if m.Code == abi.TooLarge {
				limit = "module.bytes" // the host's own is looked at before it
			}
			b := m.Bytes()
			limits := module.DefaultLimits()
			wantError(t, lint(b, limits), abi.LimitExceeded, limit, "(limit "+limit+")")
			reflect.ValueOf(&limits).Elem().FieldByIndex(f.Index).SetInt(math.MaxInt)
			if err := lint(b, limits); limitOf(err) == limit {
				t.Errorf("%s is refused without the limit, too: %v", m.Name, err)
			} else if err != nil {
				t.Logf("%s, without the limit: %v", m.Name, err)
			}
		})
	}
}
