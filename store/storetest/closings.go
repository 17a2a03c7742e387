package storetest

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/store"
)

// The ends of sessions, of both kinds.
var closingCases = []testCase{
	{"a closed session keeps when and why it closed and what ended with it", closingKept},
	{"a session in which nothing was touched closes all the same", closingEmpty},
	{"closing again changes nothing", closingTwice},
	{"nothing is touched or stored in a session that has closed", closingRefuses},
	{"a key touched in a session and an application ends with the session", closingSmallestScope},
	{"a key touched in a request and a session ends with the request", closingRequestFirst},
	{"a key deleted by hand and made anew dies with the session that touched it", closingAnew},
	{"closed sessions are forgotten an hour, or their idle time, after", closingForgotten},
	{"a WebSocket's session is a scope instance alone", closingSocket},
	{"a WebSocket's session needs a node", closingSocketWithoutNode},
	{"of many sessions at once the quota lets in just its number", closingQuotaRace},
	{"of many closings at once one reports, and that one is kept", closingRace},
	{"what is touched while a session closes ends with it or is refused", closingTouchRace},
}

// socketScope is the scope instance of a WebSocket's own session.
func socketScope(t carrel.TenantID, id carrel.ScopeID, run string) store.ScopeInstance {
	return store.ScopeInstance{ID: id, Tenant: t, Scope: carrel.ScopeSession, Node: run, OpenedAt: noon}
}

func closingKept(t *testing.T, s store.Store) {
	ctx := context.Background()
	createTenants(t, s, acme)
	createSession(t, s, sessionOf(acme, ses))
	createSession(t, s, sessionOf(acme, "ses_2"))
	si := sessionScope(acme, ses)
	other, kept := keyOf(acme, "another session's"), keyOf(acme, "nobody's")
	one := carrel.MemoryKey{Tenant: acme, Namespace: "chat", Kind: carrel.KindSession, Owner: "ada", ID: "ses_1#S.m"}
	two := keyOf(acme, "2")
	say(t, s, si, one, "hello", "hi")
	touch(t, s, si, two)
	say(t, s, sessionScope(acme, "ses_2"), other, "hello", "hi")
	say(t, s, requestScope(acme, "r"), kept, "hello", "hi")
	noError(t, s.UseSession(ctx, acme, ses, noon.Add(time.Minute)))
	want := session(t, s, ses)

	at := storedNoon.Add(time.Hour)
	evictions := []carrel.Eviction{
		{Handle: handleOf(one), Plugin: chat, Key: one, Reason: carrel.ReasonExpired, Scope: carrel.ScopeSession, Instance: si.ID, Messages: 2, Bytes: int64(len("hellohi")), At: at},
		{Handle: handleOf(two), Plugin: chat, Key: two, Reason: carrel.ReasonExpired, Scope: carrel.ScopeSession, Instance: si.ID, At: at},
	}
	wantSame(t, "evictions", must(s.CloseScope(ctx, si.ID, carrel.ReasonExpired, noon.Add(time.Hour)))(t), evictions)
	wantGone(t, s, one)
	wantGone(t, s, two)
	wantContents(t, s, other, "hello", "hi")
	wantContents(t, s, kept, "hello", "hi")
	want.ClosedAt, want.Reason, want.Evicted = at, carrel.ReasonExpired, evictions
	wantSame(t, "closed session", session(t, s, ses), want)
	wantSame(t, "its owner's", must(s.Session(ctx, acme, ses, &ada))(t), want)
	if open := session(t, s, "ses_2"); !open.ClosedAt.IsZero() || open.Reason != "" || open.Evicted != nil {
		t.Errorf("the other session is %+v", open)
	}
	wantSame(t, "open sessions", sessionIDs(must(s.ListSessions(ctx, acme, nil, "", 10))(t)), []carrel.SessionID{"ses_2"})
	wantSame(t, "open scopes", ids(must(s.ListScopes(ctx, carrel.ScopeSession, "", 10))(t)), []carrel.ScopeID{"ses_2"})
}

