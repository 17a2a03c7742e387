package host_test

import (
	"testing"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/host"
	"github.com/carrelhost/carrel/internal/testenv"
)

// pooled is a plugin that asks for the memory namespace pool.
func pooled(name string) string {
	return "---\nname: " + name + "\nmemoryNamespace: pool\nservices:\n" +
		"- {name: App, scope: application, methods: [{name: chat, memoryId: id}]}\n" +
		"- {name: Req, methods: [{name: chat, memoryId: id}]}\n---\n"
}

func TestAGrantedMemoryNamespaceIsShared(t *testing.T) {
	testenv.EachStore(t, func(t *testing.T, cfg host.Config) {
		env := testenv.New(t, cfg)
		acme, globex := env.Tenant("acme"), env.Tenant("globex")
		for _, name := range []string{"one", "two", "three"} {
			acme.Install(pooled(name))
		}
		globex.Install(pooled("one"))
		share := func(a *testenv.Actor, plugin, namespace string) {
			t.Helper()
			want := client.Grant{Call: []string{}, MemoryNamespace: namespace}
			set, err := a.Client().SetGrant(t.Context(), plugin, client.Grant{MemoryNamespace: namespace})
			if err != nil || set.MemoryNamespace != namespace {
				t.Fatalf("the answer is %+v, %v, want %+v", set, err, want)
			}
			if got, err := a.Client().Grant(t.Context(), plugin); err != nil || got.MemoryNamespace != namespace {
				t.Fatalf("granted is %+v, %v, want %+v", got, err, want)
			}
		}
		share(acme, "one", "pool")
		share(acme, "two", "pool")
		share(globex, "one", "pool")

		acme.Chat("one/App.chat", "id", "1", "msg", "U1")
		acme.Chat("two/App.chat", "id", "1", "msg", "U2")
		same(t, "the second plugin's send", env.Model.Send(2), "user:U1", "assistant:A1", "user:U2")
		acme.Chat("three/App.chat", "id", "1", "msg", "U3")
		same(t, "send of one without a grant", env.Model.Send(3), "user:U3")
		globex.Chat("one/App.chat", "id", "1", "msg", "U4")
		same(t, "send of the other tenant's", env.Model.Send(4), "user:U4")
		if cfg.Store != host.StoreMemory {
			env.Restart()
		}
		out := acme.Chat("two/Req.chat", "id", "1", "msg", "U5")
		same(t, "send of a smaller scope", env.Model.Send(5), "user:U1", "assistant:A1", "user:U2", "assistant:A2", "user:U5")
		if len(out.Evicted) != 1 || out.Evicted[0].MemoryID != "1" || out.Evicted[0].Messages != 6 {
			t.Errorf("evicted is %+v", out.Evicted)
		}
		acme.Chat("one/App.chat", "id", "1", "msg", "U6")
		same(t, "send after the smallest scope ended", env.Model.Send(6), "user:U6")

		// It does not end with a plugin that did not touch it, and does with one that did.
		acme.Chat("two/App.chat", "id", "1", "msg", "U7")
		if _, err := acme.Client().DeletePlugin(t.Context(), "three"); err != nil {
			t.Fatal(err)
		}
		acme.Chat("one/App.chat", "id", "1", "msg", "U8")
		same(t, "send after another plugin's end", env.Model.Send(8), "user:U6", "assistant:A6", "user:U7", "assistant:A7", "user:U8")
		if _, err := acme.Client().DeletePlugin(t.Context(), "two"); err != nil {
			t.Fatal(err)
		}
		acme.Chat("one/App.chat", "id", "1", "msg", "U9")
		same(t, "send after a sharer's end", env.Model.Send(9), "user:U9")

		share(acme, "one", "")
		acme.Chat("one/App.chat", "id", "1", "msg", "U10")
		same(t, "send without the grant", env.Model.Send(10), "user:U10")
	})
}

func TestWhereAMemoryIDComesFromIsToldInOrder(t *testing.T) {
	env := testenv.New(t, testenv.Config())
	acme := env.Tenant("acme")
	const services = "services:\n- {name: App, scope: application, methods: [{name: chat, memoryId: id}]}\n- {name: S, methods: [{name: chat, memoryId: id, params: {id?: string, msg: string}}]}\n---\n"
	acme.Install("---\nname: none\n" + services)
	for name, priority := range map[string]string{"before": "-10", "between": "1", "late": "99", "never": "101"} {
		acme.Install("---\nname: " + name + "\ndefaultMemoryId: {from: 'header:X-Conversation', priority: " + priority + "}\n" + services)
	}
	acme.Upload(talkative())
	for address, want := range map[string]client.MemoryRule{
		"none/S.chat":                 {Param: "id", Default: "session, then request"},
		"none/App.chat":               {Param: "id", Required: true, Default: "none"},
		"before/S.chat":               {Param: "id", Default: "header:X-Conversation, then session, then request"},
		"before/App.chat":             {Param: "id", Required: true, Default: "none"},
		"between/S.chat":              {Param: "id", Default: "session, then header:X-Conversation, then request"},
		"late/S.chat":                 {Param: "id", Default: "session, then header:X-Conversation, then request"},
		"never/S.chat":                {Param: "id", Default: "session, then request"},
		"talkative/com.acme.Code.say": {Default: "none"},
	} {
		at, err := carrel.ParseAddress(address)
		if err != nil {
			t.Fatal(err)
		}
		if m, err := acme.Client().Describe(t.Context(), at, ""); err != nil || m.Memory != want {
			t.Errorf("%s: got %+v, %v, want %+v", address, m.Memory, err, want)
		}
	}
}
