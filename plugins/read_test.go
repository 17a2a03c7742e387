package plugins_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/store"
)

// Hosts wrote such manifests before there were example turns, and must go on
// running their versions.
func TestVersionsThatOlderHostsStoredAreRead(t *testing.T) {
	const (
		params = `"params":{"type":"object","properties":{"msg":{"type":"string"},"seed":{"const":{"seed":1}}},"required":["msg"]},"output":{"type":"string"}`
		before = `{"abi":"carrel/v1","name":"p","version":"1","description":"a \"seed\":7 in a text","services":[{"name":"com.acme.MyChat","scope":"request","methods":[` +
			`{"name":"chat","kind":"chat",` + params + `,"userMessage":"<{{msg}}>","model":"default",%s` +
			`"reasoningEffort":"low","window":{"type":"messages","max":20}}]}],"capabilities":{}}`
	)
	for name, tc := range map[string]struct {
		old, now string
		want     *int64
	}{
		"a seed of the model":            {`"seed":-9223372036854775808,`, `"randomSeed":-9223372036854775808,`, new(int64(-1 << 63))},
		"a seed of zero":                 {`"seed":0,`, `"randomSeed":0,`, new(int64(0))},
		"no seed":                        {"", "", nil},
		"example turns of a newer host":  {`"seed":[{"user":"u","assistant":"a"}],`, `"seed":[{"user":"u","assistant":"a"}],`, nil},
		"both seeds, as newer hosts may": {`"seed":[{"user":"u","assistant":"a"}],"randomSeed":3,`, `"seed":[{"user":"u","assistant":"a"}],"randomSeed":3,`, new(int64(3))},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLibrary(t, nil)
			stored := store.Version{
				Tenant: acme, Plugin: "p", Digest: carrel.DigestOf([]byte(name)),
				Manifest: fmt.Appendf(nil, before, tc.old), Report: []byte(`{"path":"prompt","moduleBytes":1,"manifestBytes":1,"models":["default"]}`),
			}
			if _, _, err := l.store.PutVersion(t.Context(), stored, []byte(name), store.PluginLimits{Plugins: 1, Versions: 1}); err != nil {
				t.Fatal(err)
			}
			if _, err := l.Activate(t.Context(), acme, "p", carrel.VersionRef{N: 1}); err != nil {
				t.Fatal(err)
			}
			running := l.wantRunning(carrel.VersionRef{}, "1")
			defer running.Release()
			m, ok := running.Method("com.acme.MyChat", "chat")
			if !ok {
				t.Fatal("the method is gone")
			}
			if got := m.Spec.RandomSeed; (got == nil) != (tc.want == nil) || got != nil && *got != *tc.want {
				t.Errorf("the model's seed is %v", got)
			}
			if m.Spec.Retain != abi.RetainHistory {
				t.Errorf("it retains %q", m.Spec.Retain)
			}
			// Whoever is shown the version reads what could be uploaded.
			v, err := l.Version(t.Context(), acme, "p", carrel.VersionRef{})
			if err != nil {
				t.Fatal(err)
			}
			if want := fmt.Sprintf(before, tc.now); string(v.Manifest) != want {
				t.Errorf("got  %s\nwant %s", v.Manifest, want)
			}
			var decoded abi.Manifest
			if err := json.Unmarshal(v.Manifest, &decoded); err != nil {
				t.Error(err)
			}
		})
	}
}
