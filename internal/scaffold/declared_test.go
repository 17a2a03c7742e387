package scaffold_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/schema"
	"github.com/carrelhost/carrel/host/strictjson"
	"github.com/carrelhost/carrel/internal/scaffold"
	"github.com/carrelhost/carrel/plugins/manifest"
	guestsdk "github.com/carrelhost/carrel/sdk/go"
)

type nested struct {
	City  string  `json:"city" desc:"where"`
	Small *int8   `json:"small"`
	Maybe *string `json:"maybe,omitempty"`
}

type rich struct {
	nested
	List  []nested          `json:"list"`
	Map   map[string]nested `json:"map"`
	Point *nested           `json:"point"`
	Any   any               `json:"any"`
	Bytes []byte            `json:"bytes"`
	At    time.Time         `json:"at"`
	Pair  [2]uint16         `json:"pair"`
	Count uint64            `json:"count,string"`
	Left  []string          `json:"left,omitempty"`
	Raw   json.RawMessage   `json:"raw"`
	Float float64           `json:"float"`
}

// TestWhatTheSDKDeclaresIsWhatAHostReads holds the schemas that are made of Go
// types against the host's own validation of what encoding/json makes of them.
func TestWhatTheSDKDeclaresIsWhatAHostReads(t *testing.T) {
	p := guestsdk.Plugin{
		Name: "hello", Version: "1", Capabilities: guestsdk.Capabilities{Models: []string{"small"}, Call: []string{"billing/*"}},
		DefaultMemoryID: &guestsdk.DefaultMemoryID{Func: func(*guestsdk.Context) (string, error) { return "", nil }},
		Limits:          guestsdk.Limits{MemoryMiB: 16, Timeout: "5s"},
		Services: []guestsdk.Service{{Name: "com.acme.S", Scope: guestsdk.ScopeApplication, SystemMessage: "Be nice to {{who}}.", Methods: []guestsdk.Method{
			guestsdk.Handler("rich", "Rich.", func(_ *guestsdk.Context, in rich) (rich, error) { return in, nil }),
			guestsdk.Chat("chat", guestsdk.ChatMethod{MemoryID: "id", UserMessage: "{{msg}}", Model: "small", WindowTokens: 800, RetainWindow: true,
				Seed: []guestsdk.Example{{User: "Is it red?", Assistant: "Yes"}}, Params: struct {
					ID  string `json:"id"`
					Msg string `json:"msg"`
					Who string `json:"who"`
				}{}}),
		}}},
	}
	raw, err := p.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	m, err := manifest.Parse(raw, manifest.Known{})
	if err != nil {
		t.Fatal(err)
	}
	if c := m.Services[0].Methods[1]; *c.Window != (abi.Window{Type: abi.WindowTokens, Max: 800}) || c.Retain != abi.RetainWindow || len(c.Seed) != 1 {
		t.Errorf("the chat method is read as %+v", c)
	}
	output, err := schema.Compile(m.Services[0].Methods[0].Output)
	if err != nil {
		t.Fatal(err)
	}
	params, err := schema.Compile(m.Services[0].Methods[0].Params)
	if err != nil {
		t.Fatal(err)
	}
	small, maybe := int8(-128), "yes"
	one := nested{"Wien", &small, &maybe}
	for name, tc := range map[string]struct {
		value    rich
		asParams bool // without null it is a value of the params, too
	}{
		"nothing": {rich{}, false},
		"everything": {rich{one, []nested{one, one}, map[string]nested{"a": one}, &one, 1, []byte{1}, time.Unix(0, 0), [2]uint16{0, 65535},
			1 << 60, []string{"x"}, json.RawMessage(`[null]`), 1e300}, true},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := json.Marshal(tc.value)
			if err != nil {
				t.Fatal(err)
			}
			v, err := strictjson.Value(b, strictjson.DefaultDepth)
			if err != nil {
				t.Fatal(err)
			}
			if err := output.Validate(v, len(b)); err != nil {
				t.Errorf("as output: %v", err)
			}
			if err := params.Validate(v, len(b)); (err == nil) != tc.asParams {
				t.Errorf("as params: %v", err)
			}
			if b, err = guestsdk.EncodeParams(tc.value); err != nil {
				t.Fatal(err)
			}
			if v, err = strictjson.Value(b, strictjson.DefaultDepth); err != nil {
				t.Fatal(err)
			}
			if err := params.Validate(v, len(b)); err != nil {
				t.Errorf("as params that the SDK encodes: %v", err)
			}
		})
	}
}

// TestEveryFaultOfADeclarationIsToldAtOnce has faults that only the SDK can
// see, faults that only a host's checks see, and some that both see.
func TestEveryFaultOfADeclarationIsToldAtOnce(t *testing.T) {
	const head = "package main\n\nimport carrel \"github.com/carrelhost/carrel/sdk/go\"\n\n"
	const tail = "\n\nfunc main() { plugin.Main() }\n"
	for name, tc := range map[string]struct {
		plugin string
		want   []string // pointers
	}{
		"one that the SDK sees": {`var plugin = carrel.Plugin{Name: "hello"}`, []string{"/version"}},
		"limits and a warm-up": {`var plugin = carrel.Plugin{Name: "hello", Version: "1", Limits: carrel.Limits{MemoryMiB: 4000, Timeout: "ten"},
			Warmup: &carrel.Warmup{Method: "S.none"}}`, []string{"/limits/memoryMiB", "/limits/timeout", "/warmup"}},
		"names, schemas, templates and scopes": {`var plugin = carrel.Plugin{Name: "Hello",
			Services: []carrel.Service{{Name: "S", Scope: "for ever", Methods: []carrel.Method{
				carrel.Handler("not a name", "", func(*carrel.Context, []string) (out map[bool]int, err error) { return out, nil }),
				carrel.Chat("chat", carrel.ChatMethod{UserMessage: "{{missing}}"}),
			}}, {Name: "S"}}}`, []string{"/name", "/services/0/methods/0/name", "/services/0/methods/0/output", "/services/0/methods/0/params",
			"/services/0/methods/1/userMessage", "/services/0/scope", "/services/1/name", "/version"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := newGo(t, map[string]string{"plugin.go": head + tc.plugin + tail})
			if err := os.Remove(filepath.Join(dir, "plugin_test.go")); err != nil {
				t.Fatal(err)
			}
			_, err := scaffold.Build(t.Context(), dir)
			e, ok := errors.AsType[*carrel.Error](err)
			if !ok || e.Code != abi.InvalidManifest {
				t.Fatalf("got %v", err)
			}
			var got []string
			for _, f := range e.Faults {
				got = append(got, f.Pointer)
			}
			if slices.Sort(got); !slices.Equal(got, tc.want) {
				t.Errorf("got faults at %q, want %q:\n%v", got, tc.want, e.Faults)
			}
			if !strings.Contains(e.Msg, e.Faults[0].Message) {
				t.Errorf("the message is %q", e.Msg)
			}
		})
	}
}
