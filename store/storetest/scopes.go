package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/store"
)

var scopeCases = []testCase{
	{"a request scope opens by its first touch", scopeOpensByTouch},
	{"an application scope that is not open is closed to touches", scopeNotOpen},
	{"a session scope is not opened by a touch", scopeSession},
	{"opening an application scope needs an active plugin without one", scopeApplicationOpened},
	{"orphans are other nodes' requests and sockets and nobody's applications, oldest first", scopeOrphans},
	{"an HTTP session is nobody's orphan", scopeHTTPSession},
	{"open scopes of a kind are listed in order of id, page by page", scopePages},
}

func ids(list []store.ScopeInstance) []carrel.ScopeID {
	var out []carrel.ScopeID
	for _, si := range list {
		out = append(out, si.ID)
	}
	return out
}

func scopeOpensByTouch(t *testing.T, s store.Store) {
	ctx := context.Background()
	r := requestScope(acme, "r")
	touch(t, s, r, keyOf(acme, "1"))
	again := r
	again.OpenedAt = noon.Add(time.Hour)
	touch(t, s, again, keyOf(acme, "2"))
	want := r
	want.OpenedAt = storedNoon
	wantSame(t, "open scopes", must(s.ListScopes(ctx, carrel.ScopeRequest, "", 10))(t), []store.ScopeInstance{want})
	if evicted := closeScope(t, s, r.ID); len(evicted) != 2 {
		t.Errorf("evicted %v", evicted)
	}
	if open := must(s.ListScopes(ctx, carrel.ScopeRequest, "", 10))(t); len(open) != 0 {
		t.Errorf("scopes are open after the close: %v", open)
	}
}

func scopeNotOpen(t *testing.T, s store.Store) {
	ctx := context.Background()
	createTenants(t, s, acme)
	k := keyOf(acme, "1")
	app := applicationScope(acme, chat, "app")
	_, err := s.Touch(ctx, touchOf(app, k))
	wantCode(t, err, abi.ScopeClosed)
	wantGone(t, s, k)

	app = install(t, s, acme, chat, "app")
	touch(t, s, app, k)
	closeScope(t, s, app.ID)
	_, err = s.Touch(ctx, touchOf(app, k))
	wantCode(t, err, abi.ScopeClosed)
	wantGone(t, s, k)
	if open := must(s.ListScopes(ctx, carrel.ScopeApplication, "", 10))(t); len(open) != 0 {
		t.Errorf("open scopes are %v", open)
	}
}

func scopeSession(t *testing.T, s store.Store) {
	si := requestScope(acme, "ses_1")
	si.Scope = carrel.ScopeSession
	_, err := s.Touch(context.Background(), touchOf(si, keyOf(acme, "1")))
	wantCode(t, err, abi.ScopeClosed)
	wantGone(t, s, keyOf(acme, "1"))
}

func scopeApplicationOpened(t *testing.T, s store.Store) {
	ctx := context.Background()
	createTenants(t, s, acme)
	nothing := func(why string) {
		t.Helper()
		noError(t, s.OpenApplication(ctx, applicationScope(acme, chat, "new")))
		for _, id := range ids(must(s.ListScopes(ctx, carrel.ScopeApplication, "", 10))(t)) {
			if id == "new" {
				t.Errorf("a scope was opened although %s", why)
			}
		}
	}
	nothing("there is no such plugin")
	v := put(t, s, acme, chat, "one")
	nothing("the plugin is not active")
	must(s.Activate(ctx, acme, chat, v.Digest, applicationScope(acme, chat, "first")))(t)
	nothing("the plugin has one")
	if p := must(s.Plugin(ctx, acme, chat))(t); p.Scope != "first" {
		t.Errorf("the plugin's scope is %q", p.Scope)
	}

	closeScope(t, s, "first")
	noError(t, s.OpenApplication(ctx, applicationScope(acme, chat, "new")))
	if p := must(s.Plugin(ctx, acme, chat))(t); p.Scope != "new" || p.Active != v.Digest {
		t.Errorf("the plugin is %+v", p)
	}
	touch(t, s, applicationScope(acme, chat, "new"), keyOf(acme, "1"))
	if orphans := must(s.Orphans(ctx, node, 10))(t); len(orphans) != 0 {
		t.Errorf("orphans are %v", orphans)
	}
}

