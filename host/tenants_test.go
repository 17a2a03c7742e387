package host_test

import (
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/host"
	"github.com/carrelhost/carrel/internal/testenv"
)

func TestAnotherTenantsThingsAnswerLikeThingsThatExistNowhere(t *testing.T) {
	testenv.EachStore(t, func(t *testing.T, cfg host.Config) {
		env := testenv.New(t, cfg)
		acme, globex := env.Tenant("acme"), env.Tenant("globex")
		theirs, own := settle(t, acme, acme, "bot-a"), settle(t, globex, globex, "bot-g")
		nothing := things{
			plugin: "bot-x", version: strings.Repeat("f", 64), key: strings.Repeat("A", 22),
			session: "ses_00000000-0000-4000-8000-000000000000", invocation: "00000000-0000-7000-8000-000000000000",
		}
		running := route{path: "/:invocation"}.begin(t, env, acme, theirs)
		theirs.invocation = running.invocation
		before, calls := snapshot(acme), len(env.Model.Calls())
		for _, r := range routes {
			if !r.namesThings() {
				continue
			}
			answersAlike(t, globex, r, theirs, nothing)
			if strings.HasSuffix(r.path, "/:version") || strings.Contains(r.path, "/:version/") || strings.HasSuffix(r.path, "/active") && r.method == "PUT" {
				// A version of theirs under a plugin of one's own.
				answersAlike(t, globex, r,
					things{plugin: own.plugin, version: theirs.version}, things{plugin: own.plugin, version: nothing.version})
			}
			if r.path == methodPath {
				answersAlike(t, globex, r, things{plugin: theirs.plugin + "@1"}, things{plugin: nothing.plugin + "@1"})
				answersAlike(t, globex, r,
					things{plugin: own.plugin + "@" + theirs.version}, things{plugin: own.plugin + "@" + nothing.version})
			}
		}
		if got := globex.Memories(theirs.plugin); len(got) > 0 {
			t.Errorf("globex lists %+v", got)
		}
		if after := snapshot(acme); after != before {
			t.Errorf("acme had %s\nand has %s", before, after)
		}
		if n := len(env.Model.Calls()); n != calls {
			t.Errorf("the model was called %d times", n-calls)
		}
	})
}

// answersAlike checks that a route answers not_found, and in the same words,
// to what is another tenant's and to what exists nowhere.
func answersAlike(t *testing.T, a *testenv.Actor, r route, theirs, nothing things) {
	t.Helper()
	got, want := r.call(a, theirs), r.call(a, nothing)
	p, q := got.Problem(t), want.Problem(t)
	if got.Status != http.StatusNotFound || p.Code != "not_found" {
		t.Errorf("%s: %d %s", r, got.Status, got.Body)
	}
	p.RequestID, q.RequestID = "", ""
	for _, h := range []http.Header{got.Header, want.Header} {
		h.Del("X-Request-Id")
		h.Del("Date")
	}
	if !reflect.DeepEqual(p, q) || !reflect.DeepEqual(got.Header, want.Header) {
		t.Errorf("%s answers %s\n%v\nand to what exists nowhere %s\n%v", r, got.Body, got.Header, want.Body, want.Header)
	}
}

func TestTwoTenantsWithOnePluginNameAndOneMemoryIDShareNothing(t *testing.T) {
	testenv.EachStore(t, func(t *testing.T, cfg host.Config) {
		env := testenv.New(t, cfg)
		acme, globex := env.Tenant("acme"), env.Tenant("globex")
		a, g := settle(t, acme, acme, "bot"), settle(t, globex, globex, "bot")
		if a.version != g.version || a.key == g.key {
			t.Errorf("acme has %+v, globex %+v: the same bytes, and keys of their own", a, g)
		}
		same(t, "globex' send", env.Model.Send(2), "system:You are bot", "user:hello")
		before := snapshot(acme)
		if _, err := globex.Client().DeletePlugin(t.Context(), "bot"); err != nil {
			t.Fatal(err)
		}
		if after := snapshot(acme); after != before {
			t.Errorf("acme had %s\nand has %s", before, after)
		}
		// The bytes that acme has are new to globex.
		ans := globex.With("Content-Type", "application/wasm").Do("POST", "/api/v1/plugins", string(testenv.Pack(t, bot("bot", "one"))))
		if ans.Status != http.StatusCreated {
			t.Errorf("globex' upload answers %d", ans.Status)
		}
	})
}

