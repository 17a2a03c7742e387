package manifest_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/plugins/manifest"
)

// withHandler is a manifest of one handler with more members.
func withHandler(members string) string {
	return withService(`"methods":[{"name":"triage","kind":"handler",` + members + `}]`)
}

// wantEncoded wants a manifest to be read, and to be written out as given, and
// that to be read as the same.
func wantEncoded(t *testing.T, raw, want string) abi.Manifest {
	t.Helper()
	m, err := manifest.Parse([]byte(raw), manifest.Known{Models: []string{"default"}, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := manifest.Encode(m)
	if err != nil {
		t.Fatal(err)
	}
	if string(encoded) != want {
		t.Errorf("got  %s\nwant %s", encoded, want)
	}
	again, err := manifest.Parse(encoded, manifest.Known{})
	if err != nil {
		t.Fatal(err)
	}
	wantSame(t, again, m)
	return m
}

func TestParseOfPluginsWithCode(t *testing.T) {
	const plugin = `{"abi":"carrel/v1","name":"a","version":"1",`
	const handler = plugin + `"services":[{"name":"com.acme.MyChat","scope":"request","methods":[{"name":"triage","kind":"handler",`
	for name, tc := range map[string]struct{ raw, want string }{
		"a handler has params and an output by default, no model and no window": {
			withHandler(`"export":"triage"`),
			handler + `"export":"triage","params":{"type":"object"},"output":{"type":"string"}}]}],"capabilities":{}}`,
		},
		"a handler's schemas are kept as they are, without white space": {
			withHandler(`"description":"d", "export":"my module#run", "output": {"type": "array", "items": {"type": "integer"}}, "params": {"required": ["b"], "type": "object"}`),
			handler + `"export":"my module#run","description":"d","params":{"required":["b"],"type":"object"},"output":{"type":"array","items":{"type":"integer"}}}]}],"capabilities":{}}`,
		},
		"an output of anything": {
			withHandler(`"export":"x","output":true`),
			handler + `"export":"x","params":{"type":"object"},"output":true}]}],"capabilities":{}}`,
		},
		"an output of text with a bound is JSON": {
			withHandler(`"export":"x","output":{"type":"string","maxLength":3}`),
			handler + `"export":"x","params":{"type":"object"},"output":{"type":"string","maxLength":3}}]}],"capabilities":{}}`,
		},
		"text is told by what the schema means, not by how it is spelt": {
			withHandler(`"export":"x","output":{"\u0074ype" : "strin\u0067"}`),
			handler + `"export":"x","params":{"type":"object"},"output":{"type":"string"}}]}],"capabilities":{}}`,
		},
		"two handlers may share an export, with the default id provider too": {
			withPlugin(`"services":[{"name":"A","methods":[{"name":"x","kind":"handler","export":"f"},{"name":"y","kind":"handler","export":"f"}]}],"defaultMemoryId":{"export":"f"}`),
			plugin + `"services":[{"name":"A","scope":"request","methods":[{"name":"x","kind":"handler","export":"f","params":{"type":"object"},"output":{"type":"string"}},` +
				`{"name":"y","kind":"handler","export":"f","params":{"type":"object"},"output":{"type":"string"}}]}],"defaultMemoryId":{"export":"f","priority":-10},"capabilities":{}}`,
		},
		"a session-scoped service may have both kinds": {
			withPlugin(`"services":[{"name":"A","scope":"session","systemMessage":"{{msg}}","methods":[{"name":"x","kind":"handler","export":"f"},{"name":"chat","kind":"chat","params":{"type":"object","properties":{"msg":{"type":"string"}},"required":["msg"]}}]}]`),
			plugin + `"services":[{"name":"A","scope":"session","systemMessage":"{{msg}}","methods":[{"name":"x","kind":"handler","export":"f","params":{"type":"object"},"output":{"type":"string"}},` +
				`{"name":"chat","kind":"chat","params":{"type":"object","properties":{"msg":{"type":"string"}},"required":["msg"]},"output":{"type":"string"},"model":"default","window":{"type":"messages","max":20},"retain":"history"}]}],"capabilities":{}}`,
		},
		"wishes of a plugin": {
			withPlugin(`"limits":{"timeout":"60s","memoryMiB":64},"capabilities":{"call":["b/S.m","b/com.acme.S.*","c/*"]},"memoryNamespace":"shared-1"`),
			plugin + `"memoryNamespace":"shared-1","capabilities":{"call":["b/S.m","b/com.acme.S.*","c/*"]},"limits":{"memoryMiB":64,"timeout":"60s"}}`,
		},
		"one wish leaves the other to the host": {
			withPlugin(`"limits":{"timeout":"1m0s"}`), plugin + `"capabilities":{},"limits":{"timeout":"1m0s"}}`,
		},
		"limits without a wish are none": {
			withPlugin(`"limits":{},"capabilities":{"call":[]}`), plugin + `"capabilities":{}}`,
		},
		"exports that only look like the host's": {
			withHandler(`"export":"_initialize2"`),
			handler + `"export":"_initialize2","params":{"type":"object"},"output":{"type":"string"}}]}],"capabilities":{}}`,
		},
		"an export of the greatest length": {
			withHandler(`"export":"` + strings.Repeat("é", abi.MaxExportBytes/2) + `"`),
			handler + `"export":"` + strings.Repeat("é", abi.MaxExportBytes/2) + `","params":{"type":"object"},"output":{"type":"string"}}]}],"capabilities":{}}`,
		},
	} {
		t.Run(name, func(t *testing.T) { wantEncoded(t, tc.raw, tc.want) })
	}
}

func TestParseFaultsOfPluginsWithCode(t *testing.T) {
	const method = "/services/0/methods/0"
	patterns := func(n int) string {
		var out []string
		for i := range n {
			out = append(out, fmt.Sprintf(`"p%d/*"`, i))
		}
		return withPlugin(`"capabilities":{"call":[` + strings.Join(out, ",") + `]}`)
	}
	for name, tc := range map[string]struct {
		raw  string
		want []string // pointers and parts of messages in turn
	}{
		"a handler without an export":     {withHandler(`"description":"d"`), []string{method + "/export", "`export` is missing; add"}},
		"an empty export":                 {withHandler(`"export":""`), []string{method + "/export", "the name is empty"}},
		"an export that is no string":     {withHandler(`"export":1`), []string{method + "/export", "a string is expected"}},
		"an export that is too long":      {withHandler(`"export":"` + strings.Repeat("x", abi.MaxExportBytes+1) + `"`), []string{method + "/export", "at most 200"}},
		"an export with a newline":        {withHandler(`"export":"a\nb"`), []string{method + "/export", "control characters"}},
		"an export with a C1 control":     {withHandler(`"export":"a\u0085"`), []string{method + "/export", "control characters"}},
		"an export that the host owns":    {withHandler(`"export":"carrel$x"`), []string{method + "/export", "belong to the host"}},
		"an export with half a character": {withHandler(`"export":"\ud800"`), []string{method + "/export", "surrogate"}},
		"a guest's provider without name": {withPlugin(`"defaultMemoryId":{"export":""}`), []string{"/defaultMemoryId/export", "the name is empty"}},
		"a provider of both kinds":        {withPlugin(`"defaultMemoryId":{"from":"cookie","export":"my_id"}`), []string{"/defaultMemoryId/from", "no source", "/defaultMemoryId/export", "remove one of them"}},
		"a provider of both, each faulty": {withPlugin(`"defaultMemoryId":{"export":"_start","from":"subject"}`), []string{"/defaultMemoryId/export", "remove one of them", "/defaultMemoryId/export", "meaning of its own"}},

		"members of chat methods on a handler": {
			withHandler(`"export":"x","systemMessage":"{{","userMessage":1,"memoryId":"id","model":"huge","temperature":9,"topP":9,"maxOutputTokens":0,"stop":[""],"seed":[],"reasoningEffort":"","window":{"type":"x"},` +
				`"retain":1,"tools":1,"maxToolRounds":1,"maxToolCalls":1,"onToolError":1,"inputGuards":1,"outputGuards":1,"maxRepairs":1,"maxReprompts":1,"retrieve":1`),
			[]string{
				method + "/systemMessage", "belongs to chat methods", method + "/userMessage", "belongs to chat methods",
				method + "/memoryId", "belongs to chat methods", method + "/model", "belongs to chat methods",
				method + "/temperature", "belongs to chat methods", method + "/topP", "belongs to chat methods",
				method + "/maxOutputTokens", "belongs to chat methods", method + "/stop", "belongs to chat methods",
				method + "/seed", "belongs to chat methods", method + "/reasoningEffort", "belongs to chat methods",
				method + "/window", "belongs to chat methods", method + "/retain", "belongs to chat methods",
				method + "/tools", "belongs to chat methods", method + "/maxToolRounds", "belongs to chat methods",
				method + "/maxToolCalls", "belongs to chat methods", method + "/onToolError", "belongs to chat methods",
				method + "/inputGuards", "belongs to chat methods", method + "/outputGuards", "belongs to chat methods",
				method + "/maxRepairs", "belongs to chat methods", method + "/maxReprompts", "belongs to chat methods",
				method + "/retrieve", "belongs to chat methods",
			},
		},
		"an export of a chat method":        {withMethod(msgParams + `,"export":"carrel$x"`), []string{method + "/export", `belongs to handlers; remove it, or write "kind": "handler"`}},
		"an unknown member of a handler":    {withHandler(`"export":"x","exports":"y"`), []string{method + "/exports", "a handler has no member \"exports\"; did you mean `export`?"}},
		"a method of a handler's look":      {withService(`"methods":[{"name":"x","kind":"Handler","export":""}]`), []string{method + "/kind", `use "chat" or "handler"`, method + "/export", "empty"}},
		"a handler without a kind":          {withService(`"methods":[{"name":"x","export":"x"}]`), []string{method + "/kind", `add "kind": "chat", or "handler"`}},
		"an output that is no schema":       {withHandler(`"export":"x","output":{"properties":{"a":{"type":"text"}}}`), []string{method + "/output/properties/a/type", "expected"}},
		"an output that is null":            {withHandler(`"export":"x","output":null`), []string{method + "/output", ""}},
		"an output that is too long":        {withHandler(`"export":"x","output":{"description":"` + strings.Repeat("x", abi.MaxSchemaBytes) + `"}`), []string{method + "/output", "at most 65536"}},
		"an output with a remote reference": {withHandler(`"export":"x","output":{"$ref":"http://example.com/x"}`), []string{method + "/output/$ref", "into the schema itself"}},
		"params and output, both faulty":    {withHandler(`"export":"x","output":{"type":1},"params":{"type":"string"}`), []string{method + "/output/type", "", method + "/params", `write "type": "object" at its root`}},

		"limits that are no object":        {withPlugin(`"limits":[]`), []string{"/limits", "limits must be an object"}},
		"a limit of a later version":       {withPlugin(`"limits":{"fuel":1}`), []string{"/limits/fuel", "not supported by this host yet"}},
		"a limit that nobody knows":        {withPlugin(`"limits":{"memory":1}`), []string{"/limits/memory", "limits has no member"}},
		"no memory":                        {withPlugin(`"limits":{"memoryMiB":0}`), []string{"/limits/memoryMiB", "from 1 to 64"}},
		"more memory than there may be":    {withPlugin(`"limits":{"memoryMiB":65}`), []string{"/limits/memoryMiB", "from 1 to 64"}},
		"a timeout without a unit":         {withPlugin(`"limits":{"timeout":"10"}`), []string{"/limits/timeout", `write a number and a unit`}},
		"a timeout that is a number":       {withPlugin(`"limits":{"timeout":10}`), []string{"/limits/timeout", "a string is expected"}},
		"an empty timeout":                 {withPlugin(`"limits":{"timeout":""}`), []string{"/limits/timeout", "is not a duration"}},
		"no time at all":                   {withPlugin(`"limits":{"timeout":"0s"}`), []string{"/limits/timeout", "positive"}},
		"a timeout in the past":            {withPlugin(`"limits":{"timeout":"-1s"}`), []string{"/limits/timeout", "positive"}},
		"a timeout longer than the host's": {withPlugin(`"limits":{"timeout":"61s"}`), []string{"/limits/timeout", `write at most "1m0s"`}},
		"a timeout of many digits":         {withPlugin(`"limits":{"timeout":"0.` + strings.Repeat("0", 40) + `1s"}`), []string{"/limits/timeout", "at most 32"}},
		"every limit at fault":             {withPlugin(`"limits":{"timeout":"x","fuel":1,"memoryMiB":-1}`), []string{"/limits/timeout", "not a duration", "/limits/fuel", "yet", "/limits/memoryMiB", "from 1"}},

		"calls that are no patterns": {withPlugin(`"capabilities":{"call":["b","b/*.m","B/*","b@1/*","b/S",""]}`), []string{
			"/capabilities/call/0", `"b" is no pattern of calls: a pattern of calls is plugin/Service.method`, "/capabilities/call/1", "a service's name",
			"/capabilities/call/2", "no pattern", "/capabilities/call/3", "no pattern", "/capabilities/call/4", "no pattern", "/capabilities/call/5", "no pattern",
		}},
		"a call that is there twice": {withPlugin(`"capabilities":{"call":["b/*",1,"b/*"]}`), []string{"/capabilities/call/1", "a string", "/capabilities/call/2", "twice"}},
		"calls of the plugin itself": {withPlugin(`"capabilities":{"call":["a/*","a/S.m","ab/*"]}`), []string{"/capabilities/call/0", "its own methods without asking", "/capabilities/call/1", "its own methods"}},
		"too many calls":             {patterns(abi.MaxCallPatterns + 1), []string{"/capabilities/call", "at most 64"}},

		"a namespace in capitals":       {withPlugin(`"memoryNamespace":"Shared"`), []string{"/memoryNamespace", "small letter"}},
		"an empty namespace":            {withPlugin(`"memoryNamespace":""`), []string{"/memoryNamespace", "small letter"}},
		"a namespace that is too long":  {withPlugin(`"memoryNamespace":"` + strings.Repeat("a", 64) + `"`), []string{"/memoryNamespace", "small letter"}},
		"a namespace that is no string": {withPlugin(`"memoryNamespace":true`), []string{"/memoryNamespace", "a string is expected"}},
		"faults of everything in a plugin": {withPlugin(`"memoryNamespace":"-","capabilities":{"call":["a/*"]},"limits":{"fuel":1},"defaultMemoryId":{"export":"memory"}`), []string{
			"/memoryNamespace", "small letter", "/capabilities/call/0", "own", "/limits/fuel", "yet", "/defaultMemoryId/export", "meaning of its own",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := manifest.Parse([]byte(tc.raw), manifest.Known{Models: []string{"default", "fast"}, Timeout: time.Minute})
			wantFaults(t, err, tc.want...)
		})
	}
	t.Run("as many calls as there may be", func(t *testing.T) {
		m, err := manifest.Parse([]byte(patterns(abi.MaxCallPatterns)), manifest.Known{})
		if err != nil || len(m.Capabilities.Call) != abi.MaxCallPatterns {
			t.Errorf("got %d, %v", len(m.Capabilities.Call), err)
		}
	})
}

func TestParseRefusesExportsOfTheHost(t *testing.T) {
	for _, name := range []string{"_initialize", "_start", "memory", "carrel_describe", "carrel_wake"} {
		_, err := manifest.Parse([]byte(withHandler(`"export":"`+name+`"`)), manifest.Known{})
		wantFaults(t, err, "/services/0/methods/0/export", "meaning of its own")
		_, err = manifest.Parse([]byte(withPlugin(`"defaultMemoryId":{"export":"`+name+`"}`)), manifest.Known{})
		wantFaults(t, err, "/defaultMemoryId/export", "meaning of its own")
	}
}

func TestATimeoutIsAcceptedWhereTheHostsIsNotKnown(t *testing.T) {
	m, err := manifest.Parse([]byte(withPlugin(`"limits":{"timeout":"1000h"}`)), manifest.Known{})
	if err != nil {
		t.Fatal(err)
	}
	if m.Limits == nil || m.Limits.Timeout != "1000h" {
		t.Errorf("got %+v", m.Limits)
	}
}

func TestAHandlerNeedsNoModelOfTheHost(t *testing.T) {
	if _, err := manifest.Parse([]byte(withHandler(`"export":"x"`)), manifest.Known{Models: []string{}}); err != nil {
		t.Error(err)
	}
}
