package invoke_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/imports"
	"github.com/carrelhost/carrel/host/memory"
	"github.com/carrelhost/carrel/store"
)

func TestAGuestSeesItsOwnNamespaceOnly(t *testing.T) {
	e := newGuestEnv(t, nil)
	e.upload(acme, guestModule(guestManifest("h", "")))
	e.upload(other, guestModule(guestManifest("g", "")))
	e.run(e.call("p/App.chat", "id", "1", "msg", "p's"), "A")
	e.run(theirs(e.call("g/App.chat", "id", "1", "msg", "theirs")), "A")
	ps := carrel.MemoryKey{Tenant: acme, Namespace: "p", Kind: carrel.KindExplicit, ID: "1"}
	another := carrel.MemoryKey{Tenant: other, Namespace: "g", Kind: carrel.KindExplicit, ID: "1"}
	got, _ := e.perform(e.call("g/Req.run"),
		e.reads(ps, ""), e.appends(ps, "U", "A"), e.deletes(ps), e.reads(another, ""), e.appends(another, "U", "A"), e.deletes(another),
		step{abi.OpMemoryMessages, `{"key":"no handle"}`}, step{abi.OpMemoryDelete, `{"key":"AAAAAAAAAAAAAAAAAAAAAA"}`})
	for _, l := range got {
		wantRefused(t, l, abi.ENOENT, abi.NotFound, "no such thing")
	}
	got, _ = e.perform(e.call("g/Req.run"), step{abi.OpMemoryMessages, `{"memoryId":"1"}`}, step{abi.OpMemoryDelete, `{"memoryId":"1"}`}, step{abi.OpMemoryList, `{}`})
	for i, want := range []string{`{"messages":[],"more":false}`, `{"deleted":false}`, `{"memories":[]}`} {
		if got[i] != (line{0, want}) {
			t.Errorf("got %+v, want %s", got[i], want)
		}
	}
	// Within one request another plugin's keys are unknown as well, although
	// the request has made one.
	if err := e.disk.SetGrant(t.Context(), acme, "call", store.Grant{Call: []string{"g/*"}}); err != nil {
		t.Fatal(err)
	}
	e.upload(acme, guestModule(guestManifest("call", `,"capabilities":{"call":["g/*"]}`)))
	c := e.call("call/Req.run")
	k := key(carrel.KindRequest, string(c.Request)+"#Req.chat")
	got, _ = e.perform(c,
		step{abi.OpInvoke, `{"plugin":"g","service":"Req","method":"run","args":` + script(step{abi.OpMemoryDefaultID, `{"service":"Req","method":"chat"}`}) + `}`},
		e.reads(k, ""), e.appends(k, "U", "A"))
	wantDone[imports.Invoked](t, got[:1])
	wantRefused(t, got[1], abi.ENOENT, abi.NotFound, "no such thing")
	wantRefused(t, got[2], abi.ENOENT, abi.NotFound, "no such thing")
	e.wantStored("1", "system:You are nice user:p's assistant:A")
}

func TestTheListOfAGuest(t *testing.T) {
	e := newGuestEnv(t, nil)
	e.run(e.call("p/App.chat", "id", "a1", "msg", "p's"), "A")
	e.perform(e.call("g/App.run"), e.appends(key(carrel.KindExplicit, "a1"), "U", "A"), e.appends(key(carrel.KindExplicit, "a2"), "UU", "A"), e.appends(key(carrel.KindExplicit, "b"), "U", "A"))
	type page struct {
		Memories []imports.Listed
		Next     string
	}
	show := func(p page) string {
		var out []string
		for _, m := range p.Memories {
			out = append(out, fmt.Sprintf("%s %s %d %d %t", m.MemoryID, m.Kind, m.Messages, m.Bytes, m.Key == e.scopes.Handle(key(carrel.KindExplicit, m.MemoryID)).String()))
		}
		return strings.Join(out, ", ")
	}
	got, _ := e.perform(e.call("g/Req.run"), step{abi.OpMemoryList, `{"limit":2}`}, step{abi.OpMemoryList, `{"prefix":"a"}`}, step{abi.OpMemoryList, `{"after":"x"}`})
	first := wantDone[page](t, got[:1])
	if show(first) != "a1 explicit 2 2 true, a2 explicit 2 3 true" || first.Next == "" {
		t.Errorf("got %s, next %q", show(first), first.Next)
	}
	if some := wantDone[page](t, got[1:2]); show(some) != show(first) || some.Next != "" {
		t.Errorf("got %s, next %q", show(some), some.Next)
	}
	wantRefused(t, got[2], abi.EINVAL, abi.InvalidParams, "after")
	got, _ = e.perform(e.call("g/Req.run"), step{abi.OpMemoryList, fmt.Sprintf(`{"limit":2,"after":%q}`, first.Next)})
	if second := wantDone[page](t, got); show(second) != "b explicit 2 2 true" || second.Next != "" {
		t.Errorf("got %s, next %q", show(second), second.Next)
	}
}

