package main_test

import (
	"testing"

	"github.com/carrelhost/carrel/internal/testenv"
)

func TestTheRulesAreCompiledBeforeTheFirstCall(t *testing.T) {
	acme := testenv.New(t, testenv.Config()).Tenant("acme")
	acme.Build(".")
	if r := acme.Report("warmup"); r.Warmup != "kept" || len(r.Notes) > 0 {
		t.Errorf("the report is %+v", r)
	}
	for text, want := range map[string]string{
		"Where is my parcel?":   "shipping",
		"I was CHARGED twice":   "billing",
		"Please delete my data": "privacy",
		"Hello":                 "front",
		// The first of the desks that match has it, at each call.
		"Refund my parcel":                "billing",
		"My data says charged, no parcel": "privacy",
	} {
		got, _ := acme.Chat("warmup/com.acme.Triage.sort", "text", text).Output.(map[string]any)
		if got["desk"] != want || got["compiled"] != 1.0 {
			t.Errorf("%q: got %v, want the desk %s", text, got, want)
		}
	}
}
