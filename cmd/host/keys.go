package main

import (
	"slices"
	"strings"

	"github.com/carrelhost/carrel"
)

// keysLast keeps memory keys from being read as flags: one in 64 begins with a
// hyphen. Such ones are moved behind the other arguments, after "--". The
// value of a flag stays where it is.
func keysLast(args []string) []string {
	if len(args) == 0 || args[0] != "memory" || slices.Contains(args, "--") {
		return args
	}
	var rest, keys []string
	for i, a := range args {
		_, err := carrel.ParseHandle(a)
		value := strings.HasPrefix(args[max(i-1, 0)], "--") && args[max(i-1, 0)] != "--json" && !strings.Contains(args[max(i-1, 0)], "=")
		if err == nil && strings.HasPrefix(a, "-") && !value {
			keys = append(keys, a)
			continue
		}
		rest = append(rest, a)
	}
	if len(keys) == 0 {
		return args
	}
	return append(append(rest, "--"), keys...)
}
