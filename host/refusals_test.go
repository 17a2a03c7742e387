package host_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/host"
	"github.com/carrelhost/carrel/internal/testenv"
)

const botChat = "/api/v1/plugins/bot/services/com.acme.MyChat/chat"

// refusal is a request that a host must refuse. The zero value of a field
// stands for the request that a well-behaved client sends.
type refusal struct {
	method, path, body string
	header             [2]string
	status             int
	code               string
	says               []string // in the detail
	limit              string
	pointers           []string // of the errors
}

// refuse sends what must be refused and checks the answer.
func (r refusal) refuse(t *testing.T, a *testenv.Actor) {
	t.Helper()
	if r.method == "" {
		r.method = http.MethodPost
	}
	if r.path == "" {
		r.path = botChat
	}
	if r.header[0] != "" {
		a = a.With(r.header[0], r.header[1])
	}
	r.check(t, a.In(t).Do(r.method, r.path, r.body))
}

func (r refusal) check(t *testing.T, ans testenv.Answer) {
	t.Helper()
	p := ans.Problem(t)
	if ans.Status != r.status || p.Code != r.code || p.Limit != r.limit {
		t.Errorf("the answer is %d %s, want %d %s with limit %q", ans.Status, ans.Body, r.status, r.code, r.limit)
	}
	for _, word := range r.says {
		if !strings.Contains(p.Detail, word) {
			t.Errorf("the detail %q does not say %q", p.Detail, word)
		}
	}
	if r.pointers != nil {
		var got []string
		for _, f := range p.Errors {
			got = append(got, f.Pointer)
			if f.Message == "" {
				t.Errorf("the fault at %q has no message", f.Pointer)
			}
		}
		same(t, "pointers", got, r.pointers...)
	}
}

