package invoke_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/imports"
	"github.com/carrelhost/carrel/store"
)

// key returns a memory key of the plugin g in acme.
func key(kind carrel.KeyKind, id string) carrel.MemoryKey {
	return carrel.MemoryKey{Tenant: acme, Namespace: "g", Kind: kind, ID: carrel.MemoryID(id)}
}

// named names a history: by its explicit id, or by its key if it is another's.
func (e *env) named(k carrel.MemoryKey) string {
	if k.Kind == carrel.KindExplicit && k.Namespace == "g" && k.Tenant == acme {
		return `"memoryId":` + text(string(k.ID))
	}
	return `"key":` + text(e.scopes.Handle(k).String())
}

func (e *env) appends(k carrel.MemoryKey, user, assistant string) step {
	return step{abi.OpMemoryAppend, fmt.Sprintf(`{%s,"messages":[{"role":"user","content":%s},{"role":"assistant","content":%s}]}`,
		e.named(k), text(user), text(assistant))}
}

func (e *env) reads(k carrel.MemoryKey, more string) step {
	return step{abi.OpMemoryMessages, `{` + e.named(k) + more + `}`}
}

func (e *env) deletes(k carrel.MemoryKey) step {
	return step{abi.OpMemoryDelete, `{` + e.named(k) + `}`}
}

func (e *env) deletesTurn(k carrel.MemoryKey, turn int64) step {
	return step{abi.OpMemoryDelete, fmt.Sprintf(`{%s,"turn":%d}`, e.named(k), turn)}
}

// messages is the result of memory.messages.
type messages struct {
	Messages []imports.Message
	More     bool
}

// String shows messages as "role:content", with seqs.
func (m messages) String() string {
	var out []string
	for _, one := range m.Messages {
		out = append(out, fmt.Sprintf("%d/%d %s:%s", one.Seq, one.Turn, one.Role, one.Content))
	}
	return fmt.Sprintf("%s %t", strings.Join(out, " "), m.More)
}

func TestADefaultIDCanBeUsedBeforeItHasAHistory(t *testing.T) {
	e := newGuestEnv(t, nil)
	c := e.call("g/Req.run")
	k := key(carrel.KindRequest, string(c.Request)+"#Req.chat")
	got, o := e.perform(c,
		step{abi.OpMemoryDefaultID, `{"service":"Req","method":"chat"}`},
		e.reads(k, ""), e.appends(k, "U0", "A0"), invokes("Req", "chat", `{"msg":"U1"}`), e.reads(k, ""))
	want := imports.Memory{MemoryID: string(k.ID), Key: e.scopes.Handle(k).String()}
	if m := wantDone[imports.Memory](t, got[:1]); m != want {
		t.Errorf("got %+v, want %+v", m, want)
	}
	if got[1].body != `{"messages":[],"more":false}` {
		t.Errorf("a history that is not there is %s", got[1].body)
	}
	if m := wantDone[imports.Memory](t, got[2:3]); m != want {
		t.Errorf("got %+v, want %+v", m, want)
	}
	if all := wantDone[messages](t, got); all.String() != "1/1 user:U0 2/1 assistant:A0 3/2 user:U1 4/2 assistant:A1 false" {
		t.Errorf("got %s", all)
	}
	if len(o.Evicted) != 1 || o.Evicted[0].Key != k || o.Evicted[0].Messages != 4 {
		t.Errorf("evicted %+v", o.Evicted)
	}
	e.wantStored()

	// The key was this request's: the next one cannot name it any more.
	got, _ = e.perform(e.call("g/Req.run"), e.reads(k, ""), e.appends(k, "U", "A"), e.deletes(k))
	for _, l := range got {
		wantRefused(t, l, abi.ENOENT, abi.NotFound, "")
	}
	e.wantStored()
}

