package team_test

import (
	"os"
	"slices"
	"testing"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/internal/testenv"
)

func TestTheLeadNeedsTheOwnersGrant(t *testing.T) {
	translator, err := os.ReadFile("translator.md")
	if err != nil {
		t.Fatal(err)
	}
	env := testenv.New(t, testenv.Config())
	acme := env.Tenant("acme")
	acme.Install(string(translator))
	acme.Build("lead")
	if r := acme.Report("team-lead"); r.Class != "tools" || r.Path != "reset" || r.Image == nil || r.Fuel == 0 || r.Measured == nil {
		t.Errorf("the report is %+v", r)
	}
	const greet = "team-lead/com.acme.Lead.greet"

	acme.WantCode(abi.GuestFailed).Chat(greet, "name", "Ada", "language", "French")
	if n := len(env.Model.Calls()); n != 0 {
		t.Errorf("%d model calls without a grant", n)
	}
	grant := client.Grant{Call: []string{"team-translator/com.acme.Translator.translate"}}
	if _, err := acme.Client().SetGrant(t.Context(), "team-lead", grant); err != nil {
		t.Fatal(err)
	}
	env.Model.Reply("Bienvenue, Ada !")
	out := acme.Chat(greet, "name", " Ada ", "language", "French")
	if out.Output != "Bienvenue, Ada !" {
		t.Errorf("the greeting is %q", out.Output)
	}
	want := []string{
		"system:You are a translator. You answer with the translation and nothing else.",
		"user:Translate into French: Welcome, Ada!",
	}
	if got := env.Model.Send(1); !slices.Equal(got, want) {
		t.Errorf("the translator sent %q, want %q", got, want)
	}
	if len(out.Evicted) != 1 || out.Usage.InputTokens == 0 {
		t.Errorf("evicted %+v, usage %+v: want the inner call's history and tokens", out.Evicted, out.Usage)
	}
	acme.WantCode(abi.GuestFailed).Chat(greet, "name", " ", "language", "French")
}
