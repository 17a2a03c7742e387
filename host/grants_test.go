package host_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/host"
	"github.com/carrelhost/carrel/host/sandbox/wasmtest"
	"github.com/carrelhost/carrel/internal/testenv"
)

func TestAGrantIsReplacedAsAWholeAndEndsWithItsPlugin(t *testing.T) {
	testenv.EachStore(t, func(t *testing.T, cfg host.Config) {
		env := testenv.New(t, cfg)
		acme, globex := env.Tenant("acme"), env.Tenant("globex")
		acme.Install(bot("bot", "one"))
		globex.Install(bot("bot", "one"))
		granted := func(a *testenv.Actor) []string {
			t.Helper()
			g, err := a.Client().Grant(t.Context(), "bot")
			if err != nil || g.Call == nil {
				t.Fatalf("the grant is %+v, %v", g, err)
			}
			return g.Call
		}
		set := func(patterns ...string) {
			t.Helper()
			g, err := acme.Client().SetGrant(t.Context(), "bot", client.Grant{Call: patterns})
			if err != nil {
				t.Fatal(err)
			}
			same(t, "the answer", g.Call, patterns...)
			same(t, "granted", granted(acme), patterns...)
		}
		same(t, "at first", granted(acme))
		set("other/*", "other/com.acme.Svc.*", "other/com.acme.Svc.run")
		set("other/com.acme.Svc.run")
		same(t, "to the other tenant's plugin", granted(globex))
		env.Restart()
		if cfg.Store == host.StoreMemory {
			return
		}
		same(t, "after a restart", granted(acme), "other/com.acme.Svc.run")
		if _, err := acme.Client().DeletePlugin(t.Context(), "bot"); err != nil {
			t.Fatal(err)
		}
		refusal{method: http.MethodGet, path: "/api/v1/tenant/grants/bot", status: 404, code: "not_found"}.refuse(t, acme)
		acme.Install(bot("bot", "one"))
		same(t, "to a plugin of the same name", granted(acme))
	})
}

func TestAGrantThatIsWrongGrantsNothing(t *testing.T) {
	env := testenv.New(t, testenv.Config())
	acme := env.Tenant("acme")
	acme.Install(bot("bot", "one"))
	for name, r := range map[string]refusal{
		"patterns that are none":  {body: `{"call":["other/*","*","other/Svc.run.*","Other/Svc.*"]}`, status: 400, code: "bad_request", pointers: []string{"/call/1", "/call/3"}},
		"a pattern with a number": {body: `{"call":[1]}`, status: 400, code: "bad_request", pointers: []string{"/call/0"}},
		"what is not there yet":   {body: `{"http":[],"secrets":["X"]}`, status: 400, code: "bad_request", pointers: []string{"/http", "/secrets"}},
		"no namespace's name":     {body: `{"memoryNamespace":"shared:x"}`, status: 400, code: "bad_request", pointers: []string{"/memoryNamespace"}},
		"a namespace of 64 bytes": {body: `{"memoryNamespace":"` + strings.Repeat("x", 64) + `"}`, status: 400, code: "bad_request", pointers: []string{"/memoryNamespace"}},
		"a member of no name":     {body: `{"calls":[]}`, status: 400, code: "bad_request", pointers: []string{"/calls"}},
		"more than 256 patterns":  {body: `{"call":["a/*"` + strings.Repeat(`,"a/*"`, 256) + `]}`, status: 422, code: "limit_exceeded", limit: "grantCalls"},
		"no plugin of the tenant": {path: "/api/v1/tenant/grants/other", body: `{"call":[]}`, status: 404, code: "not_found"},
		"no plugin's name":        {path: "/api/v1/tenant/grants/Other", body: `{"call":[]}`, status: 400, code: "bad_request"},
	} {
		r.method = http.MethodPut
		if r.path == "" {
			r.path = "/api/v1/tenant/grants/bot"
		}
		t.Run(name, func(t *testing.T) { r.refuse(t, acme) })
	}
	if g, err := acme.Client().Grant(t.Context(), "bot"); err != nil || len(g.Call) > 0 {
		t.Errorf("granted is %+v, %v", g, err)
	}
}

