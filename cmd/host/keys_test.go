package main

import (
	"slices"
	"strings"
	"testing"
)

func TestMemoryKeysThatBeginWithAHyphenAreNoFlags(t *testing.T) {
	const key = "-tJtCI3ytA27entUu3HvKg"
	for name, tc := range map[string][2]string{
		"alone":                    {"memory show " + key, "memory show -- " + key},
		"before flags":             {"memory show " + key + " --json", "memory show --json -- " + key},
		"after the flag of a yes":  {"memory rm --json " + key + " --turn 3", "memory rm --json --turn 3 -- " + key},
		"the value of a flag":      {"memory import f --memory " + key, "memory import f --memory " + key},
		"after a value with =":     {"memory rm --turn=3 " + key, "memory rm --turn=3 -- " + key},
		"already behind the flags": {"memory show -- " + key, "memory show -- " + key},
		"an ordinary key":          {"memory show AtJtCI3ytA27entUu3HvKg", "memory show AtJtCI3ytA27entUu3HvKg"},
		"a flag":                   {"memory ls -h", "memory ls -h"},
		"another command":          {"call " + key, "call " + key},
		"nothing":                  {"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := keysLast(strings.Fields(tc[0])); !slices.Equal(got, strings.Fields(tc[1])) {
				t.Errorf("got %q", got)
			}
		})
	}
}