func TestAppendsThatAreNoWholeTurns(t *testing.T) {
	e := newGuestEnv(t, nil)
	e.perform(e.call("g/App.run"), e.appends(key(carrel.KindExplicit, "1"), "U", "A"))
	for name, turn := range map[string]string{
		"nothing":                         ``,
		"a question alone":                `{"role":"user","content":"U"}`,
		"an answer alone":                 `{"role":"assistant","content":"A"}`,
		"an answer first":                 `{"role":"assistant","content":"A"},{"role":"user","content":"U"}`,
		"two turns":                       `{"role":"user","content":"U"},{"role":"assistant","content":"A"},{"role":"user","content":"U"},{"role":"assistant","content":"A"}`,
		"a system message":                `{"role":"system","content":"S"},{"role":"user","content":"U"},{"role":"assistant","content":"A"}`,
		"a call without its result":       `{"role":"user","content":"U"},{"role":"assistant","toolCalls":[{"id":"1","name":"f","arguments":{}}]},{"role":"assistant","content":"A"}`,
		"a result without its call":       `{"role":"user","content":"U"},{"role":"tool","toolCallId":"1","content":"r"},{"role":"assistant","content":"A"}`,
		"a result of another call":        `{"role":"user","content":"U"},{"role":"assistant","toolCalls":[{"id":"1","name":"f","arguments":{}}]},{"role":"tool","toolCallId":"2","content":"r"},{"role":"assistant","content":"A"}`,
		"tool calls at the end":           `{"role":"user","content":"U"},{"role":"assistant","toolCalls":[{"id":"1","name":"f","arguments":{}}]}`,
		"a role that nobody knows":        `{"role":"user","content":"U"},{"role":"developer","content":"A"}`,
		"tool calls of the user":          `{"role":"user","content":"U","toolCalls":[{"id":"1","name":"f","arguments":{}}]},{"role":"assistant","content":"A"}`,
		"two calls of one id":             `{"role":"user","content":"U"},{"role":"assistant","toolCalls":[{"id":"1","name":"f","arguments":{}},{"id":"1","name":"f","arguments":{}}]},{"role":"tool","toolCallId":"1","content":"r"},{"role":"assistant","content":"A"}`,
		"the result of a call in between": `{"role":"user","content":"U"},{"role":"assistant","content":"A"},{"role":"tool","toolCallId":"1","content":"r"},{"role":"assistant","content":"A"}`,
	} {
		t.Run(name, func(t *testing.T) {
			got, o := e.perform(e.call("g/Req.run"), step{abi.OpMemoryAppend, `{"memoryId":"1","messages":[` + turn + `]}`})
			wantRefused(t, got[0], abi.EINVAL, abi.InvalidParams, "whole turn")
			if len(o.Evicted) != 0 {
				t.Errorf("the refused append touched: %+v", o.Evicted)
			}
			e.wantStored("1", "user:U assistant:A")
		})
	}
}

func TestAnAppendOfToolCalls(t *testing.T) {
	e := newGuestEnv(t, nil)
	k := key(carrel.KindExplicit, "1")
	got, _ := e.perform(e.call("g/App.run"), step{abi.OpMemoryAppend, `{"memoryId":"1","messages":[{"role":"user","content":"U"},` +
		`{"role":"assistant","toolCalls":[{"id":"a","name":"f","arguments":{"x":1}},{"id":"b","name":"g","arguments":{}}]},` +
		`{"role":"tool","toolCallId":"a","content":"ra"},{"role":"tool","toolCallId":"b","content":"rb"},{"role":"assistant","content":"A"}]}`}, e.reads(k, ""))
	all := wantDone[messages](t, got)
	if all.String() != "1/1 user:U 2/1 assistant: 3/1 tool:ra 4/1 tool:rb 5/1 assistant:A false" {
		t.Fatalf("got %s", all)
	}
	calls := all.Messages[1].ToolCalls
	if len(calls) != 2 || calls[0].ID != "a" || calls[0].Name != "f" || string(calls[0].Args) != `{"x":1}` || all.Messages[3].ToolCallID != "b" {
		t.Errorf("got %+v", all.Messages)
	}
}

