package spelling_test

import (
	"testing"

	"github.com/carrelhost/carrel/internal/spelling"
)

func TestNearest(t *testing.T) {
	for name, tc := range map[string]struct {
		name  string
		names []string
		want  string
	}{
		"a letter too few":                          {"memorId", []string{"model", "memoryId"}, "memoryId"},
		"a letter too many":                         {"windoow", []string{"window", "model"}, "window"},
		"two letters that changed places":           {"wnidow", []string{"window", "model"}, "window"},
		"of several the nearest":                    {"stops", []string{"steps", "stop"}, "steps"},
		"of equally near ones the first, of two":    {"cat", []string{"bat", "hat"}, "bat"},
		"the name itself":                           {"stop", []string{"top", "stop"}, "stop"},
		"a short name that is another":              {"a", []string{"bcd"}, ""},
		"a third of the name, and one byte more":    {"abcdef", []string{"abcxyz"}, "abcxyz"},
		"more than a third of it, and one":          {"abcdef", []string{"abwxyz"}, ""},
		"a name that is much longer, and begins so": {"temp", []string{"temperature"}, ""},
		"no names": {"x", nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := spelling.Nearest(tc.name, tc.names); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestDistance(t *testing.T) {
	for name, tc := range map[string]struct {
		a, b string
		most int
		want int
	}{
		"equal names":                               {"seed", "seed", 0, 0},
		"nothing and a name":                        {"", "seed", 9, 4},
		"one of each":                               {"kitten", "sitting", 9, 3},
		"lengths that differ by just the most":      {"ab", "abcd", 2, 2},
		"lengths that differ by more than the most": {"ab", "abcdefgh", 2, 3},
		"bytes count, and not characters":           {"é", "e", 9, 2},
	} {
		t.Run(name, func(t *testing.T) {
			if got := spelling.Distance(tc.a, tc.b, tc.most); got != tc.want {
				t.Errorf("got %d, want %d", got, tc.want)
			}
			if got := spelling.Distance(tc.b, tc.a, tc.most); got != tc.want {
				t.Errorf("the other way round: got %d, want %d", got, tc.want)
			}
		})
	}
}
