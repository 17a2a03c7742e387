package httpapi_test

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/host/sandbox/wasmtest"
	"github.com/carrelhost/carrel/internal/testenv"
)

// failing is a plugin by the name of failing, whose code traps after a while.
func failing() []byte {
	m := wasmtest.New()
	m.Carrel("output_write")
	m.Memory(1)
	m.Method("trap").Locals(1, wasmtest.I32).Const(1000).Set(0).Loop().Get(0).Const(1).Sub().Raw(0x22, 0).BrIf(0).End().Unreachable()
	m.Method("work").Const(0)
	m.Custom("carrel.manifest", []byte(`{"abi":"carrel/v1","name":"failing","version":"1","services":[{"name":"com.acme.Code","scope":"request","methods":[`+
		`{"name":"trap","kind":"handler","export":"trap"},{"name":"work","kind":"handler","export":"work"}]}]}`))
	return m.Bytes()
}

const failingPath = "/api/v1/plugins/failing/services/com.acme.Code/"

// What a call used matters most to the author of one that fails.
func TestTheLastEventOfAFailureSaysWhatWasUsed(t *testing.T) {
	env := testenv.New(t, testenv.Config())
	acme := env.Tenant("acme")
	acme.Upload(failing())
	for over, events := range map[string][]client.Event{
		"server-sent events": acme.Stream(t.Context(), "failing/com.acme.Code.trap").Rest(),
		"a WebSocket":        testenv.Watch(t, acme.Socket(client.SocketOptions{}).Begin("failing/com.acme.Code.trap").Events(t.Context())).Rest(),
	} {
		last := events[len(events)-1]
		if last.Type != client.EventFailed || last.Response == nil || last.Response.Usage.Fuel <= 0 || last.Response.Usage.GuestMicros <= 0 {
			t.Errorf("over %s the last event is %+v with %+v", over, last, last.Response)
		}
	}
}

func TestEveryJSONBodyEndsItsLine(t *testing.T) {
	env := testenv.New(t, testenv.Config())
	acme := env.Tenant("acme")
	acme.Upload(failing())
	const version = "/api/v1/plugins/failing/versions/1"
	for _, r := range []struct{ method, path, body string }{
		{"GET", "/version", ""}, {"GET", "/livez", ""}, {"GET", "/readyz", ""}, {"GET", "/api/v1/openapi.json", ""},
		{"GET", "/api/v1/plugins", ""}, {"GET", "/api/v1/plugins/failing", ""}, {"GET", "/api/v1/plugins/failing/log", ""},
		{"GET", version, ""}, {"GET", version + "/manifest", ""}, {"GET", version + "/report", ""},
		{"GET", failingPath + "work", ""}, {"POST", failingPath + "work", `{}`}, {"POST", failingPath + "trap", `{}`},
		{"GET", "/api/v1/nowhere", ""}, {"GET", "/api/v1/memories", ""}, {"POST", "/api/v1/sessions", `{}`},
	} {
		ans := acme.Do(r.method, r.path, r.body)
		if !strings.Contains(ans.Header.Get("Content-Type"), "json") {
			continue
		}
		if !bytes.HasSuffix(ans.Body, []byte("}\n")) {
			t.Errorf("%s %s: %d ends without a newline: %q", r.method, r.path, ans.Status, ans.Body)
		}
	}
}