func TestARequestThatIsWrongIsRefusedBeforeAnyWork(t *testing.T) {
	const good = `{"id":"1","msg":"hello"}`
	cases := map[string]refusal{
		"a member twice":               {body: `{"id":"1","id":"2","msg":"x"}`, status: 400, code: "malformed_json", pointers: []string{"/id"}},
		"data after the value":         {body: good + `{}`, status: 400, code: "malformed_json"},
		"bytes that are not UTF-8":     {body: "{\"id\":\"1\",\"msg\":\"\xff\"}", status: 400, code: "malformed_json"},
		"an unpaired surrogate":        {body: `{"id":"1","msg":"\ud800"}`, status: 400, code: "malformed_json"},
		"no JSON":                      {body: `id=1`, status: 400, code: "malformed_json"},
		"half a JSON":                  {body: good[:10], status: 400, code: "malformed_json"},
		"an empty body":                {status: 415, code: "unsupported_media_type"},
		"an empty JSON body":           {header: [2]string{"Content-Type", "application/json"}, status: 400, code: "malformed_json"},
		"a million open arrays":        {body: strings.Repeat("[", 1_000_000), status: 400, code: "malformed_json", says: []string{"deep"}},
		"a million open objects":       {body: `{"id":` + strings.Repeat(`{"a":`, 150_000), status: 400, code: "malformed_json", says: []string{"deep"}},
		"a number without an end":      {body: `{"id":"1","msg":1e999999999}`, status: 400, code: "malformed_json", pointers: []string{"/msg"}},
		"a number of a million digits": {body: `{"id":"1","msg":` + strings.Repeat("9", 1_000_000) + `}`, status: 400, code: "malformed_json"},
		"no object":                    {body: `["1"]`, status: 422, code: "invalid_params"},
		"a param of another type":      {body: `{"id":"1","msg":1}`, status: 422, code: "invalid_params", pointers: []string{"/msg"}},
		"a param in another case":      {body: `{"id":"1","Msg":"x"}`, status: 422, code: "invalid_params"},
		"a param that is missing":      {body: `{"id":"1"}`, status: 422, code: "invalid_params"},
		"an empty message":             {body: `{"id":"1","msg":""}`, status: 422, code: "invalid_params"},
		"no memory id":                 {body: `{"msg":"x"}`, status: 422, code: "invalid_memory_id", pointers: []string{"/id"}},
		"an empty memory id":           {body: `{"id":"","msg":"x"}`, status: 422, code: "invalid_memory_id", pointers: []string{"/id"}},
		"a memory id that is a number": {body: `{"id":1,"msg":"x"}`, status: 422, code: "invalid_memory_id", pointers: []string{"/id"}},
		"a memory id of 257 bytes":     {body: `{"id":"` + strings.Repeat("x", 257) + `","msg":"x"}`, status: 422, code: "invalid_memory_id"},
		"a memory id with a NUL":       {body: `{"id":"a\u0000b","msg":"x"}`, status: 422, code: "invalid_memory_id"},

		"a form":                    {body: good, header: [2]string{"Content-Type", "application/x-www-form-urlencoded"}, status: 415, code: "unsupported_media_type", says: []string{"application/json"}},
		"JSON in Latin 1":           {body: good, header: [2]string{"Content-Type", "application/json; charset=latin1"}, status: 415, code: "unsupported_media_type"},
		"a body under a coding":     {body: good, header: [2]string{"Content-Encoding", "gzip"}, status: 415, code: "unsupported_media_type"},
		"a query parameter":         {path: botChat + "?stream=true", body: good, status: 400, code: "bad_request", says: []string{`"stream"`}},
		"a query that is broken":    {path: botChat + "?%zz", body: good, status: 400, code: "bad_request"},
		"a header to come":          {body: good, header: [2]string{"Carrel-Budget", "1"}, status: 400, code: "bad_request", says: []string{"Carrel-Budget", "not supported"}},
		"a conflict rule to come":   {body: good, header: [2]string{"Carrel-On-Conflict", "merge"}, status: 400, code: "bad_request", says: []string{"wait, reject"}},
		"another disconnect rule":   {body: good, header: [2]string{"Carrel-On-Disconnect", "maybe"}, status: 400, code: "bad_request", says: []string{"cancel, continue"}},
		"a timeout without unit":    {body: good, header: [2]string{"Carrel-Timeout", "20"}, status: 400, code: "bad_request"},
		"a timeout of nothing":      {body: good, header: [2]string{"Carrel-Timeout", "0s"}, status: 400, code: "bad_request"},
		"a timeout in the past":     {body: good, header: [2]string{"Carrel-Timeout", "-1s"}, status: 400, code: "bad_request"},
		"a timeout over the host's": {body: good, header: [2]string{"Carrel-Timeout", "121s"}, status: 422, code: "limit_exceeded", limit: "timeout", says: []string{"2m0s", "limits.timeout"}},

		"a method that is not there":  {path: strings.Replace(botChat, "/chat", "/talk", 1), body: good, status: 404, code: "not_found"},
		"a service that is not there": {path: strings.Replace(botChat, "MyChat", "Chat", 1), body: good, status: 404, code: "not_found"},
		"a version that is not there": {path: strings.Replace(botChat, "bot", "bot@9", 1), body: good, status: 404, code: "not_found"},
		"a version of zeros":          {path: strings.Replace(botChat, "bot", "bot@"+strings.Repeat("0", 64), 1), body: good, status: 400, code: "bad_request"},
		"no plugin's name":            {path: strings.Replace(botChat, "bot", "Bot%2F..", 1), body: good, status: 400, code: "bad_request"},
		"a route that is not there":   {path: "/api/v1/responses", body: good, status: 404, code: "not_found"},
		"a root that is not there":    {path: "/v1/chat/completions", body: good, status: 404, code: "not_found"},
		"a host of another name":      {body: good, header: [2]string{"Host", "evil.example:8080"}, status: 421, code: "wrong_host"},

		"a limit of the list":      {method: "GET", path: "/api/v1/memories?limit=0", status: 400, code: "bad_request"},
		"a limit over a page":      {method: "GET", path: "/api/v1/memories?limit=1001", status: 400, code: "bad_request"},
		"a limit twice":            {method: "GET", path: "/api/v1/memories?limit=1&limit=2", status: 400, code: "bad_request"},
		"a cursor made up":         {method: "GET", path: "/api/v1/memories?after=!", status: 400, code: "bad_request"},
		"a filter to come":         {method: "GET", path: "/api/v1/memories?subject=ada", status: 400, code: "bad_request", says: []string{`"subject"`, "plugin, prefix"}},
		"a boolean of its own":     {path: "/api/v1/plugins?activate=yes", header: [2]string{"Content-Type", "application/wasm"}, body: "x", status: 400, code: "bad_request"},
		"an activation of nothing": {method: "PUT", path: "/api/v1/plugins/bot/active", body: `{}`, status: 400, code: "bad_request"},
		"an activation with more":  {method: "PUT", path: "/api/v1/plugins/bot/active", body: `{"version":"1","force":true}`, status: 400, code: "bad_request", pointers: []string{"/force"}},
		"a rollback to nothing":    {path: "/api/v1/plugins/bot/rollback", status: 400, code: "bad_request"},
		"the active version's end": {method: "DELETE", path: "/api/v1/plugins/bot/versions/1", status: 400, code: "bad_request"},
	}
	testenv.EachStore(t, func(t *testing.T, cfg host.Config) {
		env := testenv.New(t, cfg)
		acme := env.Tenant("acme")
		acme.Install(bot("bot", "one"))
		before := snapshot(acme)
		for name, c := range cases {
			t.Run(name, func(t *testing.T) {
				calls := len(env.Model.Calls())
				c.refuse(t, acme)
				if n := len(env.Model.Calls()); n > calls {
					t.Errorf("the model was sent %q", env.Model.Send(n))
				}
			})
		}
		if after := snapshot(acme); after != before {
			t.Errorf("there was %s\nand is %s", before, after)
		}
	})
}

