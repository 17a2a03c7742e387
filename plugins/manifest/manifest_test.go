package manifest_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/plugins/manifest"
)

const smallest = `{"abi":"carrel/v1","name":"a","version":"1"}`

// withMethod is a manifest of one method chat with more members.
func withMethod(members string) string {
	return withService(`"methods":[{"name":"chat","kind":"chat"` + members + `}]`)
}

func withService(members string) string {
	return `{"abi":"carrel/v1","name":"a","version":"1","services":[{"name":"com.acme.MyChat",` + members + `}]}`
}

func withPlugin(members string) string {
	return `{"abi":"carrel/v1","name":"a","version":"1",` + members + `}`
}

const msgParams = `,"params":{"type":"object","properties":{"msg":{"type":"string"},"n":{"type":"integer"}},"required":["msg"]}`

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

func TestParseFillsInDefaults(t *testing.T) {
	m, err := manifest.Parse([]byte(withMethod(msgParams)), manifest.Known{Models: []string{"default"}})
	if err != nil {
		t.Fatal(err)
	}
	c := m.Services[0].Methods[0]
	wantSame(t, m, abi.Manifest{
		ABI: abi.Version, Name: "a", Version: "1",
		Services: []abi.Service{{
			Name: "com.acme.MyChat", Scope: abi.ScopeRequest,
			Methods: []abi.Method{{
				Name: "chat", Kind: abi.KindChat, Params: c.Params, Output: []byte(`{"type":"string"}`),
				UserParam: "msg", Model: "default", Window: &abi.Window{Type: abi.WindowMessages, Max: 20}, Retain: abi.RetainHistory,
			}},
		}},
	})
}

func TestParseReadsEverything(t *testing.T) {
	raw := `{
	"abi":"carrel/v1", "name":"nice-and-mean", "version":"1.0.0", "description":"<b>&",
	"services":[{"name":"com.acme.MyChat","scope":"application","description":"d","systemMessage":"You like {{ topic }}",
	  "methods":[{"name":"chat","kind":"chat","description":"m",
	    "params": {"type":"object", "properties":{"topic":{"type":"string"},"id":{"type":"string"},"order":{"type":"object"}}, "required":["topic","id","order"]},
	    "output":{"type":"string"},"userMessage":"{{order.id}}","memoryId":"id","model":"big","temperature":0.5,"topP":1,
	    "maxOutputTokens":100,"stop":["END"],"randomSeed":-7,"reasoningEffort":"low","window":{"type":"tokens","max":2000000},
	    "retain":"window","seed":[{"user":"Hi {{topic}}","assistant":"Hello"},{"assistant":"Yes","user":"Tea?"}]}]}],
	"defaultMemoryId":{"from":"header:X-Conversation","priority":-3},
	"allowDefaultIdLeak":true,
	"capabilities":{"models":["big"]}}`
	m, err := manifest.Parse([]byte(raw), manifest.Known{Models: []string{"default", "big"}})
	if err != nil {
		t.Fatal(err)
	}
	temperature, topP, tokens, seed := 0.5, 1.0, 100, int64(-7)
	wantSame(t, m, abi.Manifest{
		ABI: abi.Version, Name: "nice-and-mean", Version: "1.0.0", Description: "<b>&",
		Services: []abi.Service{{
			Name: "com.acme.MyChat", Scope: abi.ScopeApplication, Description: "d", SystemMessage: "You like {{ topic }}",
			Methods: []abi.Method{{
				Name: "chat", Kind: abi.KindChat, Description: "m",
				Params:      []byte(`{"type":"object","properties":{"topic":{"type":"string"},"id":{"type":"string"},"order":{"type":"object"}},"required":["topic","id","order"]}`),
				Output:      []byte(`{"type":"string"}`),
				UserMessage: "{{order.id}}", MemoryID: "id", MemoryIDRequired: true, Model: "big",
				Generation: abi.Generation{Temperature: &temperature, TopP: &topP, MaxOutputTokens: &tokens, Stop: []string{"END"}, RandomSeed: &seed, ReasoningEffort: "low"},
				Window:     &abi.Window{Type: abi.WindowTokens, Max: abi.MaxWindowTokens}, Retain: abi.RetainWindow,
				Seed: []abi.Example{{User: "Hi {{topic}}", Assistant: "Hello"}, {User: "Tea?", Assistant: "Yes"}},
			}},
		}},
		DefaultMemoryID:    &abi.DefaultMemoryID{From: "header:X-Conversation", Priority: -3},
		AllowDefaultIDLeak: true,
		Capabilities:       abi.Capabilities{Models: []string{"big"}},
	})
	encoded, err := manifest.Encode(m)
	if err != nil {
		t.Fatal(err)
	}
	again, err := manifest.Parse(encoded, manifest.Known{})
	if err != nil {
		t.Fatal(err)
	}
	wantSame(t, again, m)
	if !strings.Contains(string(encoded), `"description":"<b>&"`) {
		t.Errorf("HTML was escaped: %s", encoded)
	}
}

