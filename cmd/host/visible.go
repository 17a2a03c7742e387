package main

import (
	"strconv"
	"strings"
	"unicode"
)

// visible writes control characters as Go quotes them, but for line breaks and
// tabs: what models and plugins say must not command the terminal that shows
// it. JSON output is not changed, it has no raw control characters.
func visible(s string) string {
	command := func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }
	if !strings.ContainsFunc(s, command) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if !command(r) {
			b.WriteRune(r)
			continue
		}
		quoted := strconv.QuoteRune(r)
		b.WriteString(quoted[1 : len(quoted)-1])
	}
	return b.String()
}
