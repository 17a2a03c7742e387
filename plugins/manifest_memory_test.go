package plugins_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/plugins"
	"github.com/carrelhost/carrel/store"
)

// examples is a seed of n turns whose texts have so many bytes each.
func examples(n, bytes int) string {
	text := strings.Repeat("x", bytes)
	turn := fmt.Sprintf(`{"user":%q,"assistant":%q}`, text, text)
	return `,"seed":[` + strings.TrimSuffix(strings.Repeat(turn+",", n), ",") + `]`
}

func TestParseManifestMemoryFaults(t *testing.T) {
	const method = "/services/0/methods/0"
	for name, tc := range map[string]struct {
		members string
		want    []string // pointers and parts of messages in turn
	}{
		"a window of tokens without a max":               {`,"window":{"type":"tokens"}`, []string{method + "/window/max", "has no default"}},
		"a window of tokens that is too large":           {`,"window":{"type":"tokens","max":2000001}`, []string{method + "/window/max", "from 1 to 2000000"}},
		"a window of no tokens":                          {`,"window":{"type":"tokens","max":0}`, []string{method + "/window/max", "from 1"}},
		"a window of messages that only tokens may have": {`,"window":{"type":"messages","max":2000}`, []string{method + "/window/max", "from 1 to 1000"}},
		"a way to retain that nobody knows":              {`,"retain":"turns"`, []string{method + "/retain", `use "history", which keeps all turns, or "window"`}},
		"an empty way to retain":                         {`,"retain":""`, []string{method + "/retain", `""`}},
		"a way to retain that is no string":              {`,"retain":true`, []string{method + "/retain", "a string is expected"}},
		"the model's seed in its old place":              {`,"seed":7`, []string{method + "/seed", "is `randomSeed`"}},
		"a seed that is no array":                        {`,"seed":{"user":"u","assistant":"a"}`, []string{method + "/seed", "an array is expected"}},
		"an example that is no object":                   {`,"seed":["u"]`, []string{method + "/seed/0", "an example turn must be an object"}},
		"an example of nothing":                          {`,"seed":[{}]`, []string{method + "/seed/0/user", "missing", method + "/seed/0/assistant", "missing"}},
		"examples with empty texts":                      {`,"seed":[{"user":"","assistant":"a"},{"user":"u","assistant":""}]`, []string{method + "/seed/0/user", "empty", method + "/seed/1/assistant", "empty"}},
		"an example with a misspelt member":              {`,"seed":[{"user":"u","asistant":"a"}]`, []string{method + "/seed/0/asistant", "did you mean `assistant`?", method + "/seed/0/assistant", "missing"}},
		"an example with another role":                   {`,"seed":[{"user":"u","assistant":"a","system":"s"}]`, []string{method + "/seed/0/system", "no member"}},
		"a text that is no string":                       {`,"seed":[{"user":1,"assistant":"a"}]`, []string{method + "/seed/0/user", "a string is expected"}},
		"too many examples":                              {examples(abi.MaxSeedTurns+1, 1), []string{method + "/seed", "at most 64"}},
		"examples that are too long together":            {examples(2, abi.MaxSeedBytes/4+1), []string{method + "/seed", "65540 bytes long, at most 65536"}},
		"every fault at once, in document order": {`,"seed":[{"user":""}],"retain":"x","window":{"type":"y"}`, []string{
			method + "/seed/0/user", "empty", method + "/seed/0/assistant", "missing", method + "/retain", "no way", method + "/window/type", "no window"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := plugins.ParseManifest([]byte(withMethod(msgParams+tc.members)), plugins.Known{})
			wantFaults(t, err, tc.want...)
		})
	}
	for name, members := range map[string]string{
		"as many examples as there may be": examples(abi.MaxSeedTurns, 1),
		"examples that are just not long":  examples(2, abi.MaxSeedBytes/4),
		"no examples":                      `,"seed":[]`,
		"the smallest window of tokens":    `,"window":{"max":1,"type":"tokens"}`,
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := plugins.ParseManifest([]byte(withMethod(msgParams+members)), plugins.Known{}); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestPackOfMemoryMembers(t *testing.T) {
	const members = `
    methods:
      - name: chat
        window: { type: tokens, max: 500 }
        retain: window
        randomSeed: 7
        seed:
          - { user: "Is it red?", assistant: "Yes" }
          - user: 4 + 4
            assistant: "8"
`
	want := packed(t, "a.yaml", "services:\n  - name: A"+members).Services[0].Methods[0]
	if *want.Window != (abi.Window{Type: abi.WindowTokens, Max: 500}) || want.Retain != abi.RetainWindow || *want.RandomSeed != 7 ||
		!slices.Equal(want.Seed, []abi.Example{{User: "Is it red?", Assistant: "Yes"}, {User: "4 + 4", Assistant: "8"}}) {
		t.Errorf("got %+v", want)
	}
	inMarkdown := packed(t, "a.md", "---\nservices:\n  - name: A"+members+"---\nYou are brief\n").Services[0].Methods[0]
	if !slices.Equal(inMarkdown.Seed, want.Seed) || inMarkdown.Retain != want.Retain {
		t.Errorf("got %+v", inMarkdown)
	}
	_, _, err := plugins.Pack("a.yaml", []byte("services:\n  - name: A\n    methods:\n      - name: chat\n        seed: 7\n"))
	wantFaults(t, err, "/services/0/methods/0/seed", "is `randomSeed` (line 5)")
}

func TestTheReportSaysWhichWindowsTheHostLowers(t *testing.T) {
	const chat = `{"name":%q,"kind":"chat","params":{"type":"object","properties":{"msg":{"type":"string"}},"required":["msg"]}%s}`
	methods := fmt.Sprintf(chat, "small", `,"window":{"type":"tokens","max":1000}`) + "," +
		fmt.Sprintf(chat, "large", `,"window":{"type":"tokens","max":1001}`) + "," +
		fmt.Sprintf(chat, "messages", `,"window":{"max":1000}`)
	wasm := withManifest(wasmHeader, withService(`"methods":[`+methods+`]`))
	for name, tc := range map[string]struct {
		most int64
		want []string
	}{
		"a host whose bound is not known lowers none": {0, nil},
		"a host with room for all lowers none":        {1 << 20, nil},
		"a host lowers those that hold more": {4000, []string{
			"the window of com.acme.MyChat.large is lowered: 1001 tokens are about 4004 bytes, and this host sends at most 4000 of a history (limit windowBytes)"}},
	} {
		t.Run(name, func(t *testing.T) {
			a, err := plugins.NewAdmit(plugins.Known{WindowBytes: tc.most}, newBox(t))(t.Context(), plugins.Candidate{Module: wasm})
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(a.Report.Notes, tc.want) {
				t.Errorf("got %q", a.Report.Notes)
			}
		})
	}
}

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