func TestADeletionByAGuest(t *testing.T) {
	e := newGuestEnv(t, nil)
	k := key(carrel.KindExplicit, "1")
	got, o := e.perform(e.call("g/App.run"), e.appends(k, "U", "A"), e.deletes(k), e.deletes(k), e.appends(k, "V", "B"),
		step{abi.OpMemoryDelete, `{"key":` + text(e.scopes.Handle(k).String()) + `}`})
	wantDone[struct{}](t, got)
	if got[1].body != `{"deleted":true}` || got[2].body != `{"deleted":false}` || got[4].body != `{"deleted":true}` || len(o.Evicted) != 0 {
		t.Errorf("got %+v, evicted %+v", got, o.Evicted)
	}
	e.wantStored()
}

// One turn goes, and the rest stays as it is: its seqs, its turns' numbers and
// what it lives as long as.
func TestADeletionOfOneTurnByAGuest(t *testing.T) {
	e := newGuestEnv(t, nil)
	w := &witness{seen: map[carrel.Handle]carrel.RequestID{}}
	e.scopes.Watch(w)
	k, none := key(carrel.KindExplicit, "1"), key(carrel.KindExplicit, "none")
	e.perform(e.call("g/App.run"), e.appends(k, "U1", "A1"), e.appends(k, "U2", "A2"), e.appends(k, "U3", "A3"))
	w.touched(e.scopes.Handle(k))
	before, err := e.disk.History(t.Context(), acme, e.scopes.Handle(k), nil, store.Cutoff{})
	if err != nil {
		t.Fatal(err)
	}
	byKey := step{abi.OpMemoryDelete, `{"key":` + text(e.scopes.Handle(k).String()) + `,"turn":3}`}
	got, o := e.perform(e.call("g/Req.run"), e.deletesTurn(k, 2), e.deletesTurn(k, 2), byKey, e.deletesTurn(k, 9), e.deletesTurn(none, 1), e.deletesTurn(k, 0))
	for i, want := range []string{`{"deleted":true}`, `{"deleted":false}`, `{"deleted":true}`, `{"deleted":false}`, `{"deleted":false}`} {
		if got[i] != (line{0, want}) {
			t.Errorf("deletion %d is answered %+v, want %s", i, got[i], want)
		}
	}
	wantRefused(t, got[5], abi.EINVAL, abi.InvalidParams, "1 or more")
	if len(o.Evicted) != 0 || w.cuts() != 2 || w.touched(before.Handle) {
		t.Errorf("evicted %+v, cut %d times", o.Evicted, w.cuts())
	}
	after, err := e.disk.History(t.Context(), acme, before.Handle, nil, store.Cutoff{})
	before.Messages, before.Bytes = 2, int64(len("U1A1"))
	if err != nil || after != before {
		t.Errorf("the history is %+v, want %+v, %v", after, before, err)
	}
	e.wantStored("1", "user:U1 assistant:A1")
	got, _ = e.perform(e.call("g/App.run"), e.deletesTurn(k, 1), e.appends(k, "U4", "A4"), e.reads(k, ""))
	if all := wantDone[messages](t, got); all.String() != "7/4 user:U4 8/4 assistant:A4 false" {
		t.Errorf("it goes on as %s", all)
	}
	e.wantStored("1", "user:U4 assistant:A4")
}