func TestParseFaults(t *testing.T) {
	const method = "/services/0/methods/0"
	for name, tc := range map[string]struct {
		raw  string
		want []string // pointers and parts of messages in turn
	}{
		"no JSON":                       {`{`, []string{"", "ends before"}},
		"a member twice":                {`{"abi":"carrel/v1","abi":"x"}`, []string{"/abi", "twice"}},
		"an array":                      {`[]`, []string{"", "must be an object, not an array"}},
		"nothing at all":                {`{}`, []string{"/abi", `add "abi": "carrel/v1"`, "/name", "missing", "/version", "missing"}},
		"another ABI":                   {`{"abi":"carrel/v2","name":"a","version":"1"}`, []string{"/abi", `speaks "carrel/v1", not "carrel/v2"`}},
		"faults come in document order": {`{"version":1,"name":"A","abi":true}`, []string{"/version", "a string is expected, not a number", "/name", "small letter", "/abi", "not a boolean"}},
		"a version that is empty":       {`{"abi":"carrel/v1","name":"a","version":""}`, []string{"/version", "empty"}},
		"a version that is too long":    {withPlugin(`"description":"` + strings.Repeat("x", 4097) + `"`), []string{"/description", "at most 4096"}},

		"a member in another case":    {withService(`"SystemMessage":"x"`), []string{"/services/0/SystemMessage", "did you mean `systemMessage`? Names are exact"}},
		"a member in snake case":      {withService(`"system_message":"x"`), []string{"/services/0/system_message", "did you mean `systemMessage`?"}},
		"a misspelt member":           {withMethod(msgParams + `,"memorId":"id"`), []string{method + "/memorId", "did you mean `memoryId`?"}},
		"a member of another level":   {withService(`"memoryId":"id"`), []string{"/services/0/memoryId", "it belongs into a method"}},
		"a member that nobody knows":  {withPlugin(`"zzzzzz":1`), []string{"/zzzzzz", "remove it (it may have abi, name"}},
		"a member with control bytes": {withPlugin(`"\u001b[31m\u0000":1`), []string{"/\x1b[31m\x00", `"\x1b[31m\x00"`}},
		"tools and other later members": {withPlugin(`"tools":[],"guards":[],"engine":"javascript"`),
			[]string{"/tools", "not supported by this host yet", "/guards", "not supported", "/engine", "not supported"}},
		"later members of a method": {withMethod(msgParams + `,"tools":[],"retrieve":{},"maxToolRounds":1,"maxToolCalls":1,"onToolError":"fail","inputGuards":[],"outputGuards":[],"maxRepairs":1,"maxReprompts":1`),
			[]string{method + "/tools", "yet", method + "/retrieve", "yet", method + "/maxToolRounds", "yet", method + "/maxToolCalls", "yet",
				method + "/onToolError", "yet", method + "/inputGuards", "yet", method + "/outputGuards", "yet", method + "/maxRepairs", "yet", method + "/maxReprompts", "yet"}},
		"later capabilities": {withPlugin(`"capabilities":{"http":[],"kv":true,"secrets":[]}`),
			[]string{"/capabilities/http", "yet", "/capabilities/kv", "yet", "/capabilities/secrets", "yet"}},

		"a service name with a space":    {withPlugin(`"services":[{"name":"my chat"}]`), []string{"/services/0/name", "identifiers joined by dots"}},
		"two services of one name":       {withPlugin(`"services":[{"name":"A"},{"name":"A"}]`), []string{"/services/1/name", "rename one"}},
		"two methods of one name":        {withService(`"methods":[{"name":"x","kind":"chat"` + msgParams + `},{"name":"x","kind":"chat"` + msgParams + `}]`), []string{"/services/0/methods/1/name", "rename one"}},
		"a service that is no object":    {withPlugin(`"services":[1]`), []string{"/services/0", "a service must be an object"}},
		"services that are no array":     {withPlugin(`"services":{}`), []string{"/services", "an array is expected"}},
		"too many services":              {withPlugin(`"services":[` + strings.TrimSuffix(strings.Repeat("1,", 101), ",") + `]`), []string{"/services", "at most 100"}},
		"a scope in capitals":            {withService(`"scope":"APPLICATION"`), []string{"/services/0/scope", `did you mean "application"`}},
		"a scope that nobody knows":      {withService(`"scope":"global"`), []string{"/services/0/scope", "it is one of"}},
		"a kind that nobody knows":       {withService(`"methods":[{"name":"x","kind":"Chat"` + msgParams + `}]`), []string{"/services/0/methods/0/kind", `use "chat" or "handler"`}},
		"a method without name and kind": {withService(`"methods":[{"params":{"type":"object","properties":{"m":{"type":"string"}},"required":["m"]}}]`), []string{method + "/name", "missing", method + "/kind", "missing"}},
		"a method name with a dot":       {withService(`"methods":[{"name":"a.b","kind":"chat"` + msgParams + `}]`), []string{method + "/name", "letter or underscore"}},

		"an output that is an object":     {withMethod(msgParams + `,"output":{"type":"object"}`), []string{method + "/output", "not supported by this host yet"}},
		"a temperature that is too high":  {withMethod(msgParams + `,"temperature":2.1`), []string{method + "/temperature", "from 0 to 2"}},
		"a temperature that overflows":    {withMethod(msgParams + `,"temperature":1e399`), []string{method + "/temperature", "from 0 to 2"}},
		"a topP that is a string":         {withMethod(msgParams + `,"topP":"1"`), []string{method + "/topP", "from 0 to 1"}},
		"no output tokens":                {withMethod(msgParams + `,"maxOutputTokens":0`), []string{method + "/maxOutputTokens", "from 1"}},
		"a fraction of a token":           {withMethod(msgParams + `,"maxOutputTokens":1.0`), []string{method + "/maxOutputTokens", "without fraction"}},
		"an empty stop sequence":          {withMethod(msgParams + `,"stop":["a",""]`), []string{method + "/stop/1", "remove it"}},
		"a random seed that is too large": {withMethod(msgParams + `,"randomSeed":9223372036854775808`), []string{method + "/randomSeed", "integer"}},
		"an empty reasoning effort":       {withMethod(msgParams + `,"reasoningEffort":""`), []string{method + "/reasoningEffort", "empty"}},
		"a window that nobody knows":      {withMethod(msgParams + `,"window":{"type":"turns","max":0}`), []string{method + "/window/type", `use "messages" or "tokens"`}},
		"a window that is too large":      {withMethod(msgParams + `,"window":{"max":1001}`), []string{method + "/window/max", "from 1 to 1000"}},
		"a window with another member":    {withMethod(msgParams + `,"window":{"maximum":1}`), []string{method + "/window/maximum", "a window has no member"}},
		"a model that the host has not":   {withMethod(msgParams + `,"model":"huge"`), []string{method + "/model", `it has "default", "fast"`}},
		"a capability for such a model":   {withPlugin(`"capabilities":{"models":["fast","huge","fast"]}`), []string{"/capabilities/models/1", `it has "default", "fast"`, "/capabilities/models/2", "twice"}},

		"params that are no object":        {withMethod(`,"params":{"type":"string"}`), []string{method + "/params", `write "type": "object" at its root`}},
		"params that are no schema":        {withMethod(`,"params":{"type":"object","properties":{"a":{"type":"text"}}}`), []string{method + "/params/properties/a/type", "expected"}},
		"params with a remote reference":   {withMethod(`,"params":{"type":"object","$ref":"http://example.com/x"}`), []string{method + "/params/$ref", "into the schema itself"}},
		"params that are too long":         {withMethod(`,"params":{"type":"object","description":"` + strings.Repeat("x", abi.MaxSchemaBytes) + `"}`), []string{method + "/params", "at most 65536"}},
		"no params and no user message":    {withMethod(``), []string{method + "/userMessage", "no string param"}},
		"two params for the user message":  {withMethod(`,"params":{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"string"}},"required":["a"]}`), []string{method + "/userMessage", `take its place ("a", "b")`}},
		"an optional param for the user":   {withMethod(`,"params":{"type":"object","properties":{"m":{"type":"string"}}}`), []string{method + "/params", "add it to params.required"}},
		"an empty user message":            {withMethod(msgParams + `,"userMessage":""`), []string{method + "/userMessage", "every call would fail"}},
		"a memory id that is no param":     {withMethod(msgParams + `,"memoryId":"key","userMessage":"{{msg}}"`), []string{method + "/memoryId", `no property "key"`}},
		"a memory id that is a number":     {withMethod(msgParams + `,"memoryId":"n","userMessage":"{{msg}}"`), []string{method + "/memoryId", "of type string"}},
		"a template that is not closed":    {withMethod(msgParams + `,"userMessage":"Hi {{msg"`), []string{method + "/userMessage", "byte 3"}},
		"a template with an unknown param": {withMethod(msgParams + `,"userMessage":"{{msg}} {{order.id}}"`), []string{method + "/userMessage", "{{order}}"}},
		"the service's template, too": {withService(`"systemMessage":"{{product}}","methods":[{"name":"chat","kind":"chat","userMessage":"{{msg}}"` + msgParams + `}]`),
			[]string{"/services/0/systemMessage", "params of /services/0/methods/0 has no such property"}},
		"a template that is too long": {withService(`"systemMessage":"` + strings.Repeat("x", abi.MaxTemplateBytes+1) + `"`), []string{"/services/0/systemMessage", "at most 65536"}},

		"a provider without a source":     {withPlugin(`"defaultMemoryId":{}`), []string{"/defaultMemoryId/from", "or write `export`"}},
		"a source that nobody knows":      {withPlugin(`"defaultMemoryId":{"from":"cookie:x"}`), []string{"/defaultMemoryId/from", "no source"}},
		"a header that is no token":       {withPlugin(`"defaultMemoryId":{"from":"header:X Y"}`), []string{"/defaultMemoryId/from", "not the name of a header"}},
		"a header without a name":         {withPlugin(`"defaultMemoryId":{"from":"header:"}`), []string{"/defaultMemoryId/from", "not the name of a header"}},
		"the session's priority":          {withPlugin(`"defaultMemoryId":{"from":"subject","priority":0}`), []string{"/defaultMemoryId/priority", "provider of the host"}},
		"the request's priority":          {withPlugin(`"defaultMemoryId":{"from":"subject","priority":100}`), []string{"/defaultMemoryId/priority", "provider of the host"}},
		"a priority beyond safe integers": {withPlugin(`"defaultMemoryId":{"from":"subject","priority":9007199254740992}`), []string{"/defaultMemoryId/priority", "integer"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := manifest.Parse([]byte(tc.raw), manifest.Known{Models: []string{"default", "fast"}})
			wantFaults(t, err, tc.want...)
		})
	}
}

