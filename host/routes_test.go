package host_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/host"
	"github.com/carrelhost/carrel/host/httpapi"
	"github.com/carrelhost/carrel/internal/testenv"
)

// route is one address of the API, and who may use it.
type route struct {
	method, path string
	who          string              // roles, or open to all, or the administrator
	body         func(things) string // nil = none
	kind         string              // of the body; "" = JSON

	// send, if not nil, sends the request where it is no plain one.
	send func(r route, a *testenv.Actor, x things) testenv.Answer
}

const (
	anyone = "anybody"
	admin  = "administrator"
)

// things are what a path or a body names.
type things struct {
	plugin, version, key, tenant, module, session, invocation string

	release func() // lets the invocation end; nil if it is none
	finish  func() // releases it and waits for its end; nil if it is none
}

const methodPath = "/api/v1/plugins/:plugin/services/:service/:method"

// routes is every route there is: TestTheTableOfRoutesIsComplete.
var routes = []route{
	{method: "GET", path: "/livez", who: anyone},
	{method: "GET", path: "/readyz", who: anyone},
	{method: "GET", path: "/version", who: anyone},
	{method: "GET", path: "/api/v1/openapi.json", who: anyone},

	{method: "POST", path: "/admin/v1/tenants", who: admin, body: func(things) string { return `{"name":"initech"}` }},
	{method: "GET", path: "/admin/v1/tenants", who: admin},
	{method: "GET", path: "/admin/v1/scrub", who: admin},
	{method: "POST", path: "/admin/v1/scrub", who: admin},
	{method: "GET", path: "/admin/v1/quarantine", who: admin},
	{method: "DELETE", path: "/admin/v1/quarantine/:digest", who: admin},
	{method: "POST", path: "/admin/v1/tenants/:tenant/keys", who: admin, body: func(things) string { return `{"role":"caller"}` }},

	{method: "GET", path: methodPath, who: "owner publisher caller viewer"},
	{method: "POST", path: methodPath, who: "owner caller", body: func(things) string { return `{"id":"1","msg":"hello"}` }},

	{method: "GET", path: "/api/v1/plugins", who: "owner publisher caller viewer"},
	{method: "POST", path: "/api/v1/plugins", who: "owner publisher", kind: "application/wasm", body: func(x things) string { return x.module }},
	{method: "GET", path: "/api/v1/plugins/:plugin", who: "owner publisher caller viewer"},
	{method: "DELETE", path: "/api/v1/plugins/:plugin", who: "owner publisher"},
	{method: "PUT", path: "/api/v1/plugins/:plugin/active", who: "owner publisher", body: func(x things) string { return `{"version":"` + x.version + `"}` }},
	{method: "DELETE", path: "/api/v1/plugins/:plugin/active", who: "owner publisher"},
	{method: "POST", path: "/api/v1/plugins/:plugin/rollback", who: "owner publisher"},
	{method: "GET", path: "/api/v1/plugins/:plugin/versions", who: "owner publisher viewer"},
	{method: "GET", path: "/api/v1/plugins/:plugin/versions/:version", who: "owner publisher viewer"},
	{method: "DELETE", path: "/api/v1/plugins/:plugin/versions/:version", who: "owner publisher"},
	{method: "GET", path: "/api/v1/plugins/:plugin/versions/:version/manifest", who: "owner publisher viewer"},
	{method: "GET", path: "/api/v1/plugins/:plugin/versions/:version/report", who: "owner publisher viewer"},
	{method: "GET", path: "/api/v1/plugins/:plugin/versions/:version/module", who: "owner publisher viewer"},

	{method: "GET", path: "/api/v1/versions/:digest", who: "owner publisher"},

	{method: "GET", path: "/api/v1/plugins/:plugin/log", who: "owner publisher"},

	{method: "GET", path: "/api/v1/invocations/:invocation/events", who: "owner caller", send: sendEvents},
	{method: "POST", path: "/api/v1/invocations/:invocation/cancel", who: "owner caller"},
	{method: "POST", path: "/api/v1/sessions", who: "owner caller", body: func(things) string { return `{}` }},
	{method: "GET", path: "/api/v1/sessions", who: "owner caller"},
	{method: "GET", path: "/api/v1/sessions/:session", who: "owner caller"},
	{method: "DELETE", path: "/api/v1/sessions/:session", who: "owner caller"},
	{method: "POST", path: "/api/v1/ws-tickets", who: "owner caller", body: func(things) string { return `{}` }},
	{method: "GET", path: "/api/v1/ws", who: "owner caller", send: sendUpgrade},

	{method: "GET", path: "/api/v1/tenant/grants/:plugin", who: "owner"},
	{method: "PUT", path: "/api/v1/tenant/grants/:plugin", who: "owner", body: func(things) string { return `{"call":["other/*"]}` }},

	{method: "GET", path: "/api/v1/memories", who: "owner caller viewer"},
	{method: "GET", path: "/api/v1/memories/:key/messages", who: "owner caller viewer"},
	{method: "DELETE", path: "/api/v1/memories/:key", who: "owner caller"},
	{method: "DELETE", path: "/api/v1/memories/:key/turns/:turn", who: "owner caller"},
	{method: "GET", path: "/api/v1/memories/:key/export", who: "owner caller viewer"},
	{method: "POST", path: "/api/v1/memories/import", who: "owner", kind: client.HistoryType, body: anExport},
	{method: "POST", path: "/api/v1/subjects/erase", who: "owner", body: func(things) string { return `{"subject":"ada"}` }},
	{method: "GET", path: "/api/v1/evictions", who: "owner viewer"},
}