func closingEmpty(t *testing.T, s store.Store) {
	createTenants(t, s, acme)
	createSession(t, s, sessionOf(acme, ses))
	if evicted := closeScope(t, s, carrel.ScopeID(ses)); len(evicted) != 0 {
		t.Errorf("evicted %v", evicted)
	}
	if got := session(t, s, ses); !got.ClosedAt.Equal(storedNoon) || got.Reason != carrel.ReasonScopeClosed || got.Evicted != nil {
		t.Errorf("the session is %+v", got)
	}
}

func closingTwice(t *testing.T, s store.Store) {
	ctx := context.Background()
	createTenants(t, s, acme)
	createSession(t, s, sessionOf(acme, ses))
	say(t, s, sessionScope(acme, ses), keyOf(acme, "1"), "hello", "hi")
	closeScope(t, s, carrel.ScopeID(ses))
	want := session(t, s, ses)
	say(t, s, requestScope(acme, "r"), keyOf(acme, "1"), "anew", "yes")
	if again := must(s.CloseScope(ctx, carrel.ScopeID(ses), carrel.ReasonExpired, noon.Add(time.Hour)))(t); len(again) != 0 {
		t.Errorf("closing again evicted %v", again)
	}
	wantSame(t, "session", session(t, s, ses), want)
	wantContents(t, s, keyOf(acme, "1"), "anew", "yes")
	// Nor does the close of a request that happens to have its id.
	touch(t, s, requestScope(acme, carrel.ScopeID(ses)), keyOf(acme, "2"))
	closeScope(t, s, carrel.ScopeID(ses))
	wantSame(t, "session", session(t, s, ses), want)
	if len(want.Evicted) != 1 {
		t.Errorf("evicted was %v", want.Evicted)
	}
}

func closingRefuses(t *testing.T, s store.Store) {
	ctx := context.Background()
	createTenants(t, s, acme)
	createSession(t, s, sessionOf(acme, ses))
	noError(t, s.OpenSession(ctx, socketScope(acme, "ses_ws", node)))
	for i, si := range []store.ScopeInstance{sessionScope(acme, ses), socketScope(acme, "ses_ws", node)} {
		k, fresh := keyOf(acme, carrel.MemoryID(fmt.Sprint(i))), keyOf(acme, "fresh")
		generation := touch(t, s, si, k)
		closeScope(t, s, si.ID)
		_, err := s.Touch(ctx, touchOf(si, k))
		wantCode(t, err, abi.ScopeClosed)
		wantCode(t, commit(ctx, s, commitOf(si, k, generation, "late", "turn")), abi.ScopeClosed)
		wantCode(t, commit(ctx, s, commitOf(requestScope(acme, "r"), k, generation, "late", "turn")), abi.ScopeClosed)
		wantCode(t, commit(ctx, s, commitOf(si, fresh, 0, "late", "turn")), abi.ScopeClosed)
		wantGone(t, s, k)
		wantGone(t, s, fresh)
	}
	if open := must(s.ListScopes(ctx, carrel.ScopeSession, "", 10))(t); len(open) != 0 {
		t.Errorf("open scopes are %v", open)
	}
}

func closingSmallestScope(t *testing.T, s store.Store) {
	createTenants(t, s, acme)
	app := install(t, s, acme, chat, "app")
	createSession(t, s, sessionOf(acme, ses))
	both, appOnly := keyOf(acme, "1234"), keyOf(acme, "5678")
	say(t, s, app, both, "u1", "a1")
	say(t, s, app, appOnly, "u1", "a1")
	touch(t, s, sessionScope(acme, ses), both)
	say(t, s, app, both, "u2", "a2")
	evicted := closeScope(t, s, carrel.ScopeID(ses))
	if len(evicted) != 1 || evicted[0].Key != both || evicted[0].Messages != 4 {
		t.Errorf("evicted %v", evicted)
	}
	wantSame(t, "kept", session(t, s, ses).Evicted, evicted)
	wantGone(t, s, both)
	wantContents(t, s, appOnly, "u1", "a1")
	if evicted = closeScope(t, s, app.ID); len(evicted) != 1 || evicted[0].Key != appOnly {
		t.Errorf("evicted %v", evicted)
	}
}

