package manifest_test

import (
	"strings"
	"testing"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/plugins/manifest"
)

const orderParams = `"params":{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"],"additionalProperties":false}`

// withWarmup is a manifest of a handler, a chat method and a warm-up with
// these members.
func withWarmup(members string) string {
	return withPlugin(`"services":[{"name":"com.acme.Shop","methods":[` +
		`{"name":"order","kind":"handler","export":"order",` + orderParams + `},` +
		`{"name":"list","kind":"handler","export":"list"},` +
		`{"name":"chat","kind":"chat"` + msgParams + `}]}],"warmup":` + members)
}

func TestAWarmupIsKeptAsItIs(t *testing.T) {
	for name, tc := range map[string]struct{ members, want string }{
		"params without white space, in their order": {`{"method": "com.acme.Shop.order", "params": { "n" : 12345678901234567890 }}`,
			`{"method":"com.acme.Shop.order","params":{"n":12345678901234567890}}`},
		"no params are an empty object": {`{"method": "com.acme.Shop.list"}`, `{"method":"com.acme.Shop.list","params":{}}`},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := manifest.Parse([]byte(withWarmup(tc.members)), manifest.Known{})
			if err != nil {
				t.Fatal(err)
			}
			encoded, err := manifest.Encode(m)
			if err != nil || !strings.HasSuffix(string(encoded), `,"warmup":`+tc.want+`}`) {
				t.Errorf("got %s, %v", encoded, err)
			}
			again, err := manifest.Parse(encoded, manifest.Known{})
			if err != nil {
				t.Fatal(err)
			}
			wantSame(t, again, m)
		})
	}
}

func TestFaultsOfAWarmup(t *testing.T) {
	for name, tc := range map[string]struct {
		members string
		want    []string
	}{
		"it is no object":                         {`"com.acme.Shop.order"`, []string{"/warmup", "must be an object"}},
		"it has no method":                        {`{}`, []string{"/warmup/method", "add the handler"}},
		"a member that is none":                   {`{"method":"com.acme.Shop.list","Params":{}}`, []string{"/warmup/Params", "did you mean `params`?"}},
		"a method without its service":            {`{"method":"list"}`, []string{"/warmup/method", `did you mean "com.acme.Shop.list"?`}},
		"a method with its plugin":                {`{"method":"a/com.acme.Shop.list"}`, []string{"/warmup/method", `did you mean "com.acme.Shop.list"?`}},
		"a method that is misspelt":               {`{"method":"com.acme.Shop.lists"}`, []string{"/warmup/method", `did you mean "com.acme.Shop.list"?`}},
		"a method that is not there":              {`{"method":"x"}`, []string{"/warmup/method", `"com.acme.Shop.order", "com.acme.Shop.list"`}},
		"no name at all":                          {`{"method":""}`, []string{"/warmup/method", "there is no method"}},
		"a chat method":                           {`{"method":"com.acme.Shop.chat","params":{"msg":"x"}}`, []string{"/warmup/method", "chat method"}},
		"params that the method's schema refuses": {`{"method":"com.acme.Shop.order","params":{"n":"1"}}`, []string{"/warmup/params/n", "integer"}},
		"params that are missing":                 {`{"method":"com.acme.Shop.order"}`, []string{"/warmup/params/n", "missing"}},
		"params that are no object":               {`{"method":"com.acme.Shop.order","params":null}`, []string{"/warmup/params", "object"}},
		"more params than a warm-up may have": {`{"method":"com.acme.Shop.list","params":{"x":"` + strings.Repeat("x", abi.MaxWarmupBytes) + `"}}`,
			[]string{"/warmup/params", "warmupBytes"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := manifest.Parse([]byte(withWarmup(tc.members)), manifest.Known{})
			wantFaults(t, err, tc.want...)
		})
	}
	t.Run("a plugin without handlers", func(t *testing.T) {
		_, err := manifest.Parse([]byte(withPlugin(`"warmup":{"method":"a.b"}`)), manifest.Known{})
		wantFaults(t, err, "/warmup/method", "remove `warmup`")
	})
}
