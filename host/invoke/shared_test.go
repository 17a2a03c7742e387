package invoke_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/imports"
	"github.com/carrelhost/carrel/host/memory"
	"github.com/carrelhost/carrel/store"
)

const pool carrel.Namespace = "pool"

// asks uploads a plugin of guests whose manifest asks for the namespace pool.
func (e *env) asks(tenant carrel.TenantID, name string) {
	e.upload(tenant, guestModule(guestManifest(name, `,"memoryNamespace":"pool"`)))
}

func (e *env) grant(tenant carrel.TenantID, plugin carrel.PluginName, ns carrel.Namespace) {
	e.t.Helper()
	if err := e.disk.SetGrant(e.t.Context(), tenant, plugin, store.Grant{Namespace: ns}); err != nil {
		e.t.Fatal(err)
	}
}

// newSharedEnv has g and h share the namespace pool; ungranted asks for it in
// vain, and elsewhere is granted another one.
func newSharedEnv(t *testing.T) *env {
	t.Helper()
	e := newEnv(t, nil)
	for _, name := range []string{"g", "h", "ungranted", "elsewhere"} {
		e.asks(acme, name)
	}
	e.upload(acme, guestModule(guestManifest("silent", "")))
	e.asks(other, "g")
	for name, ns := range map[carrel.PluginName]carrel.Namespace{"g": pool, "h": pool, "silent": pool, "elsewhere": "other-pool"} {
		e.grant(acme, name, ns)
	}
	e.grant(other, "g", pool)
	return e
}

func TestPluginsThatAreGrantedANamespaceShareItsHistories(t *testing.T) {
	e := newSharedEnv(t)
	e.run(e.call("g/App.chat", "id", "1", "msg", "U1"), "A1")
	o := e.wantSent(e.call("h/App.chat", "id", "1", "msg", "U2"), "A2", "user:U1 assistant:A1 user:U2")
	if o.MemoryID != "1" {
		t.Errorf("the id is %s", o.MemoryID)
	}
	for name, why := range map[string]string{
		"ungranted": "it has no grant", "elsewhere": "its grant is of another namespace", "silent": "its manifest asks for none",
	} {
		e.wantSent(e.call(name+"/App.chat", "id", "1", "msg", why), "A", "user:"+why)
	}
	e.wantSent(theirs(e.call("g/App.chat", "id", "1", "msg", "U")), "A", "user:U")
	e.wantSent(e.call("h/App.chat", "id", "1", "msg", "U3"), "A3", "user:U1 assistant:A1 user:U2 assistant:A2 user:U3")

	// A plugin that is named like the namespace has its own histories all the same.
	e.upload(acme, guestModule(guestManifest(string(pool), "")))
	e.wantSent(e.call("pool/App.chat", "id", "1", "msg", "U"), "A", "user:U")

	e.grant(acme, "h", "")
	e.wantSent(e.call("h/App.chat", "id", "1", "msg", "alone"), "A", "user:alone")
}

func TestDefaultIDsAreApartInASharedNamespace(t *testing.T) {
	e := newSharedEnv(t)
	session := e.socket()
	for _, plugin := range []string{"g", "h"} {
		c := e.call(plugin+"/Ses.chat", "msg", plugin)
		c.Socket = session
		if o := e.wantSent(c, "A", "user:"+plugin); o.MemoryID != carrel.MemoryID(session.ID())+"#Ses.chat" {
			t.Errorf("the id is %s", o.MemoryID)
		}
	}
	var spaces []string
	for _, x := range session.Close(t.Context()).Evicted {
		spaces = append(spaces, string(x.Key.Namespace))
	}
	if slices.Sort(spaces); !slices.Equal(spaces, []string{"g", "h"}) {
		t.Errorf("they lived in %q", spaces)
	}
}

func TestTheSmallestScopeEndsASharedHistory(t *testing.T) {
	e := newSharedEnv(t)
	e.run(e.call("g/App.chat", "id", "1", "msg", "U1"), "A1")
	e.run(e.call("g/App.chat", "id", "2", "msg", "U1"), "A1")
	o := e.wantSent(e.call("h/Req.chat", "id", "1", "msg", "U2"), "A2", "user:U1 assistant:A1 user:U2")
	want := carrel.MemoryKey{Tenant: acme, Namespace: memory.Shared(pool), Kind: carrel.KindExplicit, ID: "1"}
	if len(o.Evicted) != 1 || o.Evicted[0].Key != want || o.Evicted[0].Messages != 4 {
		t.Errorf("evicted %+v", o.Evicted)
	}
	e.wantStored("2", "user:U1 assistant:A1")
	e.wantSent(e.call("g/App.chat", "id", "1", "msg", "U3"), "A3", "user:U3")

	session := e.socket()
	c := e.call("h/Ses.chat", "id", "2", "msg", "U2")
	c.Socket = session
	e.wantSent(c, "A2", "user:U1 assistant:A1 user:U2")
	if closed := session.Close(t.Context()); len(closed.Evicted) != 1 || closed.Evicted[0].Key.ID != "2" {
		t.Errorf("the session's end evicted %+v", closed.Evicted)
	}
	e.wantStored("1", "user:U3 assistant:A3")
}

