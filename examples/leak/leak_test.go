package leak_test

import (
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/internal/testenv"
)

func TestAHostRefusesALeakAndSaysWhatToDo(t *testing.T) {
	source, err := os.ReadFile("leak.md")
	if err != nil {
		t.Fatal(err)
	}
	env := testenv.New(t, testenv.Config())
	acme := env.Tenant("acme")

	_, err = acme.Client().Upload(t.Context(), testenv.Pack(t, string(source)), client.UploadOptions{})
	p, ok := errors.AsType[*client.Problem](err)
	if !ok || p.Code != abi.DefaultIDLeak.String() {
		t.Fatalf("the upload ended with %v, want default_id_leak", err)
	}
	if len(p.Errors) != 1 || p.Errors[0].Pointer != "/services/0/methods/0" {
		t.Errorf("the faults are %+v, want one, at the method", p.Errors)
	}
	for _, way := range []string{"memoryId.*required", "defaultMemoryId", "scope .request.", "allowDefaultIdLeak"} {
		if !regexp.MustCompile(way).MatchString(p.Detail) {
			t.Errorf("the answer does not name %s as a way out: %s", way, p.Detail)
		}
	}
	if _, err := acme.Client().Plugin(t.Context(), "leak"); testenv.CodeOf(err) != abi.NotFound {
		t.Errorf("a refused upload left something: %v", err)
	}
}

func TestEachWayOutIsOne(t *testing.T) {
	source, err := os.ReadFile("leak.md")
	if err != nil {
		t.Fatal(err)
	}
	for name, edit := range map[string]*strings.Replacer{
		"a required memory id param":   strings.NewReplacer("    scope: application", "    scope: application\n    methods: [{ name: chat, memoryId: id }]"),
		"a provider of default ids":    strings.NewReplacer("services:", "defaultMemoryId: { from: subject }\nservices:"),
		"the scope of a request":       strings.NewReplacer("scope: application", "scope: request"),
		"acceptance, in so many words": strings.NewReplacer("services:", "allowDefaultIdLeak: true\nservices:"),
	} {
		t.Run(name, func(t *testing.T) {
			edited := edit.Replace(string(source))
			if edited == string(source) {
				t.Fatal("the edit changed nothing")
			}
			testenv.New(t, testenv.Config()).Tenant("acme").In(t).Install(edited)
		})
	}
}
