package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/store"
)

var evictionCases = []testCase{
	{"closing a scope deletes what was touched in it and reports it", evictionReported},
	{"a scope that is not open has nothing to close", evictionNone},
	{"a turn under way when its scope closes is not stored", evictionDuringTurn},
	{"the smallest scope wins, and the larger one's other keys stay", evictionSmallestScope},
	{"a key deleted by hand and made anew dies with the request that touched it", evictionAnew},
	{"an application does not inherit what was made anew after a deletion", evictionApplicationForgets},
	{"a history is deleted by hand whatever runs on it", evictionByHand},
	{"in a shared namespace the first scope to close wins", evictionShared},
}

func evictionReported(t *testing.T, s store.Store) {
	ctx := context.Background()
	r := requestScope(acme, "r")
	one, two, kept := keyOf(acme, "1"), keyOf(acme, "2"), keyOf(acme, "3")
	touch(t, s, requestScope(acme, "other"), kept)
	c := commitOf(r, one, 0, "hello", "hi")
	system := "S"
	c.System = &system
	noError(t, commit(ctx, s, c))
	renamed := touchOf(r, two)
	renamed.Plugin = "other"
	must(s.Touch(ctx, renamed))(t)

	got := must(s.CloseScope(ctx, "r", carrel.ReasonExpired, noon.Add(time.Hour)))(t)
	at := storedNoon.Add(time.Hour)
	wantSame(t, "evictions", got, []carrel.Eviction{
		{Handle: handleOf(one), Plugin: chat, Key: one, Reason: carrel.ReasonExpired, Scope: carrel.ScopeRequest, Instance: "r", Messages: 3, Bytes: int64(len("Shellohi")), At: at},
		{Handle: handleOf(two), Plugin: "other", Key: two, Reason: carrel.ReasonExpired, Scope: carrel.ScopeRequest, Instance: "r", At: at},
	})
	wantGone(t, s, one)
	wantGone(t, s, two)
	wantContents(t, s, kept)
	if again := closeScope(t, s, "r"); len(again) != 0 {
		t.Errorf("closing again evicted %v", again)
	}
	if list := must(s.ListHistories(ctx, store.HistoryFilter{Tenant: acme, Limit: 10}))(t); len(list) != 1 {
		t.Errorf("listed %v", list)
	}
	if list := must(s.ListHistories(ctx, store.HistoryFilter{Tenant: acme, TouchedBy: &c.Touch.By, Limit: 10}))(t); len(list) != 1 {
		t.Errorf("listed for the toucher: %v", list)
	}
}

func evictionNone(t *testing.T, s store.Store) {
	if got := closeScope(t, s, "never opened"); len(got) != 0 {
		t.Errorf("evicted %v", got)
	}
}

func evictionDuringTurn(t *testing.T, s store.Store) {
	ctx := context.Background()
	k := keyOf(acme, "1")
	r := requestScope(acme, "r")
	generation := touch(t, s, r, k)
	closeScope(t, s, "r")
	wantCode(t, commit(ctx, s, commitOf(r, k, generation, "late", "turn")), abi.ScopeClosed)
	wantGone(t, s, k)
	_, err := s.Messages(ctx, k, generation, -1, store.MessageLimit{Messages: 10})
	wantCode(t, err, abi.NotFound)
	if open := must(s.ListScopes(ctx, carrel.ScopeRequest, "", 10))(t); len(open) != 0 {
		t.Errorf("the late turn opened %v", open)
	}
}

func evictionSmallestScope(t *testing.T, s store.Store) {
	createTenants(t, s, acme)
	app := install(t, s, acme, chat, "app")
	r := requestScope(acme, "r")
	both, appOnly := keyOf(acme, "1234"), keyOf(acme, "5678")
	say(t, s, app, both, "u1", "a1")
	say(t, s, app, appOnly, "u1", "a1")
	touch(t, s, r, both)
	say(t, s, r, both, "u2", "a2")

	evicted := closeScope(t, s, "r")
	if len(evicted) != 1 || evicted[0].Key != both || evicted[0].Messages != 4 {
		t.Errorf("evicted %v", evicted)
	}
	wantGone(t, s, both)
	wantContents(t, s, appOnly, "u1", "a1")
	evicted = closeScope(t, s, app.ID)
	if len(evicted) != 1 || evicted[0].Key != appOnly {
		t.Errorf("evicted %v", evicted)
	}
	wantGone(t, s, appOnly)
}