// What a plugin's own code sees of a shared namespace.
func TestAGuestOfASharedNamespace(t *testing.T) {
	e := newSharedEnv(t)
	e.run(e.call("h/App.chat", "id", "1", "msg", "U1"), "A1")
	e.run(e.call("ungranted/App.chat", "id", "foreign", "msg", "U"), "A")
	shared := carrel.MemoryKey{Tenant: acme, Namespace: memory.Shared(pool), Kind: carrel.KindExplicit, ID: "1"}
	byKey := e.named(shared)

	got, o := e.perform(e.call("g/Req.run"),
		step{abi.OpMemoryMessages, `{"memoryId":"1"}`}, step{abi.OpMemoryMessages, `{` + byKey + `}`},
		step{abi.OpMemoryDefaultID, `{"service":"Req","method":"chat"}`})
	for i := range 2 {
		if m := wantDone[messages](t, got[i:i+1]); m.String() != "1/1 user:U1 2/1 assistant:A1 false" {
			t.Errorf("it reads %s", m)
		}
	}
	if wantDone[imports.Memory](t, got[2:]); len(o.Evicted) != 0 {
		t.Errorf("reading touched: %+v", o.Evicted)
	}
	// Its default histories are its own, and it appends to them as ever.
	c := e.call("g/Req.run")
	own := key(carrel.KindRequest, string(c.Request)+"#Req.chat")
	got, o = e.perform(c, step{abi.OpMemoryDefaultID, `{"service":"Req","method":"chat"}`}, e.appends(own, "U", "A"))
	if wantDone[imports.Memory](t, got); len(o.Evicted) != 1 || o.Evicted[0].Key != own {
		t.Errorf("evicted %+v", o.Evicted)
	}

	c = e.call("ungranted/Req.run")
	got, _ = e.perform(c, step{abi.OpMemoryMessages, `{` + byKey + `}`}, step{abi.OpMemoryDelete, `{` + byKey + `}`}, step{abi.OpMemoryMessages, `{"memoryId":"1"}`})
	wantRefused(t, got[0], abi.ENOENT, abi.NotFound, "no such thing")
	wantRefused(t, got[1], abi.ENOENT, abi.NotFound, "no such thing")
	if got[2] != (line{0, `{"messages":[],"more":false}`}) {
		t.Errorf("it reads %+v", got[2])
	}
	got, _ = e.perform(e.call("g/Req.run"), step{abi.OpMemoryDelete, `{"memoryId":"1"}`})
	if got[0] != (line{0, `{"deleted":true}`}) {
		t.Errorf("got %+v", got[0])
	}
	e.wantStored("foreign", "user:U assistant:A")
}

// In a shared namespace everybody can tell what a plugin appended from what a
// model answered, and nobody's system message can be changed by appending.
func TestAnAppendToASharedNamespace(t *testing.T) {
	e := newSharedEnv(t)
	e.run(e.call("h/App.chat", "id", "1", "msg", "U1"), "A1")
	shared := carrel.MemoryKey{Tenant: acme, Namespace: memory.Shared(pool), Kind: carrel.KindExplicit, ID: "1"}
	const turn = `{"role":"user","content":"U"},{"role":"assistant","content":"A"}`
	own := key(carrel.KindExplicit, "mine")
	own.Namespace = "ungranted"

	got, o := e.perform(e.call("g/App.run"),
		step{abi.OpMemoryAppend, `{"memoryId":"1","messages":[` + turn + `]}`},
		step{abi.OpMemoryAppend, `{` + e.named(shared) + `,"messages":[` + turn + `]}`},
		step{abi.OpMemoryAppend, `{"memoryId":"1","messages":[{"role":"system","content":"S"},` + turn + `]}`},
		step{abi.OpMemoryAppend, `{"memoryId":"1","messages":[{"role":"user","content":"U","origin":"model"},{"role":"assistant","content":"A"}]}`})
	want := imports.Memory{MemoryID: "1", Key: e.scopes.Handle(shared).String()}
	for i := range 2 {
		if m := wantDone[imports.Memory](t, got[i:i+1]); m != want {
			t.Errorf("got %+v, want %+v", m, want)
		}
	}
	wantRefused(t, got[2], abi.EINVAL, abi.InvalidParams, "whole turn")
	wantRefused(t, got[3], abi.EINVAL, abi.BadRequest, "origin")
	if len(o.Evicted) != 0 {
		t.Errorf("evicted %+v", o.Evicted)
	}

	got, _ = e.perform(e.call("h/Req.run"), step{abi.OpMemoryMessages, `{"memoryId":"1"}`})
	all := wantDone[messages](t, got)
	var origins []string
	for _, m := range all.Messages {
		origins = append(origins, m.Origin)
	}
	if all.String() != "1/1 user:U1 2/1 assistant:A1 3/2 user:U 4/2 assistant:A 5/3 user:U 6/3 assistant:A false" ||
		!slices.Equal(origins, []string{"", "", "plugin", "plugin", "plugin", "plugin"}) {
		t.Errorf("it holds %s of %q", all, origins)
	}

	got, _ = e.perform(e.call("ungranted/App.run"), step{abi.OpMemoryAppend, `{"memoryId":"mine","messages":[` + turn + `]}`}, e.reads(own, ""))
	if m := wantDone[messages](t, got); len(m.Messages) != 2 || m.Messages[0].Origin != "" {
		t.Errorf("its own namespace holds %+v", m)
	}
	// A request-scoped service that appends ends the history, as one that chats does.
	_, o = e.perform(e.call("g/Req.run"), step{abi.OpMemoryAppend, `{"memoryId":"1","messages":[` + turn + `]}`})
	if len(o.Evicted) != 1 || o.Evicted[0].Key != shared || o.Evicted[0].Messages != 8 {
		t.Errorf("evicted %+v", o.Evicted)
	}
}