// A plugin cannot reach into another one's histories, but all that share a
// namespace may delete what is in it.
func TestWhoseTurnAGuestDeletes(t *testing.T) {
	e := newSharedEnv(t)
	e.run(e.call("h/App.chat", "id", "1", "msg", "U1"), "A1")
	e.run(e.call("h/App.chat", "id", "1", "msg", "U2"), "A2")
	e.run(e.call("ungranted/App.chat", "id", "1", "msg", "U"), "A")
	shared := carrel.MemoryKey{Tenant: acme, Namespace: memory.Shared(pool), Kind: carrel.KindExplicit, ID: "1"}
	got, _ := e.perform(e.call("ungranted/Req.run"), e.deletesTurn(shared, 1), step{abi.OpMemoryDelete, `{"memoryId":"1","turn":2}`})
	wantRefused(t, got[0], abi.ENOENT, abi.NotFound, "no such thing")
	if got[1] != (line{0, `{"deleted":false}`}) {
		t.Errorf("of its own history, which has one turn: %+v", got[1])
	}
	got, o := e.perform(e.call("g/Req.run"), step{abi.OpMemoryDelete, `{"memoryId":"1","turn":1}`}, e.reads(shared, ""))
	if all := wantDone[messages](t, got); got[0].body != `{"deleted":true}` || all.String() != "3/2 user:U2 4/2 assistant:A2 false" || len(o.Evicted) != 0 {
		t.Errorf("got %+v, evicted %+v", got, o.Evicted)
	}
	e.wantSent(e.call("h/App.chat", "id", "1", "msg", "U3"), "A3", "user:U2 assistant:A2 user:U3")
}

// Append and delete wait for the turn that runs; a guest that holds nothing
// waits for anybody.
func TestAppendsAndDeletionsWaitForTheTurn(t *testing.T) {
	for name, tc := range map[string]struct {
		do    func(e *env, k carrel.MemoryKey) step
		after []string
	}{
		"an append":              {func(e *env, k carrel.MemoryKey) step { return e.appends(k, "U2", "A2") }, []string{"1", "user:U1 assistant:A1 user:U2 assistant:A2"}},
		"a deletion":             {func(e *env, k carrel.MemoryKey) step { return e.deletes(k) }, nil},
		"a deletion of the turn": {func(e *env, k carrel.MemoryKey) step { return e.deletesTurn(k, 1) }, []string{"1", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := newGuestEnv(t, nil)
				held, first := e.hold(e.call("g/App.chat", "id", "1", "msg", "U1"))
				second := e.start(t.Context(), e.raw("g/App.run", script(tc.do(e, key(carrel.KindExplicit, "1")))))
				synctest.Wait()
				select {
				case o := <-second:
					t.Fatalf("it did not wait: %+v", o)
				default:
				}
				held.say("A1")
				if o := <-first; o.err != nil {
					t.Error(o.err)
				}
				o := <-second
				if o.err != nil || lines(t, o.Output)[0].errno != 0 {
					t.Errorf("got %+v", o)
				}
				e.wantStored(tc.after...)
			})
		})
	}
}

// An inner turn on a key that nobody above holds is let go at its own end; the
// client's own is kept until its request has ended.
func TestAGuestsInnerTurnsAreLetGo(t *testing.T) {
	e := newGuestEnv(t, nil)
	done := e.start(t.Context(), e.raw("g/App.run", script(invokes("App", "chat", `{"id":"1","msg":"U1"}`), invokes("App", "chat", `{"id":"2","msg":"U2"}`))))
	(<-e.model.calls).say("A1")
	inner := <-e.model.calls
	c := e.call("g/App.chat", "id", "1", "msg", "V1")
	c.RejectBusy = true
	between := e.start(t.Context(), c)
	(<-e.model.calls).say("B1")
	if o := <-between; o.err != nil {
		t.Error(o.err)
	}
	inner.say("A2")
	if o := <-done; o.err != nil {
		t.Error(o.err)
	}
	e.wantStored("1", "user:U1 assistant:A1 user:V1 assistant:B1", "2", "user:U2 assistant:A2")
}

func TestTheEndOfTheRequestReachesInnerCalls(t *testing.T) {
	e := newGuestEnv(t, nil)
	ctx, leave := context.WithCancel(t.Context())
	done := e.start(ctx, e.raw("g/Req.run", nested(3, invokes("App", "chat", `{"id":"1","msg":"U"}`))))
	<-e.model.calls
	leave()
	wantError(t, (<-done).err, abi.Canceled, "")
	e.wantStored("1", "") // it was touched; nothing of the turn is there

	c := e.raw("g/Req.run", nested(3, invokes("App", "chat", `{"id":"1","msg":"U"}`)))
	c.Timeout = 1 << 27 // about 0.13 s
	done = e.start(t.Context(), c)
	<-e.model.calls
	wantError(t, (<-done).err, abi.Timeout, "timeout")
	e.wantStored("1", "")
	e.run(e.call("g/App.chat", "id", "1", "msg", "V"), "B") // its turn is free
}
