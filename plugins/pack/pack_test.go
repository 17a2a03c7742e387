package pack_test

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox/module"
	"github.com/carrelhost/carrel/plugins/manifest"
	"github.com/carrelhost/carrel/plugins/pack"
)

const niceAndMean = `---
name: nice-and-mean
version: 1.0.0
services:
  - name: com.acme.MyChat
    scope: application
    methods: [{name: chat, memoryId: id}]
  - name: com.acme.AnotherChat
    scope: application
    methods: [{name: chat, memoryId: id}]
---
# com.acme.MyChat
You are a nice assistant

# com.acme.AnotherChat
You are a mean assistant
`

// packed packs a source, reads the module back and returns its manifest.
func packed(t *testing.T, filename, src string) abi.Manifest {
	t.Helper()
	b, m, err := pack.Prompt(filename, []byte(src))
	if err != nil {
		t.Fatal(err)
	}
	mod, err := module.Read(b, module.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	raw, ok := mod.Custom(abi.ManifestSection)
	if !ok || mod.HasCode() {
		t.Fatalf("want a module of just a manifest, got %v", mod.Sections())
	}
	again, err := manifest.Parse(raw, manifest.Known{})
	if err != nil {
		t.Fatal(err)
	}
	wantSame(t, again, m)
	return m
}

func wantSame(t *testing.T, got, want abi.Manifest) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// wantFaults wants invalid_manifest with exactly the given faults, as pairs of
// pointer and a part of the message.
func wantFaults(t *testing.T, err error, pairs ...string) {
	t.Helper()
	e, ok := errors.AsType[*carrel.Error](err)
	if !ok || e.Code != abi.InvalidManifest {
		t.Fatalf("want invalid_manifest, got %v", err)
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

func TestPackOfTwoServicesWithTheirTexts(t *testing.T) {
	m := packed(t, "plugin.md", niceAndMean)
	if m.Name != "nice-and-mean" || m.Version != "1.0.0" || len(m.Services) != 2 {
		t.Fatalf("got %+v", m)
	}
	for i, want := range []struct{ name, system string }{
		{"com.acme.MyChat", "You are a nice assistant"}, {"com.acme.AnotherChat", "You are a mean assistant"},
	} {
		s := m.Services[i]
		if s.Name != want.name || s.SystemMessage != want.system || s.Scope != abi.ScopeApplication || len(s.Methods) != 1 {
			t.Errorf("got %+v, want %+v", s, want)
		}
		c := s.Methods[0]
		const params = `{"type":"object","properties":{"id":{"type":"string"},"msg":{"type":"string"}},"required":["id","msg"]}`
		if string(c.Params) != params || c.MemoryID != "id" || !c.MemoryIDRequired || c.UserParam != "msg" || c.Kind != abi.KindChat {
			t.Errorf("got %+v", c)
		}
	}
}

func TestPackConveniences(t *testing.T) {
	const one = "services:\n  - name: Chat\n"
	for name, tc := range map[string]struct {
		filename, src string
		params        string
		user, system  string // templates of the method
		service       string // the service's system message
	}{
		"a service without methods gets one": {
			"My first_Plugin.yaml", one,
			`{"type":"object","properties":{"msg":{"type":"string"}},"required":["msg"]}`, "", "", "",
		},
		"the whole text belongs to a single service, headings too": {
			"a.md", "---\n" + one + "---\n\n# Rules\n\n```\n# Chat\n```\n\n",
			`{"type":"object","properties":{"msg":{"type":"string"}},"required":["msg"]}`, "", "", "# Rules\n\n```\n# Chat\n```",
		},
		"placeholders become required params and the user message is named": {
			"a.md", "---\n" + one + "---\nYou sell {{product}} to {{buyer.name}}.",
			`{"type":"object","properties":{"product":{"type":"string"},"buyer":{"type":"object"},"msg":{"type":"string"}},"required":["product","buyer","msg"]}`,
			"{{msg}}", "", "You sell {{product}} to {{buyer.name}}.",
		},
		"a user message of its own needs no msg": {
			"a.yaml", "services:\n  - name: Chat\n    methods: [{name: chat, userMessage: 'Translate {{text}}'}]\n",
			`{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]}`, "Translate {{text}}", "", "",
		},
		"params as a list of names": {
			"a.yaml", "services: [{name: Chat, methods: [{name: chat, params: [msg], memoryId: id}]}]",
			"", "", "", "",
		},
		"params as a list with an optional one": {
			"a.yaml", "services: [{name: Chat, methods: [{name: chat, memoryId: id, params: [id?, msg]}]}]",
			`{"type":"object","properties":{"id":{"type":"string"},"msg":{"type":"string"}},"required":["msg"]}`, "", "", "",
		},
		"params as types": {
			"a.yaml", "services: [{name: Chat, methods: [{name: chat, params: {msg: string, n: integer, x?: boolean}}]}]",
			`{"type":"object","properties":{"msg":{"type":"string"},"n":{"type":"integer"},"x":{"type":"boolean"}},"required":["msg","n"]}`, "", "", "",
		},
		"params as a schema": {
			"a.yaml", "services: [{name: Chat, methods: [{name: chat, params: {type: object, required: [q], properties: {q: {type: string, maxLength: 9}}}}]}]",
			`{"type":"object","required":["q"],"properties":{"q":{"type":"string","maxLength":9}}}`, "", "", "",
		},
		"an alias stands for its value": {
			"a.yaml", "services:\n  - name: Chat\n    description: &d Hello\n    methods: [{name: chat, description: *d}]\n",
			`{"type":"object","properties":{"msg":{"type":"string"}},"required":["msg"]}`, "", "", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.params == "" { // the memory id is not among the params
				_, _, err := pack.Prompt(tc.filename, []byte(tc.src))
				wantFaults(t, err, "/services/0/methods/0/memoryId", "params has no property")
				return
			}
			m := packed(t, tc.filename, tc.src)
			s := m.Services[0]
			c := s.Methods[0]
			if c.Name != "chat" || string(c.Params) != tc.params || c.UserMessage != tc.user || c.SystemMessage != tc.system || s.SystemMessage != tc.service {
				t.Errorf("got %+v with params %s", s, c.Params)
			}
			if m.Version != "0.1.0" {
				t.Errorf("want the default version, got %q", m.Version)
			}
		})
	}
}

func TestPackNamesAPluginAfterItsFile(t *testing.T) {
	for filename, want := range map[string]string{
		"My first_Plugin.yaml":          "my-first-plugin",
		"/home/me/nice.md":              "nice",
		`C:\plugins\Nice-2.md`:          "nice-2",
		"12 Monkeys!.yaml":              "monkeys",
		strings.Repeat("a", 90) + ".md": strings.Repeat("a", 63),
	} {
		src := "services: [{name: Chat}]"
		if strings.HasSuffix(filename, ".md") {
			src = "---\n" + src + "\n---\n"
		}
		if m := packed(t, filename, src); m.Name != want {
			t.Errorf("%q: got %q, want %q", filename, m.Name, want)
		}
	}
}

func TestPackGivesAMethodItsOwnText(t *testing.T) {
	m := packed(t, "a.md", `---
version: 1.0
services:
  - name: A
    methods: [{name: x}, {name: y}]
  - name: B
---
# A.x
Method x.

`+"```"+`
# B
`+"```"+`
## A.y
# Other
# B.chat
Default method.
# A
Service.
`)
	a, b := m.Services[0], m.Services[1]
	if got := a.Methods[0].SystemMessage; got != "Method x.\n\n```\n# B\n```\n## A.y\n# Other" {
		t.Errorf("A.x has %q", got)
	}
	if a.SystemMessage != "Service." || a.Methods[1].SystemMessage != "" || b.Methods[0].SystemMessage != "Default method." {
		t.Errorf("got %+v, %+v", a, b)
	}
	if m.Version != "1.0" {
		t.Errorf("the version 1.0 became %q", m.Version)
	}
}

func TestPackOfASessionScopedService(t *testing.T) {
	m := packed(t, "a.yaml", "memoryNamespace: shared\nlimits: {timeout: 10s}\ncapabilities: {call: [b/*]}\nservices: [{name: A, scope: session}]")
	if m.Services[0].Scope != abi.ScopeSession || m.MemoryNamespace != "shared" || m.Limits.Timeout != "10s" || len(m.Capabilities.Call) != 1 {
		t.Errorf("got %+v", m)
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
	_, _, err := pack.Prompt("a.yaml", []byte("services:\n  - name: A\n    methods:\n      - name: chat\n        seed: 7\n"))
	wantFaults(t, err, "/services/0/methods/0/seed", "is `randomSeed` (line 5)")
}

func TestPackReportsAllThatNeedsCode(t *testing.T) {
	_, _, err := pack.Prompt("a.yaml", []byte("services: [{name: A, methods: [{name: x, kind: handler}, {name: y, kind: handler}, {name: z}]}]\ndefaultMemoryId: {export: e}"))
	wantFaults(t, err, "/defaultMemoryId/export", "no code", "/services/0/methods/0/kind", "no code", "/services/0/methods/1/kind", "no code")
}

func TestPackOfALeakingPluginWarns(t *testing.T) {
	b, m, err := pack.Prompt("leaky.yaml", []byte("services:\n  - name: Chat\n    scope: application\n"))
	if carrel.CodeOf(err) != abi.DefaultIDLeak {
		t.Fatalf("want default_id_leak, got %v", err)
	}
	e, _ := errors.AsType[*carrel.Error](err)
	if len(e.Faults) != 1 || !strings.Contains(e.Faults[0].Message, "(line 2)") {
		t.Errorf("got faults %v", e.Faults)
	}
	if m.Name != "leaky" {
		t.Errorf("got manifest %+v", m)
	}
	if _, err := module.Read(b, module.DefaultLimits()); err != nil {
		t.Error(err)
	}
}

func TestPackRefuses(t *testing.T) {
	two := "---\nservices:\n  - name: A\n  - name: B\n---\n"
	bomb := "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c <= 'h'; c++ {
		p := string(c - 1)
		bomb += string(c) + ": &" + string(c) + " [*" + p + strings.Repeat(",*"+p, 9) + "]\n"
	}
	for name, tc := range map[string]struct {
		filename, src    string
		pointer, message string
	}{
		"a file of another kind":             {"a.txt", "services: []", "", "Markdown file"},
		"Markdown without front matter":      {"a.md", "# Hello", "", "begins with front matter"},
		"an open front matter":               {"a.md", "---\nname: x\n", "", "never closed"},
		"bytes that are not UTF-8":           {"a.yaml", "name: \xff", "", "UTF-8"},
		"YAML with a syntax error":           {"a.md", "---\nname: [\n---\n", "", "YAML cannot be read"},
		"an empty file":                      {"a.yaml", "", "", "must be a mapping"},
		"a list":                             {"a.yaml", "- a", "", "must be a mapping"},
		"a second document":                  {"a.yaml", "name: a\n---\nname: b\n", "", "YAML cannot be read"},
		"a key that is there twice":          {"a.yaml", "name: a\nservices: []\nname: b\n", "/name", "twice; remove one (line 3)"},
		"a merge key":                        {"a.yaml", "x: &x {a: b}\ny:\n  <<: *x\n", "/y", "merge keys (<<) are not supported; write the members out (line 3)"},
		"an unknown key":                     {"a.md", "---\nservices:\n  - name: A\n    sytemMessage: x\n---\n", "/services/0/sytemMessage", "did you mean `systemMessage`? (line 4)"},
		"a tag":                              {"a.yaml", "name: !!binary aGk=\n", "/name", "(line 1)"},
		"an infinite number":                 {"a.yaml", "version: .inf\n", "/version", "not a number that JSON can hold"},
		"aliases that multiply":              {"a.yaml", bomb, "", "too many values"},
		"an alias of itself":                 {"a.yaml", "a: &a [*a]\n", "", ""},
		"text before the first heading":      {"a.md", two + "\nHello\n# A\nx\n", "", "belongs to no service; put a heading such as \"# com.acme.MyChat\" with a service's name before it (line 7)"},
		"a heading that is there twice":      {"a.md", two + "# A\nx\n# B\ny\n# A\nz\n", "/services/0/systemMessage", "began already in line 6; join the two (line 10)"},
		"a heading without text":             {"a.md", two + "# A\n# B\ny\n", "/services/0/systemMessage", "no text under the heading of \"A\"; write its system message or remove the heading (line 6)"},
		"two system messages":                {"a.md", "---\nservices: [{name: A, systemMessage: x}]\n---\ntext", "/services/0/systemMessage", "in the front matter and in the text; keep one (line 4)"},
		"text without any service":           {"a.md", "---\nname: x\n---\ntext", "", "belongs to no service"},
		"a param that is there twice":        {"a.yaml", "services: [{name: A, methods: [{name: chat, params: [msg, msg?]}]}]", "/services/0/methods/0/params", "twice"},
		"a param of a type that is not one":  {"a.yaml", "services:\n - name: A\n   methods:\n    - name: chat\n      params: {msg: text}", "/services/0/methods/0/params/msg", "(line 5)"},
		"a faulty template in the text":      {"a.md", two + "# A\nHi {{x\n# B\nb\n", "/services/0/systemMessage", "never closed; write }} after the param's name (line 6)"},
		"levels without end":                 {"a.yaml", "a: " + strings.Repeat("[", 60) + strings.Repeat("]", 60), "", "too many values or levels"},
		"a handler":                          {"a.md", "---\nservices:\n  - name: A\n    methods:\n      - name: x\n        kind: handler\n        export: x\n---\n", "/services/0/methods/0/kind", "a prompt plugin has no code; write the plugin with an SDK, or make it a chat method (line 6)"},
		"an export of a chat method":         {"a.yaml", "services:\n - name: A\n   methods:\n    - name: chat\n      export: x\n", "/services/0/methods/0/export", "a prompt plugin has no code; write the plugin with an SDK, or remove `export` (line 5)"},
		"a default id from a function":       {"a.yaml", "defaultMemoryId: {priority: -1,\n  export: my_id}\nservices: [{name: A}]\n", "/defaultMemoryId/export", "a prompt plugin has no code; write the plugin with an SDK, or take it `from` a header or the subject (line 2)"},
		"a source of more than one mebibyte": {"a.yaml", strings.Repeat("#", pack.MaxSourceBytes+1), "", "sourceBytes"},
	} {
		t.Run(name, func(t *testing.T) {
			b, _, err := pack.Prompt(tc.filename, []byte(tc.src))
			if b != nil {
				t.Error("want no module")
			}
			e, ok := errors.AsType[*carrel.Error](err)
			if !ok || e.Code != abi.InvalidManifest && e.Code != abi.LimitExceeded {
				t.Fatalf("want invalid_manifest, got %v", err)
			}
			if len(e.Faults) == 0 {
				if tc.pointer != "" || !strings.Contains(e.Msg, tc.message) {
					t.Errorf("got %v, want …%s…", e, tc.message)
				}
				return
			}
			wantFaults(t, err, tc.pointer, tc.message)
		})
	}
}

// FuzzPrompt checks that no source makes Prompt panic, and that what it packs is
// a module with a manifest that stands for itself.
func FuzzPrompt(f *testing.F) {
	f.Add("a.md", niceAndMean)
	f.Add("a.yaml", "services: [{name: Chat, methods: [{name: chat, params: {id?: string, msg: string}}]}]")
	f.Add("a.yaml", "a: &a [*a]")
	f.Add("a.yaml", "services: [{name: Chat, scope: session, methods: [{name: x, kind: handler, export: x}]}]")
	f.Add("a.yaml", "defaultMemoryId: {export: x}\nservices: []")
	f.Fuzz(func(t *testing.T, filename, src string) {
		b, m, err := pack.Prompt(filename, []byte(src))
		if err != nil && carrel.CodeOf(err) != abi.DefaultIDLeak {
			if carrel.CodeOf(err) == abi.Internal {
				t.Fatal(err)
			}
			return
		}
		mod, err := module.Read(b, module.DefaultLimits())
		if err != nil {
			t.Fatal(err)
		}
		raw, _ := mod.Custom(abi.ManifestSection)
		again, err := manifest.Parse(raw, manifest.Known{})
		if err != nil && carrel.CodeOf(err) != abi.DefaultIDLeak {
			t.Fatal(err)
		}
		wantSame(t, again, m)
		if m.DefaultMemoryID != nil && m.DefaultMemoryID.Export != "" {
			t.Errorf("a prompt plugin asks its function %q", m.DefaultMemoryID.Export)
		}
		for _, s := range m.Services {
			for _, method := range s.Methods {
				if method.Kind != abi.KindChat {
					t.Errorf("a prompt plugin has the method %+v", method)
				}
			}
		}
	})
}