func TestDefaultIDsThatAreNone(t *testing.T) {
	e := newGuestEnv(t, nil)
	ask := func(service, method string) step {
		return step{abi.OpMemoryDefaultID, fmt.Sprintf(`{"service":%q,"method":%q}`, service, method)}
	}
	got, _ := e.perform(e.call("g/Req.run"), ask("Req", "run"), ask("Req", "none"), ask("None", "chat"), ask("App", "chat"), ask("", "chat"), ask("Req", "a.b"))
	for i, want := range []struct {
		errno abi.Errno
		code  abi.Code
	}{
		{abi.ENOENT, abi.NotFound}, {abi.ENOENT, abi.NotFound}, {abi.ENOENT, abi.NotFound},
		{abi.EINVAL, abi.DefaultIDLeak}, {abi.EINVAL, abi.BadRequest}, {abi.EINVAL, abi.BadRequest},
	} {
		wantRefused(t, got[i], want.errno, want.code, "")
	}
}

// Whose scope it is that an append touches is the service's that the guest
// runs in.
func TestAnAppendTouchesForTheServiceOfTheGuest(t *testing.T) {
	for name, tc := range map[string]struct {
		service string
		after   string // the request; "" = gone
	}{
		"a request-scoped service's ends with the request": {"Req", ""},
		"an application-scoped service's stays":            {"App", "user:U0 assistant:A0 user:U1 assistant:A1"},
		"a session-scoped service's stays until its end":   {"Ses", "user:U0 assistant:A0 user:U1 assistant:A1"},
	} {
		t.Run(name, func(t *testing.T) {
			e := newGuestEnv(t, nil)
			k := key(carrel.KindExplicit, "1")
			e.perform(e.call("g/App.run"), e.appends(k, "U0", "A0"))
			c := e.call("g/" + tc.service + ".run")
			socket := e.socket()
			c.Socket = socket
			got, o := e.perform(c, e.appends(k, "U1", "A1"))
			if m := wantDone[imports.Memory](t, got); m != (imports.Memory{MemoryID: "1", Key: e.scopes.Handle(k).String()}) {
				t.Errorf("got %+v", m)
			}
			if tc.after == "" {
				if len(o.Evicted) != 1 || o.Evicted[0].Key != k {
					t.Errorf("evicted %+v", o.Evicted)
				}
				e.wantStored()
				return
			}
			if len(o.Evicted) != 0 {
				t.Errorf("evicted %+v", o.Evicted)
			}
			e.wantStored("1", tc.after)
			if closed := socket.Close(t.Context()); len(closed.Evicted) != map[string]int{"Ses": 1}[tc.service] {
				t.Errorf("the session's end evicted %+v", closed)
			}
		})
	}
}

// leaky is a plugin that accepts default ids in application scopes.
func (e *env) leaky() { e.upload(acme, guestModule(guestManifest("g", `,"allowDefaultIdLeak":true`))) }

// A request's own key that an application-scoped service wrote to first ends
// with the request all the same, if a request-scoped service uses it: the
// smallest scope wins.
func TestTheRequestEndsWhatALongerScopeBegan(t *testing.T) {
	for name, fails := range map[string]bool{"the call succeeds": false, "the call fails": true} {
		t.Run(name, func(t *testing.T) {
			e := newGuestEnv(t, nil)
			e.leaky()
			c := e.call("g/App.run")
			k := key(carrel.KindRequest, string(c.Request)+"#Req.chat")
			c.Args = e.raw("g/App.run", script(
				step{abi.OpMemoryDefaultID, `{"service":"Req","method":"chat"}`}, e.appends(k, "U0", "A0"), invokes("Req", "chat", `{"msg":"U1"}`))).Args
			done := e.start(t.Context(), c)
			m := <-e.model.calls
			if m.sent() != "user:U0 assistant:A0 user:U1" {
				t.Errorf("sent %q", m.sent())
			}
			if fails {
				m.fail(carrel.Fail("test", abi.ModelFailed, "not well"))
			} else {
				m.say("A1")
			}
			o := <-done
			if o.err != nil {
				t.Fatal(o.err)
			}
			if got := lines(t, o.Output); fails {
				wantRefused(t, got[2], abi.EIO, abi.ModelFailed, "not well")
			}
			if len(o.Evicted) != 1 || o.Evicted[0].Key != k {
				t.Errorf("evicted %+v", o.Evicted)
			}
			e.wantStored()
		})
	}
}

