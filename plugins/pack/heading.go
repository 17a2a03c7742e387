package pack

import (
	"maps"
	"slices"
	"strings"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/internal/spelling"
)

// nearest returns the owner that a heading was probably meant to name, or "".
// A heading with a single dot, such as "Node.js", is text unless it is nearly
// the name of an owner or its end.
func nearest(heading string, owners map[string]section) string {
	if _, err := carrel.ParseServiceName(heading); err != nil || !strings.Contains(heading, ".") {
		return ""
	}
	best, least := "", len(heading)
	for _, name := range slices.Sorted(maps.Keys(owners)) { // of equals the first
		for end := name; ; {
			if d := spelling.Distance(heading, end, len(heading)+len(end)); best == "" || d < least {
				best, least = name, d
			}
			_, rest, ok := strings.Cut(end, ".")
			if !ok || !strings.Contains(rest, ".") {
				break
			}
			end = rest
		}
	}
	const part = 3 // of its bytes may be wrong
	if strings.Count(heading, ".") == 1 && least > len(heading)/part {
		return ""
	}
	return best
}