// anExport is a history of the plugin's to be imported.
func anExport(x things) string {
	return `{"format":"carrel.history/v1","plugin":"` + x.plugin + `","memoryId":"imported","kind":"explicit","createdAt":"2026-01-01T00:00:00Z","messages":2}
{"seq":1,"turn":1,"role":"user","content":"U","at":"2026-01-01T00:00:00Z"}
{"seq":2,"turn":1,"role":"assistant","content":"A","at":"2026-01-01T00:00:00Z"}
{"end":true,"messages":2}
`
}

func (r route) String() string { return r.method + " " + r.path }

// namesThings reports whether the path names something of a tenant.
func (r route) namesThings() bool { return strings.Contains(r.path, "/:") && r.who != admin }

// at fills in a path's parameters.
func (r route) at(x things) string {
	return strings.NewReplacer(":plugin", x.plugin, ":version", x.version, ":digest", x.version, ":key", x.key, ":tenant", x.tenant,
		":session", x.session, ":invocation", x.invocation, ":turn", "1",
		":service", "com.acme.MyChat", ":method", "chat").Replace(r.path)
}

// call sends a request of this route.
func (r route) call(a *testenv.Actor, x things) testenv.Answer {
	if r.send != nil {
		return r.send(r, a, x)
	}
	body := ""
	if r.body != nil {
		body = r.body(x)
	}
	if r.kind != "" {
		a = a.With("Content-Type", r.kind)
	}
	return a.Do(r.method, r.at(x), body)
}

// sendEvents reads events, which may end once somebody reads them.
func sendEvents(r route, a *testenv.Actor, x things) testenv.Answer {
	return a.Receive(a.Request(r.method, r.at(x)), x.release)
}

// sendUpgrade opens a WebSocket; that it is open counts as 200.
func sendUpgrade(r route, a *testenv.Actor, x things) testenv.Answer {
	for name, value := range upgrading {
		a = a.With(name, value)
	}
	return a.Receive(a.Request(r.method, r.at(x)), nil)
}

// upgrading are the headers of a WebSocket's handshake.
var upgrading = map[string]string{
	"Connection": "keep-alive, Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
}