func TestTheListOfASharedNamespace(t *testing.T) {
	e := newSharedEnv(t)
	type page struct {
		Memories []imports.Listed
		Next     string
	}
	list := func(plugin, request string) (ids []string, next string) {
		t.Helper()
		got, _ := e.perform(e.call(plugin+"/Req.run"), step{abi.OpMemoryList, request})
		p := wantDone[page](t, got)
		for _, m := range p.Memories {
			ids = append(ids, m.MemoryID)
		}
		return ids, p.Next
	}
	for i, plugin := range []string{"g", "ungranted", "h", "ungranted", "g", "h"} {
		e.run(e.call(plugin+"/App.chat", "id", fmt.Sprintf("%s%d", plugin, i), "msg", "U"), "A")
	}
	all := []string{"g0", "h2", "g4", "h5"}
	for _, plugin := range []string{"g", "h"} {
		if got, next := list(plugin, `{}`); !slices.Equal(got, all) || next != "" {
			t.Errorf("%s lists %q, next %q", plugin, got, next)
		}
	}
	var paged []string
	for next := ""; ; {
		var got []string
		if got, next = list("g", fmt.Sprintf(`{"limit":1,"after":%q}`, next)); len(got) > 1 {
			t.Fatalf("a page of one holds %q", got)
		}
		if paged = append(paged, got...); next == "" || len(paged) > len(all) {
			break
		}
	}
	if !slices.Equal(paged, all) {
		t.Errorf("page by page it lists %q", paged)
	}
	if got, _ := list("g", `{"prefix":"h"}`); !slices.Equal(got, []string{"h2", "h5"}) {
		t.Errorf("of the prefix it lists %q", got)
	}
	if got, _ := list("ungranted", `{}`); !slices.Equal(got, []string{"ungranted1", "ungranted3"}) {
		t.Errorf("without a grant it lists %q", got)
	}
	e.grant(acme, "g", "") // what it made in the shared namespace is no longer its to see
	if got, next := list("g", `{}`); len(got) > 0 || next != "" {
		t.Errorf("after the grant it lists %q", got)
	}
}

// A grant that changes while a request runs counts from the next request on.
func TestARequestSeesOneGrant(t *testing.T) {
	e := newSharedEnv(t)
	e.run(e.call("h/App.chat", "id", "1", "msg", "U1"), "A1")
	done := e.start(t.Context(), e.raw("g/Req.run", script(
		invokes("App", "chat", `{"id":"1","msg":"U2"}`), invokes("App", "chat", `{"id":"1","msg":"U3"}`))))
	first := <-e.model.calls
	e.grant(acme, "g", "")
	first.say("A2")
	second := <-e.model.calls
	second.say("A3")
	if o := <-done; o.err != nil {
		t.Fatal(o.err)
	}
	if !strings.HasPrefix(first.sent(), "user:U1 ") || second.sent() != "user:U1 assistant:A1 user:U2 assistant:A2 user:U3" {
		t.Errorf("sent %q, then %q", first.sent(), second.sent())
	}
	e.wantSent(e.call("g/App.chat", "id", "1", "msg", "U"), "A", "user:U")
}
