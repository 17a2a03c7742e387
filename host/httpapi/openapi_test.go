package httpapi_test

import (
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/httpapi"
	"github.com/carrelhost/carrel/internal/testenv"
)

// node is a part of the document.
type node = map[string]any

// openAPI reads the document from a running host, without a key.
func openAPI(t *testing.T, env *testenv.Env) node {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, env.Addr()+"/api/v1/openapi.json", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // a body that was read
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "application/json" {
		body, _ := io.ReadAll(resp.Body)
		t.Fatalf("answered %s, %s: %s", resp.Status, resp.Header.Get("Content-Type"), body)
	}
	doc, err := jsonschema.UnmarshalJSON(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return doc.(node)
}

// at follows a JSON pointer; nil if there is nothing.
func at(v any, pointer string) any {
	for _, token := range strings.Split(pointer, "/")[1:] {
		token = strings.NewReplacer("~1", "/", "~0", "~").Replace(token)
		n, ok := v.(node)
		if !ok {
			return nil
		}
		v = n[token]
	}
	return v
}

// visit calls f with every object of the document and the pointer to it.
func visit(v any, pointer string, f func(pointer string, n node)) {
	switch v := v.(type) {
	case node:
		f(pointer, v)
		for name, child := range v {
			visit(child, pointer+"/"+escaped(name), f)
		}
	case []any:
		for _, child := range v {
			visit(child, pointer+"/-", f)
		}
	}
}

func escaped(token string) string { return strings.NewReplacer("~", "~0", "/", "~1").Replace(token) }

// operations returns the pointer to each operation, by "METHOD /path".
func operations(doc node) map[string]string {
	out := map[string]string{}
	for path, item := range doc["paths"].(node) {
		for member := range item.(node) {
			if member != "parameters" {
				out[strings.ToUpper(member)+" "+path] = "/paths/" + escaped(path) + "/" + member
			}
		}
	}
	return out
}

func TestDocumentAndRoutesAreTheSame(t *testing.T) {
	doc := openAPI(t, testenv.New(t, testenv.Config()))
	if doc["openapi"] != "3.1.0" {
		t.Errorf("openapi is %v", doc["openapi"])
	}
	param := regexp.MustCompile(`:([a-z]+)`)
	described := operations(doc)
	for _, r := range httpapi.Routes() {
		name := r.Method + " " + param.ReplaceAllString(r.Path, "{$1}")
		if _, ok := described[name]; !ok {
			t.Errorf("the document lacks the route %s", name)
		}
		delete(described, name)
	}
	for name := range described {
		t.Errorf("the document describes %s, which is no route", name)
	}
}

func TestEveryOperationIsWhole(t *testing.T) {
	doc := openAPI(t, testenv.New(t, testenv.Config()))
	placeholder := regexp.MustCompile(`\{([a-z]+)\}`)
	ids := map[string]string{}
	for name, pointer := range operations(doc) {
		o := at(doc, pointer).(node)
		for _, member := range []string{"operationId", "summary", "description"} {
			if text, _ := o[member].(string); text == "" {
				t.Errorf("%s has no %s", name, member)
			}
		}
		id, _ := o["operationId"].(string)
		if other, twice := ids[id]; twice {
			t.Errorf("%s and %s share the operationId %s", name, other, id)
		}
		ids[id] = name

		var inPath []string
		item := at(doc, pointer[:strings.LastIndexByte(pointer, '/')]).(node)
		for _, p := range slices.Concat(list(item["parameters"]), list(o["parameters"])) {
			if p := resolved(doc, p); p["in"] == "path" {
				inPath = append(inPath, p["name"].(string))
			}
		}
		var wanted []string
		for _, m := range placeholder.FindAllStringSubmatch(name, -1) {
			wanted = append(wanted, m[1])
		}
		if !slices.Equal(inPath, wanted) {
			t.Errorf("%s has the path parameters %v and describes %v", name, wanted, inPath)
		}
		if public := o["security"] != nil && len(list(o["security"])) == 0; public == (at(o, "/responses/401") != nil) {
			t.Errorf("%s: an operation either needs a key or never answers 401", name)
		}
	}
}

func list(v any) []any {
	l, _ := v.([]any)
	return l
}

// resolved follows a $ref, if v is one.
func resolved(doc node, v any) node {
	n, _ := v.(node)
	if to, ok := n["$ref"].(string); ok {
		n, _ = at(doc, strings.TrimPrefix(to, "#")).(node)
	}
	return n
}

func TestEveryReferenceResolvesAndEveryComponentIsUsed(t *testing.T) {
	doc := openAPI(t, testenv.New(t, testenv.Config()))
	used := map[string]bool{}
	visit(doc, "", func(pointer string, n node) {
		to, ok := n["$ref"].(string)
		if !ok {
			return
		}
		used[to] = true
		if !strings.HasPrefix(to, "#/components/") || at(doc, to[1:]) == nil {
			t.Errorf("%s: %s leads nowhere", pointer, to)
		}
	})
	visit(doc["security"], "", func(_ string, n node) {
		for scheme := range n {
			used["#/components/securitySchemes/"+scheme] = true
		}
	})
	visit(doc["paths"], "", func(_ string, n node) {
		for _, requirement := range list(n["security"]) {
			for scheme := range requirement.(node) {
				used["#/components/securitySchemes/"+scheme] = true
			}
		}
	})
	for kind, components := range doc["components"].(node) {
		for name := range components.(node) {
			if pointer := "#/components/" + kind + "/" + name; !used[pointer] {
				t.Errorf("%s is used by nothing", pointer)
			}
		}
	}
}

func TestProblemsListEveryCode(t *testing.T) {
	doc := openAPI(t, testenv.New(t, testenv.Config()))
	var listed []string
	for _, code := range list(at(doc, "/components/schemas/Problem/properties/code/enum")) {
		listed = append(listed, code.(string))
	}
	var codes []string
	for _, c := range abi.Codes() {
		codes = append(codes, c.String())
	}
	if !slices.Equal(listed, codes) {
		t.Errorf("the document lists %v\nthe host has %v", listed, codes)
	}
}

func TestProblemsAreSentWithTheStatusOfTheirCode(t *testing.T) {
	doc := openAPI(t, testenv.New(t, testenv.Config()))
	byStatus := map[int][]string{}
	for _, c := range abi.Codes() {
		if httpapi.Status(c) < http.StatusBadRequest {
			t.Errorf("%v has the status %d", c, httpapi.Status(c))
		}
		byStatus[httpapi.Status(c)] = append(byStatus[httpapi.Status(c)], c.String())
	}
	for name, response := range at(doc, "/components/responses").(node) {
		parts := list(at(response, "/content/application~1problem+json/schema/allOf"))
		if len(parts) != 2 {
			t.Errorf("the response %s does not narrow the problem", name)
			continue
		}
		number, _ := at(parts[1], "/properties/status/const").(json.Number)
		status, err := number.Int64()
		if err != nil {
			t.Errorf("the response %s names no status", name)
		}
		var codes []string
		for _, c := range list(at(parts[1], "/properties/code/enum")) {
			codes = append(codes, c.(string))
		}
		slices.Sort(codes)
		want := byStatus[int(status)]
		slices.Sort(want)
		if !slices.Equal(codes, want) {
			t.Errorf("the response %s, %d, lists %v; the host sends %v", name, status, codes, want)
		}
		visit(doc["paths"], "", func(pointer string, n node) {
			if n["$ref"] == "#/components/responses/"+name && !strings.HasSuffix(pointer, "/"+number.String()) {
				t.Errorf("%s refers to the response of status %s", pointer, number)
			}
		})
	}
}