// talkative is a plugin with code: say logs a line of each level and writes
// its output, trap traps.
func talkative() []byte {
	m := wasmtest.New()
	log, write := m.Carrel("log"), m.Carrel("output_write")
	m.Memory(1)
	m.Data(16, []byte("a line\x1b[31m"))
	say := m.Method("say")
	for level := range int32(4) {
		say.Const(level).Const(16).Const(6 + level).Call(log).Drop()
	}
	say.Const(16).Const(6).Call(write)
	inner := m.Func(nil, nil)
	inner.Unreachable()
	m.Name(inner.Index, "acme::look_up")
	m.Method("trap").Call(inner.Index).Const(0)
	m.Custom("carrel.manifest", []byte(`{"abi":"carrel/v1","name":"talkative","version":"1","services":[{"name":"com.acme.Code","scope":"request","methods":[`+
		`{"name":"say","kind":"handler","export":"say"},{"name":"trap","kind":"handler","export":"trap"}]}]}`))
	return m.Bytes()
}

func TestAPluginsLogHasItsLinesAndTrapsForThoseWhoMaintainIt(t *testing.T) {
	testenv.EachStore(t, func(t *testing.T, cfg host.Config) {
		env := testenv.New(t, cfg)
		acme, globex := env.Tenant("acme"), env.Tenant("globex")
		acme.Upload(talkative())
		globex.Upload(talkative())
		read := func(a *testenv.Actor, o client.ListOptions) ([]client.LogLine, string) {
			t.Helper()
			p, err := a.Client().PluginLog(t.Context(), "talkative", o)
			if err != nil {
				t.Fatal(err)
			}
			return p.Data, p.Next
		}
		if lines, next := read(acme, client.ListOptions{}); len(lines) > 0 || next != "" {
			t.Errorf("at first the log is %+v", lines)
		}
		acme.Chat("talkative/com.acme.Code.say")
		trap := acme.Do(http.MethodPost, "/api/v1/plugins/talkative/services/com.acme.Code/trap", `{}`)
		p := trap.Problem(t)
		if p.Code != "guest_trap" || strings.Contains(string(trap.Body), "look_up") {
			t.Errorf("the trap is answered with %s", trap.Body)
		}
		publisher := env.Key("acme", client.NewKey{Role: "publisher"})
		lines, _ := read(publisher, client.ListOptions{})
		var got []string
		for i, l := range lines {
			if l.Seq != int64(i+1) || l.At.IsZero() {
				t.Errorf("line %d is %+v", i+1, l)
			}
			got = append(got, l.Level+" "+l.Method+" "+strings.SplitN(l.Text, "\n", 2)[0])
		}
		same(t, "lines", got, "debug com.acme.Code.say a line", "info com.acme.Code.say a line\x1b", "warn com.acme.Code.say a line\x1b[",
			"error com.acme.Code.say a line\x1b[3", "error com.acme.Code.trap "+strings.SplitN(lines[4].Text, "\n", 2)[0])
		if l := lines[4]; !strings.Contains(l.Text, "unreachable") || !strings.Contains(l.Text, "acme::look_up") || l.RequestID != p.RequestID {
			t.Errorf("the trap is logged as %+v", l)
		}
		first, next := read(acme, client.ListOptions{Limit: 2})
		rest, end := read(acme, client.ListOptions{After: next})
		if len(first) != 2 || next != "2" || len(rest) != 3 || end != "" {
			t.Errorf("in pages: %d, next %q, %d, next %q", len(first), next, len(rest), end)
		}
		if lines, _ := read(globex, client.ListOptions{}); len(lines) > 0 {
			t.Errorf("the other tenant reads %+v", lines)
		}
		for _, after := range []string{"x", "-1"} {
			refusal{method: http.MethodGet, path: "/api/v1/plugins/talkative/log?after=" + after, status: 400, code: "bad_request"}.refuse(t, acme)
		}
		if _, err := acme.Client().DeletePlugin(t.Context(), "talkative"); err != nil {
			t.Fatal(err)
		}
		acme.Upload(talkative())
		if lines, _ := read(acme, client.ListOptions{}); len(lines) > 0 {
			t.Errorf("a plugin of the same name begins with %+v", lines)
		}
	})
}

func TestTheTextOfCodeIsStreamedInOnePiece(t *testing.T) {
	env := testenv.New(t, testenv.Config())
	acme := env.Tenant("acme")
	acme.Upload(talkative())
	same(t, "events of a handler", testenv.Show(acme.Stream(t.Context(), "talkative/com.acme.Code.say").Rest()),
		"1 response.created in_progress", "2 response.output_text.delta a line", "3 response.output_text.done a line", "4 response.completed completed")
	same(t, "events of a trap", testenv.Show(acme.Stream(t.Context(), "talkative/com.acme.Code.trap").Rest()),
		"1 response.created in_progress", "2 error guest_trap", "3 response.failed failed")
}
