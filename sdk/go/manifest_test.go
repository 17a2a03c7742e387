package carrel_test

import (
	"errors"
	"strings"
	"testing"

	carrel "github.com/carrelhost/carrel/sdk/go"
)

type greetParams struct {
	Name string `json:"name" desc:"who is greeted"`
}

func greet(_ *carrel.Context, in greetParams) (string, error) { return "Hello, " + in.Name + "!", nil }

type chatParams struct {
	ID      string `json:"id"`
	Msg     string `json:"msg"`
	Product string `json:"product,omitempty"`
}

func TestManifestSaysWhatIsDeclaredAndNothingElse(t *testing.T) {
	temperature := 0.5
	for name, tc := range map[string]struct {
		plugin carrel.Plugin
		want   string
	}{
		"the smallest plugin": {
			carrel.Plugin{Name: "p", Version: "1"},
			`{"abi":"carrel/v1","name":"p","version":"1","capabilities":{}}`,
		},
		"everything": {
			carrel.Plugin{
				Name: "acme", Version: "1.0", Description: "Help.",
				DefaultMemoryID:    &carrel.DefaultMemoryID{Func: func(*carrel.Context) (string, error) { return "", nil }},
				AllowDefaultIDLeak: true, MemoryNamespace: "shared",
				Capabilities: carrel.Capabilities{Models: []string{"small"}, Call: []string{"billing/*"}},
				Limits:       carrel.Limits{MemoryMiB: 16, Timeout: "5s"},
				Warmup:       &carrel.Warmup{Method: "com.acme.Help.greet", Params: greetParams{"<Ada>"}},
				Services: []carrel.Service{
					{Name: "com.acme.Help", Scope: carrel.ScopeSession, SystemMessage: "Be <nice>.", Methods: []carrel.Method{
						carrel.Chat("chat", carrel.ChatMethod{
							Description: "Talks.", Params: chatParams{}, MemoryID: "id", UserMessage: "{{msg}}", SystemMessage: "Sell {{product}}.",
							Model: "small", Generation: carrel.Generation{Temperature: &temperature}, WindowMessages: 4,
						}),
						carrel.Handler("greet", "Greets.", greet),
					}},
					{Name: "com.acme.More", Description: "More.", Methods: []carrel.Method{carrel.Handler("greet", "", greet)}},
				},
			},
			`{"abi":"carrel/v1","name":"acme","version":"1.0","description":"Help.","services":[` +
				`{"name":"com.acme.Help","scope":"session","systemMessage":"Be <nice>.","methods":[` +
				`{"name":"chat","kind":"chat","description":"Talks.","params":{"type":"object","properties":{"id":{"type":"string"},"msg":{"type":"string"},` +
				`"product":{"type":"string"}},"required":["id","msg"]},"output":{"type":"string"},"systemMessage":"Sell {{product}}.","userMessage":"{{msg}}",` +
				`"memoryId":"id","model":"small","temperature":0.5,"window":{"type":"messages","max":4}},` +
				`{"name":"greet","kind":"handler","export":"s0_greet","description":"Greets.","params":{"type":"object","properties":{"name":{"type":"string",` +
				`"description":"who is greeted"}},"required":["name"]},"output":{"type":"string"}}]},` +
				`{"name":"com.acme.More","description":"More.","methods":[{"name":"greet","kind":"handler","export":"s1_greet","params":{"type":"object",` +
				`"properties":{"name":{"type":"string","description":"who is greeted"}},"required":["name"]},"output":{"type":"string"}}]}],` +
				`"defaultMemoryId":{"export":"default__memory_id","priority":-10},"allowDefaultIdLeak":true,"memoryNamespace":"shared",` +
				`"capabilities":{"models":["small"],"call":["billing/*"]},"limits":{"memoryMiB":16,"timeout":"5s"},"warmup":{"method":"com.acme.Help.greet","params":{"name":"<Ada>"}}}`,
		},
		"a chat method's params are its memory id and msg if none are declared": {
			carrel.Plugin{Name: "p", Version: "1", Services: []carrel.Service{{
				Name: "S", Methods: []carrel.Method{carrel.Chat("a", carrel.ChatMethod{MemoryID: "id"}), carrel.Chat("b", carrel.ChatMethod{})},
			}}},
			`{"abi":"carrel/v1","name":"p","version":"1","services":[{"name":"S","methods":[` +
				`{"name":"a","kind":"chat","params":{"type":"object","properties":{"id":{"type":"string"},"msg":{"type":"string"}},"required":["id","msg"]},` +
				`"output":{"type":"string"},"memoryId":"id"},` +
				`{"name":"b","kind":"chat","params":{"type":"object","properties":{"msg":{"type":"string"}},"required":["msg"]},"output":{"type":"string"}}]}],` +
				`"capabilities":{}}`,
		},
		"a window of tokens, what is kept of it, and example turns": {
			carrel.Plugin{Name: "p", Version: "1", Services: []carrel.Service{{
				Name: "S", Methods: []carrel.Method{carrel.Chat("a", carrel.ChatMethod{
					WindowTokens: 4000, RetainWindow: true, Seed: []carrel.Example{{User: "Is it <red>?", Assistant: "Yes"}},
				})},
			}}},
			`{"abi":"carrel/v1","name":"p","version":"1","services":[{"name":"S","methods":[` +
				`{"name":"a","kind":"chat","params":{"type":"object","properties":{"msg":{"type":"string"}},"required":["msg"]},"output":{"type":"string"},` +
				`"window":{"type":"tokens","max":4000},"retain":"window","seed":[{"user":"Is it <red>?","assistant":"Yes"}]}]}],"capabilities":{}}`,
		},
		"ids from the request need no code": {
			carrel.Plugin{Name: "p", Version: "1", DefaultMemoryID: &carrel.DefaultMemoryID{From: "header:X-Chat", Priority: -1}},
			`{"abi":"carrel/v1","name":"p","version":"1","defaultMemoryId":{"from":"header:X-Chat","priority":-1},"capabilities":{}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := tc.plugin.Manifest()
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != tc.want {
				t.Errorf("\n got %s\nwant %s", got, tc.want)
			}
		})
	}
}

type loop struct {
	Next *loop `json:"next"`
}

func TestManifestReportsEveryFaultOfTheDeclaration(t *testing.T) {
	bad := carrel.Plugin{
		DefaultMemoryID: &carrel.DefaultMemoryID{},
		Services: []carrel.Service{
			{Name: "S", Methods: []carrel.Method{
				carrel.Handler("wheels", "", func(*carrel.Context, loop) (out map[bool]int, err error) { return out, nil }),
				carrel.Handler("list", "", func(*carrel.Context, []string) (out chan int, err error) { return out, nil }),
				carrel.Handler[struct{}, string]("none", "", nil),
				carrel.Handler("not a name", "", greet),
				carrel.Handler("greet", "", greet),
				carrel.Handler("greet", "", greet),
				carrel.Chat("chat", carrel.ChatMethod{Params: struct{ Do func() }{}}),
				carrel.Chat("windows", carrel.ChatMethod{WindowMessages: 1, WindowTokens: 1}),
				{},
			}},
			{Name: "S"},
		},
	}
	_, err := bad.Manifest()
	if err == nil {
		t.Fatal("there is no error")
	}
	for _, want := range []string{
		"Name is missing", "Version is missing",
		"needs Func or From",
		`method "wheels": params: next: the type carrel_test.loop contains itself`,
		"output: a map with keys of type bool has no JSON form",
		`method "list": params: they are one JSON object`,
		"output: the type chan int has no JSON form",
		`method "none": the handler has no function`,
		`method "not a name": a method's name is`,
		`method "greet": there are two of that name`,
		`method "chat": params: Do: the type func() has no JSON form`,
		`method "windows": a window counts messages or tokens; set WindowMessages or WindowTokens, and not both`,
		`method "": a method's name is`,
		`service "S": there are two of that name`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q:\n%v", want, err)
		}
	}
}