func closingRequestFirst(t *testing.T, s store.Store) {
	createTenants(t, s, acme)
	createSession(t, s, sessionOf(acme, ses))
	both, sessionOnly := keyOf(acme, "1"), keyOf(acme, "2")
	say(t, s, sessionScope(acme, ses), both, "u1", "a1")
	say(t, s, sessionScope(acme, ses), sessionOnly, "u1", "a1")
	touch(t, s, requestScope(acme, "r"), both)
	if evicted := closeScope(t, s, "r"); len(evicted) != 1 || evicted[0].Key != both {
		t.Errorf("evicted %v", evicted)
	}
	wantGone(t, s, both)
	wantContents(t, s, sessionOnly, "u1", "a1")
	if evicted := closeScope(t, s, carrel.ScopeID(ses)); len(evicted) != 1 || evicted[0].Key != sessionOnly {
		t.Errorf("evicted %v", evicted)
	}
}

func closingAnew(t *testing.T, s store.Store) {
	ctx := context.Background()
	createTenants(t, s, acme)
	app := install(t, s, acme, chat, "app")
	createSession(t, s, sessionOf(acme, ses))
	k := keyOf(acme, "1")
	touch(t, s, sessionScope(acme, ses), k)
	must(s.DeleteHistory(ctx, k, store.Deletion{Reason: carrel.ReasonDeleted, At: noon}))(t)
	say(t, s, app, k, "anew", "yes")
	if evicted := closeScope(t, s, carrel.ScopeID(ses)); len(evicted) != 1 || evicted[0].Key != k || evicted[0].Messages != 2 {
		t.Errorf("evicted %v", evicted)
	}
	wantGone(t, s, k)
}

func closingForgotten(t *testing.T, s store.Store) {
	ctx := context.Background()
	createTenants(t, s, acme, globex)
	short, long, open := sessionOf(acme, "short"), sessionOf(globex, "long"), sessionOf(acme, "open")
	long.IdleTTL = 3 * time.Hour
	for _, n := range []store.Session{short, long, open} {
		createSession(t, s, n)
	}
	say(t, s, sessionScope(acme, "short"), keyOf(acme, "1"), "hello", "hi")
	closeScope(t, s, "short")
	closeScope(t, s, "long")
	forget := func(after time.Duration, want int) {
		t.Helper()
		if n := must(s.ForgetSessions(ctx, storedNoon.Add(after)))(t); n != want {
			t.Errorf("%d sessions were forgotten after %v, want %d", n, after, want)
		}
	}
	forget(time.Hour-time.Nanosecond, 0)
	if got := session(t, s, "short"); len(got.Evicted) != 1 {
		t.Errorf("the session is %+v", got)
	}
	forget(time.Hour, 1)
	_, err := s.Session(ctx, acme, "short", nil)
	wantCode(t, err, abi.NotFound)
	wantCode(t, s.UseSession(ctx, acme, "short", noon), abi.NotFound)
	forget(3*time.Hour-time.Microsecond, 0)
	must(s.Session(ctx, globex, "long", nil))(t)
	forget(3*time.Hour, 1)
	_, err = s.Session(ctx, globex, "long", nil)
	wantCode(t, err, abi.NotFound)
	// What is open stays, however old.
	forget(10_000*time.Hour, 0)
	session(t, s, "open")
	// Nothing of a forgotten one is left in one with its id.
	createSession(t, s, short)
	closeScope(t, s, "short")
	if got := session(t, s, "short"); got.Evicted != nil {
		t.Errorf("the session is %+v", got)
	}
}

