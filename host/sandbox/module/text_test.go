package module_test

import (
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/carrelhost/carrel/host/sandbox/module"
)

func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{"a\x1b[2Jb\nc": "a [2Jb c", "\xffé": "\ufffdé", "ééééé": "éé…", "": ""} {
		if got := module.Printable(in, 5+strings.Count(in, "[")*5); got != want {
			t.Errorf("%q becomes %q, want %q", in, got, want)
		}
	}
}

func TestCut(t *testing.T) {
	for in, want := range map[string]string{"": "", "12345": "12345", "123456": "12345…", "1234é": "1234…", "ééé": "éé…", "\x80\x80\x80\x80\x80\x80": "…"} {
		if got := module.Cut(in, 5); got != want {
			t.Errorf("%q becomes %q, want %q", in, got, want)
		}
	}
}

func TestQuote(t *testing.T) {
	long := strings.Repeat("x", 99)
	for in, want := range map[string]string{
		"name": `"name"`, "a\x1b\"b": `"a\x1b\"b"`, "\xff": `"\xff"`, long + "x": `"` + long + `x"`, long + "xx": `"` + long + `x…"`, long + "éx": `"` + long + `…"`,
	} {
		if got := module.Quote(in); got != want {
			t.Errorf("%q becomes %s, want %s", in, got, want)
		}
	}
}

// FuzzText checks that whatever an outsider calls something, a message shows
// little of it, and as text.
func FuzzText(f *testing.F) {
	f.Add("name", 3)
	f.Add("\xff\u202e\x1b[2J", 2)
	f.Fuzz(func(t *testing.T, text string, most int) {
		most &= 1<<10 - 1
		if got := module.Printable(text, most); !utf8.ValidString(got) || len(got) > 3*most+len("…") || strings.ContainsAny(got, "\x1b\n\u202e") {
			t.Errorf("%q becomes %q", text, got)
		}
		if got := module.Cut(text, most); got != text && (len(got) > most+len("…") || !strings.HasPrefix(text, strings.TrimSuffix(got, "…"))) {
			t.Errorf("%q is cut to %q", text, got)
		}
		got := module.Quote(text)
		if back, err := strconv.Unquote(got); err != nil || !utf8.ValidString(got) || !strings.HasPrefix(text, strings.TrimSuffix(back, "…")) && back != text {
			t.Errorf("%q is quoted as %s, %v", text, got, err)
		}
	})
}