// What a request left behind under its default id, another one's
// request-scoped service ends by using it.
func TestTheKeyOfARequestThatEnded(t *testing.T) {
	e := newGuestEnv(t, nil)
	e.leaky()
	c := e.call("g/App.run")
	k := key(carrel.KindRequest, string(c.Request)+"#Req.chat")
	e.perform(c, step{abi.OpMemoryDefaultID, `{"service":"Req","method":"chat"}`}, e.appends(k, "U0", "A0"))
	e.wantStored(string(k.ID), "user:U0 assistant:A0")
	got, o := e.perform(e.call("g/Req.run"), e.appends(k, "U1", "A1"), e.reads(k, ""))
	if all := wantDone[messages](t, got); len(all.Messages) != 4 || len(o.Evicted) != 1 || o.Evicted[0].Key != k {
		t.Errorf("got %s, evicted %+v", all, o.Evicted)
	}
	e.wantStored()
}

// What an application-scoped service appended to an id that ends with the
// request or the session, nothing would ever end.
func TestAnAppendThatWouldLeak(t *testing.T) {
	e := newGuestEnv(t, nil)
	c := e.call("g/App.run")
	k := key(carrel.KindRequest, string(c.Request)+"#Req.chat")
	got, _ := e.perform(c, step{abi.OpMemoryDefaultID, `{"service":"Req","method":"chat"}`}, e.appends(k, "U", "A"))
	wantRefused(t, got[1], abi.EINVAL, abi.DefaultIDLeak, "allowDefaultIdLeak")
	socket := e.socket()
	c = e.call("g/App.run")
	c.Socket = socket
	k = key(carrel.KindSession, string(socket.ID())+"#Ses.chat")
	got, _ = e.perform(c, step{abi.OpMemoryDefaultID, `{"service":"Ses","method":"chat"}`}, e.appends(k, "U", "A"))
	wantRefused(t, got[1], abi.EINVAL, abi.DefaultIDLeak, "session")
	e.wantStored()
	c = e.call("g/Ses.run")
	c.Socket = socket
	got, _ = e.perform(c, step{abi.OpMemoryDefaultID, `{"service":"Ses","method":"chat"}`}, e.appends(k, "U", "A"))
	wantDone[imports.Memory](t, got)
	if closed := socket.Close(t.Context()); len(closed.Evicted) != 1 || closed.Evicted[0].Key != k {
		t.Errorf("the session's end evicted %+v", closed)
	}
}