func closingSocket(t *testing.T, s store.Store) {
	ctx := context.Background()
	createTenants(t, s, acme)
	given := socketScope(acme, "ses_ws", node)
	given.Scope, given.Plugin = carrel.ScopeRequest, chat // what it is decides the method
	noError(t, s.OpenSession(ctx, given))
	want := socketScope(acme, "ses_ws", node)
	want.OpenedAt = storedNoon
	wantSame(t, "open scopes", must(s.ListScopes(ctx, carrel.ScopeSession, "", 10))(t), []store.ScopeInstance{want})
	_, err := s.Session(ctx, acme, "ses_ws", nil)
	wantCode(t, err, abi.NotFound)
	if list := must(s.ListSessions(ctx, acme, nil, "", 10))(t); len(list) != 0 {
		t.Errorf("listed %v", list)
	}
	k := keyOf(acme, "1")
	say(t, s, want, k, "hello", "hi")
	if evicted := closeScope(t, s, want.ID); len(evicted) != 1 || evicted[0].Key != k {
		t.Errorf("evicted %v", evicted)
	}
	wantGone(t, s, k)
	_, err = s.Session(ctx, acme, "ses_ws", nil)
	wantCode(t, err, abi.NotFound)
	if n := must(s.ForgetSessions(ctx, noon.Add(1000*time.Hour)))(t); n != 0 {
		t.Errorf("%d sessions were forgotten", n)
	}
}

func closingSocketWithoutNode(t *testing.T, s store.Store) {
	ctx := context.Background()
	if err := s.OpenSession(ctx, socketScope(acme, "ses_ws", "")); err == nil {
		t.Error("a session was opened that nobody would close")
	}
	if open := must(s.ListScopes(ctx, carrel.ScopeSession, "", 10))(t); len(open) != 0 {
		t.Errorf("open scopes are %v", open)
	}
}

func closingQuotaRace(t *testing.T, s store.Store) {
	const most = 5
	createTenants(t, s, acme)
	var created atomic.Int32
	together(32, func(i int) {
		err := s.CreateSession(context.Background(), sessionOf(acme, carrel.SessionID(fmt.Sprint("ses_", i))), most)
		switch carrel.CodeOf(err) {
		case abi.OK:
			created.Add(1)
		case abi.QuotaExceeded:
		default:
			t.Error(err)
		}
	})
	list := must(s.ListSessions(context.Background(), acme, nil, "", 100))(t)
	if n := created.Load(); n != most || len(list) != most {
		t.Errorf("%d sessions were created and %d are open, want %d", n, len(list), most)
	}
}

func closingRace(t *testing.T, s store.Store) {
	createTenants(t, s, acme)
	createSession(t, s, sessionOf(acme, ses))
	say(t, s, sessionScope(acme, ses), keyOf(acme, "1"), "hello", "hi")
	reports := make(chan carrel.Eviction, 32)
	together(32, func(i int) {
		evicted, err := s.CloseScope(context.Background(), carrel.ScopeID(ses), carrel.ReasonScopeClosed, noon.Add(time.Duration(i)*time.Minute))
		if err != nil {
			t.Error(err)
		}
		for _, e := range evicted {
			reports <- e
		}
	})
	close(reports)
	var all []carrel.Eviction
	for e := range reports {
		all = append(all, e)
	}
	if len(all) != 1 {
		t.Fatalf("reported %v", all)
	}
	got := session(t, s, ses)
	wantSame(t, "kept", got.Evicted, all)
	if !got.ClosedAt.Equal(all[0].At) {
		t.Errorf("the session closed at %v, its history ended at %v", got.ClosedAt, all[0].At)
	}
}

func closingTouchRace(t *testing.T, s store.Store) {
	const keys = 32
	ctx := context.Background()
	createTenants(t, s, acme)
	createSession(t, s, sessionOf(acme, ses))
	var touched atomic.Int32
	together(keys+1, func(i int) {
		if i == keys/2 {
			if _, err := s.CloseScope(ctx, carrel.ScopeID(ses), carrel.ReasonScopeClosed, noon); err != nil {
				t.Error(err)
			}
			return
		}
		_, err := s.Touch(ctx, touchOf(sessionScope(acme, ses), keyOf(acme, carrel.MemoryID(fmt.Sprint(i)))))
		switch carrel.CodeOf(err) {
		case abi.OK:
			touched.Add(1)
		case abi.ScopeClosed:
		default:
			t.Error(err)
		}
	})
	if kept := session(t, s, ses).Evicted; len(kept) != int(touched.Load()) {
		t.Errorf("%d keys were touched and %d ended with the session", touched.Load(), len(kept))
	}
	if left := must(s.ListHistories(ctx, store.HistoryFilter{Tenant: acme, Limit: 100}))(t); len(left) != 0 {
		t.Errorf("histories are left: %v", left)
	}
}