func scopeOrphans(t *testing.T, s store.Store) {
	ctx := context.Background()
	createTenants(t, s, acme, globex)
	at := func(si store.ScopeInstance, run string, minute int) store.ScopeInstance {
		si.Node, si.OpenedAt = run, noon.Add(time.Duration(minute)*time.Minute)
		return si
	}
	touch(t, s, at(requestScope(acme, "r1"), "run-0", 5), keyOf(acme, "1"))
	touch(t, s, at(requestScope(globex, "r2"), "run-0", 1), keyOf(globex, "1"))
	touch(t, s, at(requestScope(acme, "r3"), node, 0), keyOf(acme, "2"))
	kept := put(t, s, acme, "kept", "one")
	must(s.Activate(ctx, acme, "kept", kept.Digest, at(applicationScope(acme, "kept", "a1"), "run-0", 2)))(t)
	left := put(t, s, globex, "left", "one")
	must(s.Activate(ctx, globex, "left", left.Digest, at(applicationScope(globex, "left", "a2"), node, 3)))(t)
	must(s.Deactivate(ctx, globex, "left"))(t)
	noError(t, s.OpenSession(ctx, at(socketScope(globex, "s1", ""), "run-0", 4)))
	noError(t, s.OpenSession(ctx, at(socketScope(acme, "s2", ""), node, 1)))
	noError(t, s.OpenSession(ctx, at(socketScope(acme, "s3", ""), "run-2", 6))) // a name that sorts after node

	wantSame(t, "orphans", ids(must(s.Orphans(ctx, node, 10))(t)), []carrel.ScopeID{"r2", "a2", "s1", "r1", "s3"})
	wantSame(t, "first orphans", ids(must(s.Orphans(ctx, node, 2))(t)), []carrel.ScopeID{"r2", "a2"})
	wantSame(t, "orphans of another run", ids(must(s.Orphans(ctx, "run-0", 10))(t)), []carrel.ScopeID{"r3", "s2", "a2", "s3"})
	if none := must(s.Orphans(ctx, node, 0))(t); len(none) != 0 {
		t.Errorf("at most 0 orphans are %v", none)
	}
	orphan := must(s.Orphans(ctx, node, 10))(t)[1]
	want := at(applicationScope(globex, "left", "a2"), node, 3)
	want.OpenedAt = storedNoon.Add(3 * time.Minute)
	wantSame(t, "orphan", orphan, want)
	for _, id := range []carrel.ScopeID{"r2", "a2", "s1", "r1", "s3"} {
		closeScope(t, s, id)
	}
	if none := must(s.Orphans(ctx, node, 10))(t); len(none) != 0 {
		t.Errorf("closed orphans are left: %v", none)
	}
}

func scopeHTTPSession(t *testing.T, s store.Store) {
	createTenants(t, s, acme)
	createSession(t, s, sessionOf(acme, ses))
	for _, run := range []string{node, "run-2", ""} {
		if orphans := must(s.Orphans(context.Background(), run, 10))(t); len(orphans) != 0 {
			t.Errorf("orphans, as %q sees it, are %v", run, orphans)
		}
	}
}

func scopePages(t *testing.T, s store.Store) {
	ctx := context.Background()
	createTenants(t, s, acme, globex)
	for _, id := range []carrel.ScopeID{"c", "a", "e"} {
		touch(t, s, requestScope(acme, id), keyOf(acme, "1"))
	}
	for _, id := range []carrel.ScopeID{"d", "b"} {
		touch(t, s, requestScope(globex, id), keyOf(globex, "1"))
	}
	install(t, s, acme, chat, "app")
	createSession(t, s, sessionOf(globex, "h"))
	noError(t, s.OpenSession(ctx, socketScope(acme, "w", node)))
	createSession(t, s, sessionOf(acme, "g"))
	for kind, want := range map[carrel.Scope][]carrel.ScopeID{
		carrel.ScopeRequest:     {"a", "b", "c", "d", "e"},
		carrel.ScopeApplication: {"app"},
		carrel.ScopeSession:     {"g", "h", "w"},
	} {
		list := walk(t, 2, func(last *store.ScopeInstance) ([]store.ScopeInstance, error) {
			after := orElse(last, "", func(si store.ScopeInstance) carrel.ScopeID { return si.ID })
			return s.ListScopes(ctx, kind, after, 2)
		})
		wantSame(t, string(kind)+" scopes", ids(list), want)
	}
}
