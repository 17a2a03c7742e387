package client_test

import (
	"testing"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/client"
)

func TestAProblemSaysEverythingOnce(t *testing.T) {
	for name, tc := range map[string]struct {
		problem client.Problem
		want    string
	}{
		"a code alone":        {client.Problem{Code: "internal"}, "internal"},
		"a detail":            {client.Problem{Code: "timeout", Detail: "too slow"}, "timeout: too slow"},
		"a plugin's own code": {client.Problem{Code: "guest_failed", GuestCode: "no_name", Detail: "who?"}, "guest_failed (no_name): who?"},
		"a detail that repeats a fault": {
			client.Problem{Code: "c", Detail: "it has a fault at /a: bad", Errors: []carrel.Fault{{Pointer: "/a", Message: "bad"}}},
			"c: it has a fault\n  /a: bad",
		},
		"a detail that is the only fault": {
			client.Problem{Code: "c", Detail: "unreadable", Errors: []carrel.Fault{{Message: "unreadable"}}},
			"c: unreadable",
		},
		"a detail that repeats the first of two faults": {
			client.Problem{Code: "c", Detail: "2 faults, the first at /a: bad", Errors: []carrel.Fault{{Pointer: "/a", Message: "bad"}, {Pointer: "/b", Message: "worse"}}},
			"c: 2 faults\n  /a: bad\n  /b: worse",
		},
		"a detail that repeats the first of two faults, and not its place": {
			client.Problem{Code: "c", Detail: "2 faults, the first: bad", Errors: []carrel.Fault{{Pointer: "/a", Message: "bad"}, {Pointer: "/b", Message: "worse"}}},
			"c: 2 faults\n  /a: bad\n  /b: worse",
		},
		"a detail that lists the first two of three faults": {
			client.Problem{Code: "c", Detail: "no match: /a: bad; /b: worse", Errors: []carrel.Fault{
				{Pointer: "/a", Message: "bad"}, {Pointer: "/b", Message: "worse"}, {Pointer: "/c", Message: "worst"},
			}},
			"c: no match\n  /a: bad\n  /b: worse\n  /c: worst",
		},
		"a remedy that is with the detail and each fault": {
			client.Problem{Code: "c", Detail: "it leaks; do this", Errors: []carrel.Fault{
				{Pointer: "/a", Message: "a leaks; do this (line 3)"}, {Pointer: "/b", Message: "b leaks; do this"},
			}},
			"c: it leaks; do this\n  /a: a leaks (line 3)\n  /b: b leaks",
		},
		"a fault without a place": {
			client.Problem{Code: "c", Detail: "many", Errors: []carrel.Fault{{Message: "there are more"}}},
			"c: many\n  there are more",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.problem.Error(); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