func TestAMethodThatAnAddressDoesNotTakeIsToldWhichItTakes(t *testing.T) {
	env := testenv.New(t, testenv.Config())
	acme := env.Tenant("acme")
	takes := map[string][]string{}
	for _, r := range routes {
		takes[r.path] = append(takes[r.path], r.method)
	}
	for _, r := range routes {
		a := acme
		if r.who == admin {
			a = env.Anyone(testenv.AdminKey)
		}
		x := things{plugin: "bot", version: "1", key: strings.Repeat("A", 22), tenant: "acme", session: "1", invocation: "1"}
		for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE"} {
			if slices.Contains(takes[r.path], method) || r.path == "/api/v1/memories/import" && method == http.MethodDelete {
				continue // which deletes a history, of the key "import"
			}
			ans := a.Do(method, r.at(x), "")
			if p := ans.Problem(t); ans.Status != http.StatusMethodNotAllowed || p.Code != "method_not_allowed" {
				t.Errorf("%s %s: %d %s", method, r.path, ans.Status, ans.Body)
			}
			allowed := strings.Split(ans.Header.Get("Allow"), ", ")
			for _, m := range takes[r.path] {
				if !slices.Contains(allowed, m) {
					t.Errorf("%s %s: Allow is %q, %s is missing", method, r.path, allowed, m)
				}
			}
		}
	}
}

