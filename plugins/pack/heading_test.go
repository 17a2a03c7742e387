package pack_test

import (
	"strings"
	"testing"

	"github.com/carrelhost/carrel/plugins/pack"
)

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
				_, _, err := pack.Prompt("a.md", []byte(src))
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
				_, _, err := pack.Prompt("a.md", []byte(front+tc.body))
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
