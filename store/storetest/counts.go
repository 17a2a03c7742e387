package storetest

import (
	"context"
	"fmt"
	"testing"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/store"
)

var countCases = []testCase{
	{"an empty store counts nothing", countNothing},
	{"open scopes, histories and touches are counted, of all tenants", countAll},
	{"histories of a request's or session's own id that an application holds are leaking", countLeaks},
	{"what a scope ended is not counted any more when it has closed", countClosed},
}

func wantCounts(t *testing.T, s store.Store, want store.Counts) {
	t.Helper()
	got := must(s.Counts(context.Background()))(t)
	for _, kind := range []carrel.Scope{carrel.ScopeRequest, carrel.ScopeSession, carrel.ScopeApplication} {
		if got.Scopes[kind] != want.Scopes[kind] {
			t.Errorf("%d %s scopes are counted, want %d", got.Scopes[kind], kind, want.Scopes[kind])
		}
	}
	for kind := range got.Scopes {
		if kind != carrel.ScopeRequest && kind != carrel.ScopeSession && kind != carrel.ScopeApplication {
			t.Errorf("a scope %q is counted", kind)
		}
	}
	got.Scopes, want.Scopes = nil, nil
	wantSame(t, "counts", got, want)
}

func countNothing(t *testing.T, s store.Store) {
	createTenants(t, s, acme)
	wantCounts(t, s, store.Counts{})
}

func countAll(t *testing.T, s store.Store) {
	createTenants(t, s, acme, globex)
	app, theirs := install(t, s, acme, chat, "app"), install(t, s, globex, chat, "their-app")
	createSession(t, s, sessionOf(acme, ses))
	noError(t, s.OpenSession(context.Background(), socketScope(acme, "ses_ws", node)))
	r := requestScope(acme, "r")
	for i := range 3 {
		touch(t, s, app, keyOf(acme, carrel.MemoryID(fmt.Sprint(i))))
	}
	touch(t, s, app, keyOf(acme, "1"))
	touch(t, s, theirs, keyOf(globex, "1"))
	touch(t, s, r, keyOf(acme, "1"))
	touch(t, s, r, keyOf(acme, "another"))
	touch(t, s, sessionScope(acme, ses), keyOf(acme, "1"))
	scopes := map[carrel.Scope]int64{carrel.ScopeRequest: 1, carrel.ScopeSession: 2, carrel.ScopeApplication: 2}
	wantCounts(t, s, store.Counts{Scopes: scopes, Histories: 5, Touches: 7})
	// By hand a history goes from the application, and not from the session.
	must(s.DeleteHistory(context.Background(), keyOf(acme, "1"), store.Deletion{Reason: carrel.ReasonDeleted, At: noon}))(t)
	wantCounts(t, s, store.Counts{Scopes: scopes, Histories: 4, Touches: 6})
}

func countLeaks(t *testing.T, s store.Store) {
	createTenants(t, s, acme, globex)
	app, theirs := install(t, s, acme, chat, "app"), install(t, s, globex, chat, "their-app")
	of := func(tenant carrel.TenantID, kind carrel.KeyKind) carrel.MemoryKey {
		return carrel.MemoryKey{Tenant: tenant, Namespace: "chat", Kind: kind, ID: "req_1#S.m"}
	}
	kinds := []carrel.KeyKind{carrel.KindExplicit, carrel.KindRequest, carrel.KindSession, carrel.KindPlugin}
	r := requestScope(acme, "r")
	for _, kind := range kinds {
		touch(t, s, r, of(acme, kind))
	}
	wantLeaking := func(want int64, when string) {
		t.Helper()
		if got := must(s.Counts(context.Background()))(t).Leaking; got != want {
			t.Errorf("%s %d histories are leaking, want %d", when, got, want)
		}
	}
	wantLeaking(0, "touched by a request")
	for _, kind := range kinds {
		touch(t, s, app, of(acme, kind))
	}
	wantLeaking(2, "touched by an application")
	touch(t, s, theirs, of(globex, carrel.KindRequest))
	wantLeaking(3, "touched by two applications")
	closeScope(t, s, r.ID)
	wantLeaking(1, "after the request")
}

func countClosed(t *testing.T, s store.Store) {
	createTenants(t, s, acme)
	app := install(t, s, acme, chat, "app")
	createSession(t, s, sessionOf(acme, ses))
	leak := carrel.MemoryKey{Tenant: acme, Namespace: "chat", Kind: carrel.KindSession, ID: "ses_1#S.m"}
	touch(t, s, app, keyOf(acme, "an application's"))
	for _, k := range []carrel.MemoryKey{keyOf(acme, "1"), keyOf(acme, "2"), leak} {
		touch(t, s, sessionScope(acme, ses), k)
		touch(t, s, app, k)
	}
	r := requestScope(acme, "r")
	touch(t, s, r, keyOf(acme, "1"))
	wantCounts(t, s, store.Counts{
		Scopes:    map[carrel.Scope]int64{carrel.ScopeRequest: 1, carrel.ScopeSession: 1, carrel.ScopeApplication: 1},
		Histories: 4, Touches: 8, Leaking: 1,
	})
	closeScope(t, s, carrel.ScopeID(ses))
	left := store.Counts{
		Scopes:    map[carrel.Scope]int64{carrel.ScopeRequest: 1, carrel.ScopeApplication: 1},
		Histories: 1, Touches: 2,
	}
	wantCounts(t, s, left)
	// A key that begins anew is held by the application once more.
	touch(t, s, app, keyOf(acme, "1"))
	left.Histories, left.Touches = 2, 3
	wantCounts(t, s, left)
}