func TestABodyOverTheLimitIsRefusedWithoutBeingReadOrSent(t *testing.T) {
	const size = 10 << 20
	testenv.EachStore(t, func(t *testing.T, cfg host.Config) {
		env := testenv.New(t, cfg)
		cfg.Limits.BodyTimeout = 500 * time.Millisecond
		hasty := testenv.New(t, cfg) // that waits for what does not come
		acme, other := env.Tenant("acme"), hasty.Tenant("acme")
		acme.Install(bot("bot", "one"))
		other.Install(bot("bot", "one"))
		want := refusal{status: 413, code: "too_large", limit: "requestBytes", says: []string{"1048576", "limits.requestBytes"}}
		large := `{"id":"1","msg":"` + strings.Repeat("x", size) + `"}`
		silent, _ := io.Pipe()
		for what, send := range map[string]struct {
			by     *testenv.Actor
			base   string
			body   io.Reader
			length int64
		}{
			"of declared length":            {acme, env.Addr(), strings.NewReader(large), int64(len(large))},
			"of undeclared length":          {acme, env.Addr(), io.MultiReader(strings.NewReader(large)), -1},
			"whose sender sends not a byte": {other, hasty.Addr(), silent, size},
			"a byte over the limit":         {acme, env.Addr(), bytes.NewReader(make([]byte, 1<<20+1)), 1<<20 + 1},
		} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, send.base+botChat, send.body)
			if err != nil {
				t.Fatal(err)
			}
			r.ContentLength = send.length
			t.Run(what, func(t *testing.T) { want.check(t, send.by.In(t).Send(r)) })
		}
		fits := fmt.Sprintf(`{"id":"1","msg":"%s"}`, strings.Repeat("x", 1<<20-len(`{"id":"1","msg":""}`)))
		if len(env.Model.Calls())+len(hasty.Model.Calls()) > 0 {
			t.Fatal("the model was called")
		}
		if ans := acme.Do(http.MethodPost, botChat, fits); ans.Status != http.StatusOK {
			t.Errorf("a body of just the limit: %d", ans.Status)
		}
	})
}

func TestAHostAnswersToTheNamesThatItsOperatorAllows(t *testing.T) {
	cfg := testenv.Config()
	cfg.AllowedHosts = []string{"Carrel.Example"}
	env := testenv.New(t, cfg)
	for name, status := range map[string]int{
		"carrel.example": 200, "CARREL.example:80": 200, "localhost:1": 200, "LOCALHOST": 200, "[::1]:8080": 200, "127.0.0.1": 200,
		"evil.example": 421, "127.0.0.1.evil.example": 421, "carrel.example.evil.example": 421, "10.0.0.1": 421,
	} {
		if ans := env.Anyone("").With("Host", name).Do("GET", "/livez", ""); ans.Status != status {
			t.Errorf("%s: %d", name, ans.Status)
		}
	}
}

func TestATenantIsMadeOnceAndHasOneFirstOwner(t *testing.T) {
	testenv.EachStore(t, func(t *testing.T, cfg host.Config) {
		env := testenv.New(t, cfg)
		env.Tenant("acme")
		admin := env.Anyone(testenv.AdminKey)
		for what, r := range map[string]refusal{
			"the same name":           {path: "/admin/v1/tenants", body: `{"name":"acme"}`, status: 400, code: "bad_request"},
			"no name":                 {path: "/admin/v1/tenants", body: `{}`, status: 400, code: "bad_request"},
			"a name with capitals":    {path: "/admin/v1/tenants", body: `{"name":"Acme"}`, status: 400, code: "bad_request"},
			"a member too many":       {path: "/admin/v1/tenants", body: `{"name":"b","plan":"gold"}`, status: 400, code: "bad_request", pointers: []string{"/plan"}},
			"a second owner":          {path: "/admin/v1/tenants/acme/keys", body: `{"role":"owner"}`, status: 403, code: "forbidden"},
			"a role that is none":     {path: "/admin/v1/tenants/acme/keys", body: `{"role":"root"}`, status: 400, code: "bad_request"},
			"a key of nobody":         {path: "/admin/v1/tenants/nobody/keys", body: `{"role":"caller"}`, status: 404, code: "not_found"},
			"a first owner of nobody": {path: "/admin/v1/tenants/nobody/keys", body: `{"role":"owner"}`, status: 404, code: "not_found"},
		} {
			t.Run(what, func(t *testing.T) { r.refuse(t, admin) })
		}
		list, err := env.Admin().Tenants(t.Context(), client.ListOptions{})
		if err != nil || len(list.Data) != 2 || testenv.CodeOf(err) != abi.OK {
			t.Errorf("the tenants are %+v, %v", list.Data, err)
		}
	})
}
