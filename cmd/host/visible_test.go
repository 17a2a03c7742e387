package main

import "testing"

func TestVisible(t *testing.T) {
	for name, tc := range map[string]struct{ in, want string }{
		"plain text stays":                  {"grüße\tund\nkuß", "grüße\tund\nkuß"},
		"an escape sequence loses its bite": {"\x1b]0;owned\x07", `\x1b]0;owned\a`},
		"a C1 control too":                  {"a\u009bb", `a\u009bb`},
		"and a carriage return":             {"safe\rrm", `safe\rrm`},
	} {
		t.Run(name, func(t *testing.T) {
			if got := visible(tc.in); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