func TestParseRefusesProtocolHeaders(t *testing.T) {
	for _, header := range []string{
		"Authorization", "X-Api-Key", "COOKIE", "Host", "Content-Type", "content-anything", "Carrel-Session", "Idempotency-Key",
		"Connection", "Keep-Alive", "Proxy-Authorization", "TE", "Trailer", "Transfer-Encoding", "Upgrade", "Sec-WebSocket-Key",
	} {
		_, err := manifest.Parse([]byte(withPlugin(`"defaultMemoryId":{"from":"header:`+header+`"}`)), manifest.Known{})
		wantFaults(t, err, "/defaultMemoryId/from", "use a header of your own")
	}
	for _, header := range []string{"X-Conversation", "conversation_id", "Chat"} {
		m, err := manifest.Parse([]byte(withPlugin(`"defaultMemoryId":{"from":"header:`+header+`"}`)), manifest.Known{})
		if err != nil || m.DefaultMemoryID.Priority != abi.DefaultProviderPriority {
			t.Errorf("%s: %+v, %v", header, m.DefaultMemoryID, err)
		}
	}
}

func TestParseBoundsItsFaults(t *testing.T) {
	var members []string
	for i := range 5000 {
		members = append(members, fmt.Sprintf(`"x%d":1`, i))
	}
	_, err := manifest.Parse([]byte(withPlugin(strings.Join(members, ","))), manifest.Known{})
	e, ok := errors.AsType[*carrel.Error](err)
	if !ok || len(e.Faults) != 101 || e.Faults[0].Pointer != "/x0" || !strings.Contains(e.Faults[100].Message, "4900 more") {
		t.Errorf("got %v with %d faults", err, len(e.Faults))
	}
}