func TestReadingTouchesNothing(t *testing.T) {
	e := newGuestEnv(t, nil)
	k := key(carrel.KindExplicit, "1")
	e.perform(e.call("g/App.run"), e.appends(k, "U", "A"))
	before, err := e.disk.ListHistories(t.Context(), store.HistoryFilter{Tenant: acme, Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	reader := e.call("g/Req.run")
	reader.Caller.Key = "key_2"
	_, o := e.perform(reader, e.reads(k, ""), step{abi.OpMemoryMessages, `{"key":` + text(e.scopes.Handle(k).String()) + `}`},
		step{abi.OpMemoryList, `{}`}, step{abi.OpMemoryDefaultID, `{"service":"Req","method":"chat"}`}, e.reads(key(carrel.KindExplicit, "none"), ""))
	after, err := e.disk.ListHistories(t.Context(), store.HistoryFilter{Tenant: acme, Limit: 10})
	if err != nil || len(o.Evicted) != 0 || !slices.Equal(before, after) {
		t.Errorf("evicted %+v; %+v became %+v, %v", o.Evicted, before, after, err)
	}
	by := store.Toucher{Key: "key_2"}
	if seen, err := e.disk.ListHistories(t.Context(), store.HistoryFilter{Tenant: acme, TouchedBy: &by, Limit: 10}); err != nil || len(seen) != 0 {
		t.Errorf("the reader touched %+v, %v", seen, err)
	}
	e.wantStored("1", "user:U assistant:A")
}

func TestPagesOfMessages(t *testing.T) {
	e := newGuestEnv(t, nil)
	k := carrel.MemoryKey{Tenant: acme, Namespace: "g", Kind: carrel.KindExplicit, ID: "1"}
	var turns []step
	for i := range 40 {
		turns = append(turns, e.appends(k, fmt.Sprintf("U%d", i), fmt.Sprintf("A%d", i)))
	}
	e.perform(e.call("g/App.run"), turns...)
	history, err := e.disk.View(t.Context(), k, store.ViewLimit{Messages: 0})
	if err != nil {
		t.Fatal(err)
	}
	system := "S"
	app, err := e.catalog.Plugin(t.Context(), acme, "g")
	if err != nil {
		t.Fatal(err)
	}
	touch := store.Touch{Scope: store.ScopeInstance{ID: app.Scope, Tenant: acme, Scope: carrel.ScopeApplication, Plugin: "g"}, Key: k, Handle: e.scopes.Handle(k), Plugin: "g"}
	if _, err := e.disk.Commit(t.Context(), store.Commit{Touch: touch, Generation: history.Generation, System: &system}); err != nil {
		t.Fatal(err)
	}
	got, _ := e.perform(e.call("g/Req.run"), e.reads(k, `,"limit":1`), e.reads(k, `,"limit":1,"after":0`), e.reads(k, `,"limit":2,"after":79`), e.reads(k, `,"after":80`), e.reads(k, ""))
	for i, want := range []string{"0/0 system:S true", "1/1 user:U0 true", "80/40 assistant:A39 false", " false"} {
		if page := wantDone[messages](t, got[i:i+1]); page.String() != want {
			t.Errorf("page %d is %s, want %s", i, page, want)
		}
	}
	if all := wantDone[messages](t, got); len(all.Messages) != 81 || all.More {
		t.Errorf("all are %d, %t", len(all.Messages), all.More)
	}
}

// A page ends before a large history is in memory as a whole, and the pages
// together are the history.
func TestPagesOfLargeMessages(t *testing.T) {
	e := newGuestEnv(t, nil)
	k := key(carrel.KindExplicit, "1")
	large := strings.Repeat("x", 400<<10)
	for range 6 {
		e.perform(e.call("g/App.run"), e.appends(k, large, large))
	}
	var pages []int
	seq := int64(0)
	for more, after := true, ""; more; after = fmt.Sprintf(`,"after":%d`, seq) {
		got, _ := e.perform(e.call("g/Req.run"), e.reads(k, after))
		page := wantDone[messages](t, got)
		for _, m := range page.Messages {
			if seq++; m.Seq != seq || m.Content != large {
				t.Fatalf("message %d of %d bytes follows %d", m.Seq, len(m.Content), seq-1)
			}
		}
		pages, more = append(pages, len(page.Messages)), page.More
	}
	if !slices.Equal(pages, []int{5, 5, 2}) {
		t.Errorf("the pages hold %v", pages)
	}
}

// witness records which histories requests use or read.
type witness struct {
	mu   sync.Mutex // guards what follows
	seen map[carrel.Handle]carrel.RequestID
	cut  int
}

// touched reports whether a request used or read a history since it was asked
// last.
func (w *witness) touched(h carrel.Handle) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, ok := w.seen[h]
	delete(w.seen, h)
	return ok
}

// cuts returns how often a turn was deleted.
func (w *witness) cuts() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cut
}

func (w *witness) Touching(r carrel.RequestID, h carrel.Handle) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen[h] = r
}

func (w *witness) Cut(carrel.Handle) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut++
}

func (*witness) Evicted(carrel.ScopeID, []carrel.Eviction) {}
func (*witness) Lost()                                     {}
func (*witness) Erased(carrel.TenantID, carrel.Subject)    {}

// An answer may repeat what a guest has read, so that whoever keeps answers
// has to know, although reading touches nothing.
func TestWhatAGuestReadsIsToldToWhoeverKeepsAnswers(t *testing.T) {
	e := newGuestEnv(t, nil)
	w := &witness{seen: map[carrel.Handle]carrel.RequestID{}}
	e.scopes.Watch(w)
	c := e.call("g/Req.run")
	k := key(carrel.KindExplicit, "1")
	if got, _ := e.perform(c, e.reads(k, "")); got[0].body != `{"messages":[],"more":false}` {
		t.Errorf("got %s", got[0].body)
	}
	if r := w.seen[e.scopes.Handle(k)]; r != c.Request {
		t.Errorf("the reading is told of request %q, want %q", r, c.Request)
	}
}