// begin gives a route that needs one an invocation of user's, which runs until
// it is released.
func (r route) begin(t *testing.T, env *testenv.Env, user *testenv.Actor, x things) things {
	t.Helper()
	if !strings.Contains(r.path, "/:invocation") {
		return x
	}
	n := len(env.Model.Calls()) + 1
	x.release = env.Model.Hold()
	t.Cleanup(x.release)
	events := user.Stream(t.Context(), x.plugin+"/com.acme.MyChat.chat", "id", "streamed", "msg", "hello")
	x.invocation = events.Next().Response.ID
	x.finish = func() {
		x.release()
		events.Rest()
	}
	if err := env.Model.Arrived(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	return x
}

// bot is the source of a plugin with a version text of its own.
func bot(name, version string) string {
	return `---
name: ` + name + `
version: ` + version + `
services:
  - name: com.acme.MyChat
    scope: application
    methods:
      - name: chat
        memoryId: id
---
You are ` + name
}

// settle gives a plugin of two versions, the second of which is active, and
// one history that user made. The names are of what is not active.
func settle(t *testing.T, owner, user *testenv.Actor, plugin string) things {
	t.Helper()
	first := owner.Install(bot(plugin, "one"))
	owner.Install(bot(plugin, "two"))
	user.Chat(plugin+"/com.acme.MyChat.chat", "id", "1", "msg", "hello")
	x := things{plugin: plugin, version: first.Version.Digest, tenant: owner.Tenant,
		module: string(testenv.Pack(t, bot(plugin, "three"))), session: user.Open(client.NewSession{}).ID}
	for _, m := range owner.Memories(plugin) {
		x.key = m.Key
	}
	return x
}

func TestTheTableOfRoutesIsComplete(t *testing.T) {
	var have []httpapi.Route
	for _, r := range routes {
		have = append(have, httpapi.Route{Method: r.method, Path: r.path})
	}
	registered := httpapi.Routes()
	for _, r := range registered {
		if !slices.Contains(have, r) {
			t.Errorf("%s %s is not in the table", r.Method, r.Path)
		}
	}
	if len(have) != len(registered) {
		t.Errorf("%d routes are registered, %d in the table", len(registered), len(have))
	}
}

func TestEveryRoleMayDoWhatItIsThereForAndNothingElse(t *testing.T) {
	testenv.EachStore(t, func(t *testing.T, cfg host.Config) {
		env := testenv.New(t, cfg)
		owner := env.Tenant("acme")
		roles := map[string]*testenv.Actor{"owner": owner}
		for _, role := range []string{"publisher", "caller", "viewer"} {
			roles[role] = env.Key("acme", client.NewKey{Role: role})
		}
		for _, r := range routes {
			if r.who == anyone || r.who == admin {
				continue
			}
			for role, a := range roles {
				user := owner
				if role == "caller" {
					user = a
				}
				x := r.begin(t, env, user, settle(t, owner, user, "bot"))
				before, calls := snapshot(owner), len(env.Model.Calls())
				ans := r.call(a, x)
				if slices.Contains(strings.Fields(r.who), role) {
					if ans.Status/100 != 2 {
						t.Errorf("%s may not %s: %d %s", role, r, ans.Status, ans.Body)
					}
				} else {
					if p := ans.Problem(t); ans.Status != http.StatusForbidden || p.Code != "forbidden" {
						t.Errorf("%s may %s: %d %s", role, r, ans.Status, ans.Body)
					}
					if after := snapshot(owner); after != before || len(env.Model.Calls()) != calls {
						t.Errorf("%s was refused to %s, and %s\nbecame %s", role, r, before, after)
					}
				}
				if x.finish != nil {
					x.finish()
				}
				if _, err := owner.Client().DeletePlugin(t.Context(), "bot"); err != nil && ans.Status/100 != 2 {
					t.Fatal(err)
				}
			}
		}
	})
}

// snapshot is everything that a tenant has, as JSON.
func snapshot(owner *testenv.Actor) string {
	type entry struct {
		Plugin   client.Plugin
		Versions []client.Version
		Memories []client.Memory
		Messages map[string][]string
	}
	var all []entry
	for _, p := range owner.Plugins() {
		e := entry{p, owner.Versions(p.Name), owner.Memories(p.Name), map[string][]string{}}
		for _, m := range e.Memories {
			e.Messages[m.MemoryID] = owner.Stored(p.Name, m.MemoryID)
		}
		all = append(all, e)
	}
	b, _ := json.Marshal(all) // of types that JSON can hold
	return string(b)
}
