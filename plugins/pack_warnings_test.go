package plugins_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/carrelhost/carrel/plugins"
)

func TestWarnings(t *testing.T) {
	for name, tc := range map[string]struct {
		src  string
		want []string
	}{
		"a template that uses required params": {"services: [{name: A, systemMessage: 'Hi {{x}}'}]", nil},
		"a template that uses an optional param": {
			"services: [{name: A, methods: [{name: m, userMessage: '{{q}} {{o.p}} {{o.r}}', params: {q: string, o?: object}}]}]",
			[]string{"a template of A.m uses {{o.p}}, which is an optional param: a call without it fails"},
		},
		"a service's system message, of the method that it does not suit": {
			"services: [{name: A, systemMessage: '{{x}}', methods: [{name: m, userMessage: '{{q}}', params: {q: string, x?: string}}, " +
				"{name: n, systemMessage: s, userMessage: '{{q}}', params: [q]}]}]",
			[]string{"a template of A.m uses {{x}}, which is an optional param: a call without it fails"},
		},
		"methods none of which has a system message": {"services: [{name: A}, {name: B}]", nil},
		"one method without a system message": {
			"services: [{name: A, systemMessage: s}, {name: B}]",
			[]string{"B.chat has no system message, unlike other methods"},
		},
		"examples that fit": {
			"services: [{name: A, systemMessage: s, methods: [{name: m, window: {max: 4}, seed: [{user: u, assistant: a}]}]}]", nil,
		},
		"an example that looks like a template": {
			"services: [{name: A, methods: [{name: m, seed: [{user: u, assistant: '{{msg}} {{x}}'}]}]}]",
			[]string{"example turn 1 of A.m uses {{msg}}, but examples are no templates: it is sent as it is"},
		},
		"more examples than the window holds": {
			"services: [{name: A, systemMessage: s, methods: [{name: m, window: {max: 5}, seed: [{user: u, assistant: a}, {user: u, assistant: a}]}]}]",
			[]string{"the window of A.m has room for 1 of its 2 example turns"},
		},
		"a system message that is larger than the window of tokens": {
			"services: [{name: A, systemMessage: " + strings.Repeat("s", 100) + ", methods: [{name: m, window: {type: tokens, max: 20}}]}]",
			[]string{"the window of A.m has no room for its system message"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := plugins.Warnings(packed(t, "a.yaml", tc.src)); !slices.Equal(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestAHeadingThatIsNearlyANameIsAFault(t *testing.T) {
	const two = "---\nservices:\n  - name: com.acme.First\n    methods: [{name: chat}, {name: classify}]\n  - name: com.acme.Second\n---\n# com.acme.First\na\n# com.acme.Second\nb\n"
	for heading, want := range map[string]string{
		"com.acme.Frist":           "com.acme.First",
		"com.acme.First.clasify":   "com.acme.First.classify",
		"org.example.Second":       "com.acme.Second",
		"Frist.classify":           "com.acme.First.classify",
		"acme.Second":              "com.acme.Second",
		"Node.js":                  "",
		"com.acme.Frist is a name": "",
		"Frist":                    "",
		"com.acme.First!":          "",
	} {
		t.Run(heading, func(t *testing.T) {
			src := two + "# " + heading + "\nc\n"
			if want != "" {
				_, _, err := plugins.Pack("a.md", []byte(src))
				wantFaults(t, err, "", `did you mean "`+want+`"?`)
				return
			}
			if m := packed(t, "a.md", src); m.Services[1].SystemMessage != "b\n# "+heading+"\nc" {
				t.Errorf("got %q", m.Services[1].SystemMessage)
			}
		})
	}
}

func TestTheOnlyServiceHasTextsOfItsMethods(t *testing.T) {
	const front = "---\nservices:\n  - name: com.acme.Only\n    methods: [{name: chat}, {name: classify}]\n---\n"
	for name, tc := range map[string]struct{ body, service, classify, fault string }{
		"text before the first heading is the service's":  {"You are\n# Rules\nbrief\n# com.acme.Only.classify\nYou sort\n", "You are\n# Rules\nbrief", "You sort", ""},
		"its own heading begins its text":                 {"\n# com.acme.Only\nYou are\n# com.acme.Only.classify\nYou sort\n", "You are", "You sort", ""},
		"a method's text alone":                           {"# com.acme.Only.classify\nYou sort\n", "", "You sort", ""},
		"its text and then its own heading":               {"You are\n# com.acme.Only\nYou were\n", "", "", "began already in line 6; join the two (line 7)"},
		"a heading that is nearly the name of its method": {"You are\n# com.acme.Only.clasify\nYou sort\n", "", "", `did you mean "com.acme.Only.classify"?`},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.fault != "" {
				_, _, err := plugins.Pack("a.md", []byte(front+tc.body))
				if err == nil || !strings.Contains(err.Error(), tc.fault) {
					t.Errorf("got %v", err)
				}
				return
			}
			s := packed(t, "a.md", front+tc.body).Services[0]
			if s.SystemMessage != tc.service || s.Methods[1].SystemMessage != tc.classify || s.Methods[0].SystemMessage != "" {
				t.Errorf("got %+v", s)
			}
		})
	}
}
