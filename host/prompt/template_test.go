package prompt_test

import (
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/prompt"
	"github.com/carrelhost/carrel/host/strictjson"
)

func parse(t *testing.T, text string) *prompt.Template {
	t.Helper()
	p, err := prompt.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestRender(t *testing.T) {
	const params = `{"msg":"Hi {{id}}","id":"7","order":{"id":12345678901234567890,"sum":1.0,"lines":[ {"b":"<&>","a":2.50} ]},"none":null,"yes":true,"empty":""}`
	v, err := strictjson.Object([]byte(params), strictjson.DefaultDepth)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct{ text, want string }{
		"no placeholder":                     {"You are nice.", "You are nice."},
		"nothing":                            {"", ""},
		"a value is never rendered again":    {"{{msg}}", "Hi {{id}}"},
		"spaces and tabs inside of braces":   {"<{{ id\t}}>", "<7>"},
		"the same param twice":               {"{{id}}{{id}}", "77"},
		"a dotted path":                      {"#{{order.id}}", "#12345678901234567890"},
		"a number keeps its text":            {"{{order.sum}}", "1.0"},
		"an object is compact JSON":          {"{{order}}", `{"id":12345678901234567890,"lines":[{"a":2.50,"b":"<&>"}],"sum":1.0}`},
		"null and booleans are JSON":         {"{{none}} {{yes}}", "null true"},
		"an empty string is nothing":         {"[{{empty}}]", "[]"},
		"closing braces alone are text":      {"a }} b } c", "a }} b } c"},
		"single braces are text":             {`{"json": "{id}"}`, `{"json": "{id}"}`},
		"more closing braces than necessary": {"{{id}}}", "7}"},
		"text that is not ASCII":             {"Größe: {{id}} ☃", "Größe: 7 ☃"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parse(t, tc.text).Render(v)
			if err != nil || got != tc.want {
				t.Errorf("got %q, %v, want %q", got, err, tc.want)
			}
		})
	}
}

func TestRenderFaults(t *testing.T) {
	params := map[string]any{"order": map[string]any{"id": "1"}, "msg": "x"}
	for text, pointer := range map[string]string{
		"{{name}}":          "/name",
		"{{order.name}}":    "/order/name",
		"{{order.id.deep}}": "/order/id",
		"{{msg.id}}":        "/msg",
	} {
		got, err := parse(t, "before "+text).Render(params)
		e, ok := errors.AsType[*carrel.Error](err)
		if got != "" || !ok || e.Code != abi.InvalidParams || len(e.Faults) != 1 || e.Faults[0].Pointer != pointer {
			t.Errorf("%s: got %q, %v", text, got, err)
		}
	}
}

func TestRenderIsBounded(t *testing.T) {
	big := strings.Repeat("x", prompt.MaxRenderedBytes/4)
	if got, err := parse(t, strings.Repeat("{{a}}", 4)).Render(map[string]any{"a": big}); err != nil || len(got) != prompt.MaxRenderedBytes {
		t.Errorf("the longest result: %d bytes, %v", len(got), err)
	}
	for name, v := range map[string]any{"a string": big, "an array": []any{big}} {
		_, err := parse(t, strings.Repeat("{{a}}", 4)+"!").Render(map[string]any{"a": v})
		if e, ok := errors.AsType[*carrel.Error](err); !ok || e.Code != abi.LimitExceeded || e.Limit != "renderedBytes" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestParseFaults(t *testing.T) {
	for name, tc := range map[string]struct {
		text   string
		offset int
		msg    string
	}{
		"braces that are never closed":      {"Hi {{name", 3, "never closed"},
		"braces closed with one":            {"Hi {{name}", 3, "never closed"},
		"no name":                           {"é{{}}", 2, "no name"},
		"only spaces":                       {"{{  }}", 0, "no name"},
		"a path that ends in a dot":         {"{{a}}{{b.}}", 5, `"b."`},
		"a path that begins with a dot":     {"{{.b}}", 0, `".b"`},
		"two dots":                          {"{{a..b}}", 0, `"a..b"`},
		"a name that begins with a digit":   {"{{1a}}", 0, `"1a"`},
		"a space inside of a path":          {"{{a b}}", 0, `"a b"`},
		"a helper of other languages":       {"{{#if a}}", 0, `"#if a"`},
		"a pipe":                            {"{{a | upper}}", 0, "nothing else is allowed"},
		"three braces":                      {"{{{a}}}", 0, `"{a"`},
		"braces inside of braces":           {"{{a{{b}}}}", 0, `"a{{b"`},
		"a line break":                      {"{{a\n}}", 0, `"a\n"`},
		"a letter that is not ASCII":        {"{{größe}}", 0, `"größe"`},
		"control characters are not shown":  {"{{\x1b[2J}}", 0, `"\x1b[2J"`},
		"a long name is shortened":          {"{{" + strings.Repeat("-", 999) + "}}", 0, "-…\""},
		"the second of two is wrong, sadly": {"{{a}} {{b", 6, "never closed"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := prompt.Parse(tc.text)
			e, ok := errors.AsType[*prompt.SyntaxError](err)
			if !ok || e.Offset != tc.offset || !strings.Contains(e.Msg, tc.msg) {
				t.Errorf("got %v, want byte %d: …%s…", err, tc.offset, tc.msg)
			}
		})
	}
}

func TestNamesAndPaths(t *testing.T) {
	p := parse(t, "{{b.x}} {{a}} {{ b.x }} {{b.y}} {{b}} {{a}}")
	if got := p.Names(); !slices.Equal(got, []string{"b", "a"}) {
		t.Errorf("got names %v", got)
	}
	if got := p.Paths(); !slices.Equal(got, []string{"b.x", "a", "b.y", "b"}) {
		t.Errorf("got paths %v", got)
	}
	p.Names()[0] = "changed"
	if p.Names()[0] != "b" {
		t.Error("the names are the caller's, not the template's")
	}
}

func TestOneTemplateForManyCallers(t *testing.T) {
	p := parse(t, "{{who}} says {{what.text}}")
	var wg sync.WaitGroup
	for _, who := range []string{"Ada", "Bob", "Cy", "Di"} {
		wg.Go(func() {
			for range 500 {
				got, err := p.Render(map[string]any{"who": who, "what": map[string]any{"text": json.Number("1.0")}})
				if err != nil || got != who+" says 1.0" {
					t.Errorf("got %q, %v", got, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

var placeholder = regexp.MustCompile(`\{\{[ \t]*[A-Za-z_][A-Za-z0-9_]*[ \t]*\}\}`)

// FuzzParse checks that no text makes Parse panic, and that a template
// without dotted paths renders as a plain replacement would.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"a {{b}} c", "{{ b.c }}", "{{", "{{{a}}}", "}}{{a}}{{\ta }}"} {
		f.Add(s, "{{a}}")
	}
	f.Fuzz(func(t *testing.T, text, value string) {
		p, err := prompt.Parse(text)
		if err != nil {
			if e, ok := errors.AsType[*prompt.SyntaxError](err); !ok || !strings.HasPrefix(text[e.Offset:], "{{") {
				t.Fatalf("%v", err)
			}
			return
		}
		params := map[string]any{}
		for _, path := range p.Paths() {
			if strings.Contains(path, ".") {
				return
			}
			params[path] = value
		}
		want := placeholder.ReplaceAllLiteralString(text, value)
		if len(want) > prompt.MaxRenderedBytes {
			return
		}
		if got, err := p.Render(params); err != nil || got != want {
			t.Fatalf("got %q, %v, want %q", got, err, want)
		}
	})
}