func evictionAnew(t *testing.T, s store.Store) {
	ctx := context.Background()
	createTenants(t, s, acme)
	app := install(t, s, acme, chat, "app")
	k := keyOf(acme, "1")
	old := touch(t, s, requestScope(acme, "r"), k)
	must(s.DeleteHistory(ctx, k, store.Deletion{Reason: carrel.ReasonDeleted, At: noon}))(t)
	say(t, s, app, k, "anew", "yes")
	if now := history(t, s, k).Generation; now <= old {
		t.Errorf("the new generation is %d, the old one was %d", now, old)
	}
	evicted := closeScope(t, s, "r")
	if len(evicted) != 1 || evicted[0].Key != k || evicted[0].Messages != 2 {
		t.Errorf("evicted %v", evicted)
	}
	wantGone(t, s, k)
	if evicted := closeScope(t, s, app.ID); len(evicted) != 0 {
		t.Errorf("the application's close evicted %v", evicted)
	}
}

func evictionApplicationForgets(t *testing.T, s store.Store) {
	ctx := context.Background()
	createTenants(t, s, acme)
	first, second := install(t, s, acme, chat, "app-1"), install(t, s, acme, "other", "app-2")
	k := keyOf(acme, "1")
	touch(t, s, first, k)
	must(s.DeleteHistory(ctx, k, store.Deletion{Reason: carrel.ReasonDeleted, At: noon}))(t)
	say(t, s, second, k, "theirs", "yes")
	if evicted := closeScope(t, s, first.ID); len(evicted) != 0 {
		t.Errorf("evicted %v", evicted)
	}
	wantContents(t, s, k, "theirs", "yes")

	// The same when a request's close deleted it.
	touch(t, s, requestScope(acme, "r"), k)
	closeScope(t, s, "r")
	say(t, s, requestScope(acme, "r2"), k, "anew", "yes")
	closeScope(t, s, second.ID)
	wantContents(t, s, k, "anew", "yes")
}

func evictionByHand(t *testing.T, s store.Store) {
	ctx := context.Background()
	r := requestScope(acme, "r")
	k := keyOf(acme, "1")
	say(t, s, r, k, "hello", "hi")
	generation := history(t, s, k).Generation
	got := must(s.DeleteHistory(ctx, k, store.Deletion{Reason: carrel.ReasonErased, At: noon}))(t)
	wantSame(t, "eviction", got, carrel.Eviction{
		Handle: handleOf(k), Plugin: chat, Key: k, Reason: carrel.ReasonErased, Messages: 2, Bytes: 7, At: storedNoon,
	})
	wantGone(t, s, k)
	wantCode(t, commit(ctx, s, commitOf(r, k, generation, "late", "turn")), abi.ScopeClosed)
	_, err := s.DeleteHistory(ctx, k, store.Deletion{Reason: carrel.ReasonErased, At: noon})
	wantCode(t, err, abi.NotFound)
	if evicted := closeScope(t, s, "r"); len(evicted) != 0 {
		t.Errorf("evicted %v", evicted)
	}
}

func evictionShared(t *testing.T, s store.Store) {
	createTenants(t, s, acme)
	first, second := install(t, s, acme, chat, "app-1"), install(t, s, acme, "other", "app-2")
	k := carrel.MemoryKey{Tenant: acme, Namespace: "shared", Kind: carrel.KindExplicit, ID: "1"}
	say(t, s, first, k, "u1", "a1")
	say(t, s, second, k, "u2", "a2")
	touch(t, s, second, k)
	if evicted := closeScope(t, s, second.ID); len(evicted) != 1 || evicted[0].Key != k {
		t.Errorf("evicted %v", evicted)
	}
	wantGone(t, s, k)
	say(t, s, first, k, "u3", "a3")
	wantContents(t, s, k, "u3", "a3")
}