func TestACredentialOpensOnlyItsOwnDoor(t *testing.T) {
	env := testenv.New(t, testenv.Config())
	acme := env.Tenant("acme")
	x := settle(t, acme, acme, "bot")
	stranger := "carrel_" + strings.Repeat("x", 43)
	bare := env.Anyone("")
	for _, r := range routes {
		if r.who == anyone {
			if ans := r.call(bare, x); ans.Status != http.StatusOK {
				t.Errorf("%s without a key: %d %s", r, ans.Status, ans.Body)
			}
			continue
		}
		x := r.begin(t, env, acme, x)
		before := snapshot(acme)
		calls := len(env.Model.Calls())
		right, wrong := acme.Key(), testenv.AdminKey
		if r.who == admin {
			right, wrong = wrong, right
		}
		for what, refused := range map[string]struct {
			a      *testenv.Actor
			status int
			code   string
		}{
			"without a key":               {bare, 401, "unauthenticated"},
			"with an empty key":           {bare.With("Authorization", "Bearer "), 401, "unauthenticated"},
			"with an unknown key":         {env.Anyone(stranger), 401, "unauthenticated"},
			"with an unknown x-api-key":   {bare.With("X-Api-Key", stranger), 401, "unauthenticated"},
			"with the other plane's key":  {env.Anyone(wrong), 401, "unauthenticated"},
			"with another kind of scheme": {bare.With("Authorization", "Basic "+right), 401, "unauthenticated"},
			"with two different keys":     {env.Anyone(right).With("X-Api-Key", stranger), 400, "bad_request"},
			"with two planes' keys":       {env.Anyone(right).With("X-Api-Key", wrong), 400, "bad_request"},
		} {
			ans := r.call(refused.a, x)
			if p := ans.Problem(t); ans.Status != refused.status || p.Code != refused.code {
				t.Errorf("%s %s: %d %s", r, what, ans.Status, ans.Body)
			}
			if asks := ans.Header.Get("WWW-Authenticate") != ""; asks != (ans.Status == 401) {
				t.Errorf("%s %s: WWW-Authenticate %t", r, what, asks)
			}
		}
		if after := snapshot(acme); after != before || len(env.Model.Calls()) != calls {
			t.Errorf("%s: acme had %s\nand has %s", r, before, after)
		}
		if x.finish != nil {
			x.finish()
		}
	}
	if tenants, err := env.Admin().Tenants(t.Context(), client.ListOptions{}); err != nil || len(tenants.Data) != 2 {
		t.Errorf("the tenants are %+v, %v", tenants, err)
	}
	for _, r := range routes {
		if r.method != "GET" || r.who == anyone {
			continue
		}
		key := acme.Key()
		if r.who == admin {
			key = testenv.AdminKey
		}
		for what, a := range map[string]*testenv.Actor{
			"with x-api-key":          bare.With("X-Api-Key", key),
			"with the same key twice": env.Anyone(key).With("X-Api-Key", key),
			"with bearer in small":    bare.With("Authorization", "bearer "+key),
		} {
			x := r.begin(t, env, acme, x)
			if ans := r.call(a, x); ans.Status != http.StatusOK {
				t.Errorf("%s %s: %d %s", r, what, ans.Status, ans.Body)
			}
			if x.finish != nil {
				x.finish()
			}
		}
	}
}

func TestOnlyAKeyThatAssertsSubjectsMaySayWhoItsSubjectIs(t *testing.T) {
	env := testenv.New(t, testenv.Config())
	acme := env.Tenant("acme")
	fixed := env.Key("acme", client.NewKey{Role: "caller", Subject: "ada", AssertSubject: true})
	for what, c := range map[string]struct {
		a      *testenv.Actor
		status int
	}{
		"a key that may not":                {acme.As("ada"), 403},
		"a fixed subject, another asserted": {fixed.As("bob"), 403},
		"a fixed subject, the same":         {fixed.As("ada"), 200},
		"a subject with a control byte":     {fixed.With("Carrel-Subject", "a\tb"), 400},
		"an empty subject":                  {fixed.With("Carrel-Subject", ""), 400},
	} {
		if ans := c.a.Do("GET", "/api/v1/plugins", ""); ans.Status != c.status {
			t.Errorf("%s: %d %s", what, ans.Status, ans.Body)
		}
	}
}

func TestAnAdministrationOfItsOwnIsNowhereElse(t *testing.T) {
	cfg := testenv.Config()
	cfg.AdminListen = "127.0.0.1:0"
	env := testenv.New(t, cfg)
	acme := env.Tenant("acme")
	x := settle(t, acme, acme, "bot")
	apart := testenv.Remote(t, func() string { return env.Admin().Base }, testenv.AdminKey, env.Model)
	for _, r := range routes {
		a, where := apart, "the administration's listener"
		if r.who == admin {
			a, where = env.Anyone(testenv.AdminKey), "the listener of the tenants"
		}
		if p := r.call(a, x).Problem(t); p.Code != "not_found" {
			t.Errorf("%s on %s: %+v", r, where, p)
		}
	}
}