func TestWhatIsMissingIsNamedWithinTheOwnTenant(t *testing.T) {
	env := testenv.New(t, testenv.Config())
	acme, globex, empty := env.Tenant("acme"), env.Tenant("globex"), env.Tenant("empty")
	acme.Upload(failing())
	globex.Install("---\nname: secret\nservices: [{name: com.globex.Chat}]\n---\nYou are secret")
	globex.Install("---\nname: idle\nservices: [{name: com.globex.Chat}]\n---\nYou are idle")
	if _, err := globex.Client().Deactivate(t.Context(), "idle"); err != nil {
		t.Fatal(err)
	}
	caller := env.Key("acme", client.NewKey{Role: "caller"})
	const plugins = "/api/v1/plugins/"
	for name, tc := range map[string]struct {
		a                  *testenv.Actor
		method, path, body string
		detail             string
	}{
		"a plugin with a name near one":        {acme, "POST", plugins + "failling/services/A/b", `{}`, "this tenant has no such plugin; did you mean failing?"},
		"a plugin far from all":                {acme, "GET", plugins + "else", "", "this tenant has no such plugin; GET /api/v1/plugins lists those it has"},
		"a plugin of a tenant that has none":   {empty, "GET", plugins + "failing", "", "this tenant has no such plugin, and no other yet; POST /api/v1/plugins uploads one"},
		"a plugin that another tenant has":     {acme, "GET", plugins + "secret", "", "this tenant has no such plugin; GET /api/v1/plugins lists those it has"},
		"a plugin near another tenant's":       {acme, "GET", plugins + "secrets", "", "this tenant has no such plugin; GET /api/v1/plugins lists those it has"},
		"a service by its last part":           {caller, "POST", plugins + "failing/services/Code/work", `{}`, "version 1 of failing has no such service; did you mean com.acme.Code?"},
		"a service that is none":               {acme, "GET", plugins + "failing/services/Other/work", "", "version 1 of failing has no such service; it has com.acme.Code"},
		"a method with a name near one":        {caller, "POST", failingPath + "works", `{}`, "the service com.acme.Code has no such method in version 1 of failing; did you mean work?"},
		"a method that is none":                {caller, "GET", failingPath + "absent", "", "the service com.acme.Code has no such method in version 1 of failing; it has trap, work"},
		"a version that is called":             {acme, "POST", plugins + "failing@7/services/com.acme.Code/work", `{}`, "failing has no such version; GET /api/v1/plugins/failing/versions lists those it has"},
		"a version that is read":               {acme, "GET", plugins + "failing/versions/7", "", "failing has no such version; GET /api/v1/plugins/failing/versions lists those it has"},
		"a version that is to be activated":    {acme, "PUT", plugins + "failing/active", `{"version":"7"}`, "failing has no such version; GET /api/v1/plugins/failing/versions lists those it has"},
		"a version of another tenant's plugin": {acme, "GET", plugins + "secret/versions/1", "", "this tenant has no such plugin; GET /api/v1/plugins lists those it has"},
		"an active version": {
			globex, "POST", plugins + "idle/services/com.globex.Chat/chat", `{"msg":"x"}`,
			`idle has no active version; a publisher or owner activates one: PUT /api/v1/plugins/idle/active {"version": "1"}`,
		},
		"an active version of a version that is there": {
			globex, "GET", plugins + "idle@1/services/com.globex.Chat/chat", "",
			`idle has no active version; a publisher or owner activates one: PUT /api/v1/plugins/idle/active {"version": "1"}`,
		},
		"the plugin of a log":    {acme, "GET", plugins + "failed/log", "", "this tenant has no such plugin; did you mean failing?"},
		"a plugin to delete":     {acme, "DELETE", plugins + "fail", "", "this tenant has no such plugin; GET /api/v1/plugins lists those it has"},
		"a plugin to deactivate": {acme, "DELETE", plugins + "faling/active", "", "this tenant has no such plugin; did you mean failing?"},
		"a plugin to roll back":  {acme, "POST", plugins + "faling/rollback", "", "this tenant has no such plugin; did you mean failing?"},
		"the tenant of a key":    {env.Anyone(testenv.AdminKey), "POST", "/admin/v1/tenants/acne/keys", `{"role":"caller"}`, "there is no such tenant; did you mean acme?"},
		"a tenant far from all":  {env.Anyone(testenv.AdminKey), "POST", "/admin/v1/tenants/zzz/keys", `{"role":"caller"}`, "there is no such tenant; GET /admin/v1/tenants lists those there are"},
		"a quarantined module": {
			env.Anyone(testenv.AdminKey), "DELETE", "/admin/v1/quarantine/" + strings.Repeat("f", 64), "",
			"no module with this digest is listed as crashed; GET /admin/v1/quarantine has those that are",
		},
	} {
		t.Run(name, func(t *testing.T) {
			ans := tc.a.In(t).Do(tc.method, tc.path, tc.body)
			if p := ans.Problem(t); ans.Status != http.StatusNotFound || p.Code != "not_found" || p.Detail != tc.detail {
				t.Errorf("%d %s\nwant %s", ans.Status, ans.Body, tc.detail)
			}
		})
	}
}

func TestAKeyIsToldWhatItMayNot(t *testing.T) {
	env := testenv.New(t, testenv.Config())
	env.Tenant("acme").Upload(failing())
	viewer := env.Key("acme", client.NewKey{Role: "viewer"})
	for path, may := range map[string]string{
		"GET /api/v1/plugins/failing/log":                       "read the logs of plugins",
		"GET /api/v1/versions/" + strings.Repeat("f", 64):       "follow uploads",
		"DELETE /api/v1/plugins/failing":                        "change plugins",
		"POST /api/v1/plugins/failing/services/com.acme.Code/x": "call methods",
	} {
		method, path, _ := strings.Cut(path, " ")
		ans := viewer.Do(method, path, "")
		if p := ans.Problem(t); ans.Status != http.StatusForbidden || !strings.Contains(p.Detail, "may not "+may+"; use one of role ") {
			t.Errorf("%s %s: %d %s", method, path, ans.Status, ans.Body)
		}
	}
}
