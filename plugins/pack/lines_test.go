package pack_test

import (
	"bytes"
	"maps"
	"testing"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/plugins/pack"
)

func TestLinesOfAManifestInJSON(t *testing.T) {
	for name, tc := range map[string]struct {
		raw    string
		lines  pack.Lines
		broken int
	}{
		"members have the lines of their names": {"{\n\"a\":\n1,\n\"b\": [\n{\"c\": 2},\n3]\n}\n",
			pack.Lines{"": 1, "/a": 2, "/b": 4, "/b/0": 5, "/b/0/c": 5, "/b/1": 6}, 0},
		"names are escaped as in pointers":          {`{"a/b~": 1}`, pack.Lines{"": 1, "/a~1b~0": 1}, 0},
		"an empty file":                             {"", pack.Lines{}, 1},
		"white space alone":                         {"\n \n", pack.Lines{}, 3},
		"a member without its colon":                {"{\n\"a\" 1}", pack.Lines{"": 1, "/a": 2}, 2},
		"a member that is there twice":              {"{\"a\": 1,\n\"a\": 2}", pack.Lines{"": 1, "/a": 1}, 2},
		"something after the value":                 {"{}\n\n{}", pack.Lines{"": 1}, 3},
		"something that is no JSON after the value": {"{}\nx", pack.Lines{"": 1}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			lines, broken := pack.JSONLines([]byte(tc.raw))
			if !maps.Equal(lines, tc.lines) || broken != tc.broken {
				t.Errorf("got %v and %d, want %v and %d", lines, broken, tc.lines, tc.broken)
			}
		})
	}
}

func TestLinesAreAddedToFaultsWithAPlace(t *testing.T) {
	lines := pack.SourceLines("a.md", []byte("---\nname: a\nservices:\n  - name: S\n    methods:\n      - name: chat\n        model: large\n---\nText\n"))
	faults := []carrel.Fault{
		{Pointer: "/services/0/methods/0/model", Message: "there is no such model"},
		{Pointer: "/services/0/methods/0/window/max", Message: "too many"},
		{Message: "there are 7 more faults"},
	}
	text, got := lines.Add("3 faults, the first: there is no such model", faults)
	if want := "3 faults, the first: there is no such model (line 7)"; text != want {
		t.Errorf("got %q, want %q", text, want)
	}
	for i, want := range []string{"there is no such model (line 7)", "too many (line 6)", "there are 7 more faults"} {
		if got[i].Message != want {
			t.Errorf("got %q, want %q", got[i].Message, want)
		}
	}
	if faults[0].Message != "there is no such model" {
		t.Error("the faults that were given are changed")
	}
	if lines := pack.SourceLines("a.md", []byte("no front matter")); len(lines) != 0 {
		t.Errorf("got %v", lines)
	}
}

func FuzzJSONLines(f *testing.F) {
	for _, seed := range []string{"", "{}", "{\"a\":[1,{\"b\":null}]}\n", "[[[\n", "{\"a\":1,\"a\":2}", "\xff\n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		lines, broken := pack.JSONLines(raw)
		most := 1 + bytes.Count(raw, []byte("\n"))
		if broken < 0 || broken > most {
			t.Errorf("line %d of %d", broken, most)
		}
		for at, line := range lines {
			if line < 1 || line > most || lines.At(at+"/more") < 1 {
				t.Errorf("%q has line %d of %d", at, line, most)
			}
		}
	})
}
