package module

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Cut returns text of an outsider as it is if it has at most the given number
// of bytes, and else its beginning and an ellipsis. It cuts no character.
func Cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return prefix(text, most) + "…"
}

// Printable returns text of an outsider for a message: valid UTF-8 without
// control characters, of at most the given number of bytes and an ellipsis.
func Printable(text string, most int) string {
	return strings.Map(func(c rune) rune {
		if !unicode.IsPrint(c) {
			return ' '
		}
		return c
	}, strings.ToValidUTF8(Cut(text, most), "\ufffd"))
}

// Quote returns a name of an outsider for a message: quoted as Go does it, and
// of its first 100 bytes.
func Quote(name string) string {
	const most = 100
	if len(name) <= most {
		return strconv.Quote(name)
	}
	return strings.TrimSuffix(strconv.Quote(prefix(name, most)), `"`) + `…"`
}

// prefix returns the first n bytes of a longer text, or fewer so as not to end
// within a character.
func prefix(text string, n int) string {
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}
