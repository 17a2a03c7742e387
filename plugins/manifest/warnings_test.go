package manifest_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/carrelhost/carrel/plugins/manifest"
)

func TestWarnings(t *testing.T) {
	// chats is a service of chat methods, whose param q is required and is the
	// user's message.
	chats := func(service string, methods ...string) string {
		for i, m := range methods {
			methods[i] = `{"kind":"chat","params":{"type":"object","required":["q"],"properties":{` +
				`"q":{"type":"string"},"o":{"type":"object"},"x":{"type":"integer"}}},` + m + `}`
		}
		return `{` + service + `,"methods":[` + strings.Join(methods, ",") + `]}`
	}
	for name, tc := range map[string]struct {
		services []string
		want     []string
	}{
		"a template that uses required params": {[]string{chats(`"name":"A","systemMessage":"Hi {{q}}"`, `"name":"m"`)}, nil},
		"a template that uses an optional param": {
			[]string{chats(`"name":"A"`, `"name":"m","userMessage":"{{q}} {{o.p}} {{o.r}}"`)},
			[]string{"a template of A.m uses {{o.p}}, which is an optional param: a call without it fails"},
		},
		"a service's system message, of the method that it does not suit": {
			[]string{chats(`"name":"A","systemMessage":"{{x}}"`, `"name":"m"`, `"name":"n","systemMessage":"s"`)},
			[]string{"a template of A.m uses {{x}}, which is an optional param: a call without it fails"},
		},
		"methods none of which has a system message": {[]string{chats(`"name":"A"`, `"name":"m"`), chats(`"name":"B"`, `"name":"m"`)}, nil},
		"one method without a system message": {
			[]string{chats(`"name":"A","systemMessage":"s"`, `"name":"m"`), chats(`"name":"B"`, `"name":"chat"`)},
			[]string{"B.chat has no system message, unlike other methods"},
		},
		"a handler, which has none of this": {
			[]string{chats(`"name":"A","systemMessage":"s"`, `"name":"m"`), `{"name":"B","methods":[{"name":"h","kind":"handler","export":"h"}]}`}, nil,
		},
		"examples that fit": {
			[]string{chats(`"name":"A","systemMessage":"s"`, `"name":"m","window":{"max":4},"seed":[{"user":"u","assistant":"a"}]`)}, nil,
		},
		"an example that looks like a template": {
			[]string{chats(`"name":"A"`, `"name":"m","seed":[{"user":"u","assistant":"{{q}} {{x}}"}]`)},
			[]string{"example turn 1 of A.m uses {{q}}, but examples are no templates: it is sent as it is"},
		},
		"more examples than the window holds": {
			[]string{chats(`"name":"A","systemMessage":"s"`, `"name":"m","window":{"max":5},"seed":[{"user":"u","assistant":"a"},{"user":"u","assistant":"a"}]`)},
			[]string{"the window of A.m has room for 1 of its 2 example turns"},
		},
		"a system message that is larger than the window of tokens": {
			[]string{chats(`"name":"A","systemMessage":"`+strings.Repeat("s", 100)+`"`, `"name":"m","window":{"type":"tokens","max":20}`)},
			[]string{"the window of A.m has no room for its system message"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := manifest.Parse([]byte(withPlugin(`"services":[`+strings.Join(tc.services, ",")+`]`)), manifest.Known{})
			if err != nil {
				t.Fatal(err)
			}
			if got := manifest.Warnings(m); !slices.Equal(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