func TestAWarmupIsACallOfAHandler(t *testing.T) {
	for name, tc := range map[string]struct {
		warmup carrel.Warmup
		want   string // the member of the manifest, or a part of the error
	}{
		"without params":                    {carrel.Warmup{Method: "S.greet"}, `{"method":"S.greet","params":{}}`},
		"a handler that is not there":       {carrel.Warmup{Method: "S.none"}, `has no handler "S.none"; name one as Service.method`},
		"a handler without its service":     {carrel.Warmup{Method: "greet"}, `no handler "greet"`},
		"a chat method":                     {carrel.Warmup{Method: "S.chat"}, `no handler "S.chat"`},
		"params of another type":            {carrel.Warmup{Method: "S.greet", Params: chatParams{}}, "its params are of type carrel_test.chatParams, and the handler S.greet takes carrel_test.greetParams"},
		"params that are a pointer to them": {carrel.Warmup{Method: "S.greet", Params: &greetParams{}}, "its params are of type *carrel_test.greetParams"},
	} {
		t.Run(name, func(t *testing.T) {
			p := carrel.Plugin{Name: "p", Version: "1", Warmup: &tc.warmup, Services: []carrel.Service{{Name: "S", Methods: []carrel.Method{
				carrel.Handler("greet", "", greet), carrel.Chat("chat", carrel.ChatMethod{}),
			}}}}
			got, err := p.Manifest()
			if err != nil {
				got = []byte(err.Error())
			}
			if !strings.Contains(string(got), tc.want) || (err == nil) != strings.HasPrefix(tc.want, "{") {
				t.Errorf("got %s, want …%s…", got, tc.want)
			}
		})
	}
}