func TestParseRefusesALargeOne(t *testing.T) {
	_, err := manifest.Parse(make([]byte, abi.MaxManifestBytes+1), manifest.Known{})
	e, ok := errors.AsType[*carrel.Error](err)
	if !ok || e.Code != abi.LimitExceeded || e.Limit != "manifestBytes" {
		t.Errorf("got %v", err)
	}
}

func TestParseOfAHostWithoutModels(t *testing.T) {
	_, err := manifest.Parse([]byte(withMethod(msgParams+`,"userMessage":"{{msg}}"`)), manifest.Known{Models: []string{}})
	wantFaults(t, err, "/services/0/methods/0", "it has none at all")
}

func TestATemplateMayUseAParamThatCallersMayLeaveOut(t *testing.T) {
	m, err := manifest.Parse([]byte(withMethod(msgParams+`,"userMessage":"{{msg}} {{n}}"`)), manifest.Known{})
	if err != nil {
		t.Fatal(err)
	}
	if got := m.Services[0].Methods[0].UserMessage; got != "{{msg}} {{n}}" {
		t.Errorf("the user message is %q", got)
	}
}

func TestDefaultIDLeak(t *testing.T) {
	service := func(method, plugin string) string {
		return withPlugin(plugin + `"services":[{"name":"A","scope":"application","methods":[{"name":"chat","kind":"chat"` + method + `}]}]`)
	}
	const required = `,"memoryId":"id","params":{"type":"object","properties":{"id":{"type":"string"},"msg":{"type":"string"}},"required":["id","msg"]}`
	const optional = `,"memoryId":"id","params":{"type":"object","properties":{"id":{"type":"string"},"msg":{"type":"string"}},"required":["msg"]}`
	const none = `,"params":{"type":"object","properties":{"msg":{"type":"string"}},"required":["msg"]}`
	for name, tc := range map[string]struct {
		raw   string
		leaks bool
	}{
		"no memory id":                         {service(none, ""), true},
		"an optional memory id":                {service(optional, ""), true},
		"a required memory id":                 {service(required, ""), false},
		"a provider before the session's":      {service(none, `"defaultMemoryId":{"from":"subject"},`), false},
		"a provider of priority minus one":     {service(none, `"defaultMemoryId":{"from":"subject","priority":-1},`), false},
		"a provider behind the session's":      {service(none, `"defaultMemoryId":{"from":"subject","priority":1},`), true},
		"a leak that is allowed":               {service(none, `"allowDefaultIdLeak":true,`), false},
		"a leak that is expressly not allowed": {service(none, `"allowDefaultIdLeak":false,`), true},
		"a request-scoped service":             {withMethod(none), false},
		"a session-scoped service":             {withService(`"scope":"session","methods":[{"name":"chat","kind":"chat"` + none + `}]`), false},
		"a handler":                            {withPlugin(`"services":[{"name":"A","scope":"application","methods":[{"name":"x","kind":"handler","export":"x"}]}]`), false},
		"a guest's provider":                   {service(none, `"defaultMemoryId":{"export":"my_id"},`), false},
		"a guest's provider behind the host's": {service(none, `"defaultMemoryId":{"export":"my_id","priority":101},`), true},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := manifest.Parse([]byte(tc.raw), manifest.Known{})
			if m.Name != "a" || len(m.Services) != 1 {
				t.Errorf("want the manifest, got %+v", m)
			}
			if !tc.leaks {
				if err != nil {
					t.Error(err)
				}
				return
			}
			e, ok := errors.AsType[*carrel.Error](err)
			if !ok || e.Code != abi.DefaultIDLeak || len(e.Faults) != 1 || e.Faults[0].Pointer != "/services/0/methods/0" {
				t.Fatalf("got %v", err)
			}
			for _, remedy := range []string{`"memoryId"`, `"defaultMemoryId"`, `"allowDefaultIdLeak": true`} {
				if !strings.Contains(e.Msg, remedy) || !strings.Contains(e.Faults[0].Message, remedy) {
					t.Errorf("%s is not among the remedies: %s", remedy, e.Msg)
				}
			}
		})
	}
	t.Run("another fault is reported first", func(t *testing.T) {
		_, err := manifest.Parse([]byte(service(none, `"x":1,`)), manifest.Known{})
		wantFaults(t, err, "/x", "no member")
	})
}