func TestAWarmupsParamsMatchTheSchemaOfTheirType(t *testing.T) {
	type part struct {
		Size *int     `json:"size"`
		Left []string `json:"left,omitempty"`
	}
	type params struct {
		Unit  *string           `json:"unit"`
		Name  string            `json:"name"`
		Tags  []string          `json:"tags"`
		Data  []byte            `json:"data"`
		Parts []part            `json:"parts"`
		By    map[string]part   `json:"by"`
		None  map[string]string `json:"none"`
		Any   any               `json:"any"`
	}
	p := carrel.Plugin{Name: "p", Version: "1", Services: []carrel.Service{{Name: "S", Methods: []carrel.Method{
		carrel.Handler("run", "", func(*carrel.Context, params) (string, error) { return "", nil }),
	}}}}
	one := 1
	for name, tc := range map[string]struct {
		params params
		want   string
	}{
		"what is nil is left out or empty": {params{},
			`{"name":"","tags":[],"data":"","parts":[],"by":{},"none":{},"any":null}`},
		"what is not nil stays, in its order": {params{Name: "null", Tags: []string{"b", "a"}, Data: []byte{1}, Parts: []part{{}, {Size: &one}},
			By: map[string]part{"x": {}, "y": {Size: &one}}, Any: []any{nil}},
			`{"name":"null","tags":["b","a"],"data":"AQ==","parts":[{},{"size":1}],"by":{"x":{},"y":{"size":1}},"none":{},"any":[null]}`},
	} {
		t.Run(name, func(t *testing.T) {
			p.Warmup = &carrel.Warmup{Method: "S.run", Params: tc.params}
			raw, err := p.Manifest()
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasSuffix(string(raw), `"params":`+tc.want+"}}") {
				t.Errorf("got %s, want params %s", raw, tc.want)
			}
		})
	}
}

func TestRefusalsAreErrorsThatSayWhatToDo(t *testing.T) {
	err := error(&carrel.Refusal{Op: "invoke", Errno: 2, Code: "forbidden", Message: "no", Remedy: "ask"})
	if got, want := err.Error(), "invoke: EPERM (forbidden): no; ask"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	var r *carrel.Refusal
	if !errors.As(errors.Join(errors.New("while at it"), err), &r) || r.Remedy != "ask" {
		t.Error("errors.As does not find it")
	}
}