// FuzzParse checks that no manifest makes Parse panic and that an accepted one
// encodes to JSON that means the same.
func FuzzParse(f *testing.F) {
	f.Add([]byte(smallest))
	f.Add([]byte(withPlugin(`"services":[],"capabilities":{"models":[]}`)))
	f.Add([]byte(withMethod(msgParams + `,"userMessage":"{{msg}}"`)))
	f.Add([]byte(withService(`"scope":"application","systemMessage":"{{"`)))
	f.Add([]byte(withPlugin(`"defaultMemoryId":{"from":"header:X"},"capabilities":{"models":["a"]}`)))
	f.Add([]byte(withPlugin(`"defaultMemoryId":{"export":"id"},"memoryNamespace":"n","limits":{"memoryMiB":1,"timeout":"1s"},"capabilities":{"call":["b/*"]}`)))
	f.Add([]byte(withHandler(`"export":"x","params":{"type":"object"},"output":{"type":["string","null"]}`)))
	f.Add([]byte(withHandler(`"export":"x","output":true,"window":{}`)))
	f.Fuzz(func(t *testing.T, raw []byte) {
		m, err := manifest.Parse(raw, manifest.Known{})
		if err != nil && carrel.CodeOf(err) != abi.DefaultIDLeak {
			if carrel.CodeOf(err) != abi.InvalidManifest {
				t.Fatal(err)
			}
			return
		}
		encoded, err := manifest.Encode(m)
		if err != nil {
			t.Fatal(err)
		}
		again, err := manifest.Parse(encoded, manifest.Known{})
		if err != nil && carrel.CodeOf(err) != abi.DefaultIDLeak {
			t.Fatalf("%v: %s", err, encoded)
		}
		wantSame(t, again, m)
		for _, s := range m.Services {
			for _, method := range s.Methods {
				if handler := method.Kind == abi.KindHandler; handler != (method.Export != "") || handler != (method.Window == nil) || handler != (method.Model == "") {
					t.Errorf("neither a chat method nor a handler: %+v", method)
				}
			}
		}
		if d := m.DefaultMemoryID; d != nil && (d.From == "") == (d.Export == "") {
			t.Errorf("a provider of %+v", d)
		}
	})
}
