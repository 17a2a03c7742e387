package storetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/store"
)

// Histories of applications that nobody used for long.
var expiryCases = []testCase{
	{"what an application used last at the cutoff is not there, for whoever asks with it", expiryHides},
	{"only an application's touch makes a history expire", expiryOfApplications},
	{"a touch ends an expired history and begins the next", expiryTouch},
	{"a first turn ends an expired history and begins the next", expiryFirstTurn},
	{"a turn built on a history that has expired is not stored", expiryLateTurn},
	{"use keeps a history from expiring, and reading does not", expiryUse},
	{"a history that expired and began anew dies with the request that touched it", expiryAnew},
	{"expired histories end, those unused longest first, a few at a time", expiryEnds},
	{"without a cutoff nothing expires", expiryNone},
}

// late is when expiry cases are judged: long after noon.
var late = noon.Add(100 * time.Hour)

// applicationOf installs an application in acme, and returns its scope.
func applicationOf(t *testing.T, s store.Store) store.ScopeInstance {
	t.Helper()
	createTenants(t, s, acme, globex)
	return install(t, s, acme, chat, "app")
}

func expiryHides(t *testing.T, s store.Store) {
	ctx := context.Background()
	app := applicationOf(t, s)
	k := keyOf(acme, "1")
	by := touchOf(app, k).By
	say(t, s, app, k, "hello", "hi")
	generation := history(t, s, k).Generation
	for _, c := range []struct {
		name   string
		cutoff store.Cutoff
		there  bool
	}{
		{"a microsecond before its last use", noon.Add(-time.Microsecond), true},
		{"its last use", noon, false},
		{"long after", late, false},
		{"none", store.Cutoff{}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			want := abi.NotFound
			if c.there {
				want = abi.OK
			}
			if v := must(s.View(ctx, k, store.ViewLimit{Messages: 10, Cutoff: c.cutoff}))(t); (v.Generation > 0) != c.there || (len(v.Recent) > 0) != c.there {
				t.Errorf("the view is %+v", v)
			}
			for _, who := range []*store.Toucher{nil, &by} {
				_, err := s.History(ctx, acme, handleOf(k), who, c.cutoff)
				wantCode(t, err, want)
				for _, f := range []store.HistoryFilter{{}, {Namespaces: []carrel.Namespace{"chat"}}, {Namespaces: []carrel.Namespace{"chat", "other"}}} {
					f.Tenant, f.TouchedBy, f.Cutoff, f.Limit = acme, who, c.cutoff, 10
					if list := must(s.ListHistories(ctx, f))(t); (len(list) == 1) != c.there {
						t.Errorf("%+v lists %v", f, list)
					}
				}
			}
			_, err := s.Messages(ctx, k, generation, -1, store.MessageLimit{Messages: 10, Cutoff: c.cutoff})
			wantCode(t, err, want)
			if !c.there {
				_, err := s.DeleteHistory(ctx, k, store.Deletion{Reason: carrel.ReasonDeleted, At: noon, Cutoff: c.cutoff})
				wantCode(t, err, want)
			}
		})
	}
	wantContents(t, s, k, "hello", "hi")
	must(s.DeleteHistory(ctx, k, store.Deletion{Reason: carrel.ReasonDeleted, At: noon, Cutoff: noon.Add(-time.Second)}))(t)
	wantGone(t, s, k)
}

func expiryOfApplications(t *testing.T, s store.Store) {
	app := applicationOf(t, s)
	createSession(t, s, sessionOf(acme, ses))
	k := keyOf(acme, "1")
	there := func(want bool, when string) {
		t.Helper()
		_, err := s.History(context.Background(), acme, handleOf(k), nil, late)
		if (err == nil) != want {
			t.Errorf("%s: %v", when, err)
		}
		if h := history(t, s, k); h.Application == want {
			t.Errorf("%s the history is %+v", when, h)
		}
	}
	say(t, s, requestScope(acme, "r"), k, "hello", "hi")
	there(true, "touched by a request")
	touch(t, s, sessionScope(acme, ses), k)
	there(true, "touched by a session")
	if n := len(must(s.ExpireHistories(context.Background(), late, late, 10))(t)); n != 0 {
		t.Errorf("%d histories expired", n)
	}
	touch(t, s, app, k)
	there(false, "touched by an application")
	touch(t, s, requestScope(acme, "r"), k)
	there(false, "touched by a request again")
}

func expiryTouch(t *testing.T, s store.Store) {
	ctx := context.Background()
	app := applicationOf(t, s)
	k := keyOf(acme, "1")
	say(t, s, app, k, "hello", "hi")
	was := history(t, s, k)
	again := touchOf(app, k)
	again.At, again.Cutoff, again.By = late, noon, store.Toucher{Key: "k9"}
	done := must(s.Touch(ctx, again))(t)
	generation := done.Generation
	if generation <= was.Generation {
		t.Errorf("the generation is %d, it was %d", generation, was.Generation)
	}
	wantContents(t, s, k)
	at := late.UTC().Truncate(time.Microsecond)
	wantSame(t, "what was replaced", done.Replaced, expiredOf(was, at))
	wantSame(t, "history", history(t, s, k), store.History{
		Key: k, Handle: handleOf(k), Plugin: chat, Generation: generation, CreatedAt: at, LastUsedAt: at, Application: true,
	})
	old := touchOf(app, k).By
	_, err := s.History(ctx, acme, handleOf(k), &old, store.Cutoff{})
	wantCode(t, err, abi.NotFound)
	wantExpiredRecord(t, s, was, at)
	// A touch without need of a new one leaves it alone.
	again.At = late.Add(time.Hour)
	wantSame(t, "a touch without need", must(s.Touch(ctx, again))(t), store.Touched{Generation: generation})
	if evicted := closeScope(t, s, app.ID); len(evicted) != 1 || evicted[0].Key != k {
		t.Errorf("the application evicted %v", evicted)
	}
}

// expiredOf is the report of an end by expiry.
func expiredOf(was store.History, at time.Time) *carrel.Eviction {
	return &carrel.Eviction{
		Handle: was.Handle, Plugin: was.Plugin, Key: was.Key, Reason: carrel.ReasonExpired,
		Messages: was.Messages, Bytes: was.Bytes, At: at,
	}
}

// wantExpiredRecord checks that one history has ended so far, by expiry.
func wantExpiredRecord(t *testing.T, s store.Store, was store.History, at time.Time) {
	t.Helper()
	records := must(s.ListEvictions(context.Background(), store.EvictionFilter{Tenant: acme, Limit: 10}))(t)
	wantSame(t, "eviction records", records, []store.EvictionRecord{{
		N: 1, Handle: was.Handle, Plugin: was.Plugin, MemoryID: was.Key.ID, Reason: carrel.ReasonExpired,
		Messages: was.Messages, Bytes: was.Bytes, At: at,
	}})
}

func expiryFirstTurn(t *testing.T, s store.Store) {
	ctx := context.Background()
	app := applicationOf(t, s)
	k := keyOf(acme, "1")
	say(t, s, app, k, "hello", "hi")
	was := history(t, s, k)
	first := commitOf(app, k, 0, "anew", "yes")
	first.Seeds = newTurns(turnOf("s", "t"))
	first.Touch.At, first.At, first.Touch.Cutoff = late, late, noon
	done := must(s.Commit(ctx, first))(t)
	if done.Generation <= was.Generation || done.LastTurn != 2 || done.Trimmed != 0 {
		t.Errorf("the commit came to %+v, the generation was %d", done, was.Generation)
	}
	wantContents(t, s, k, "s", "t", "anew", "yes")
	wantCounted(t, s, k)
	at := late.UTC().Truncate(time.Microsecond)
	wantExpiredRecord(t, s, was, at)
	wantSame(t, "what was replaced", done.Replaced, expiredOf(was, at))
}

func expiryLateTurn(t *testing.T, s store.Store) {
	ctx := context.Background()
	app := applicationOf(t, s)
	k := keyOf(acme, "1")
	say(t, s, app, k, "hello", "hi")
	c := commitOf(app, k, history(t, s, k).Generation, "late", "turn")
	c.Touch.Cutoff = noon
	wantCode(t, commit(ctx, s, c), abi.ScopeClosed)
	wantContents(t, s, k, "hello", "hi")
	c.Touch.Cutoff = noon.Add(-time.Second)
	noError(t, commit(ctx, s, c))
	// Built on none, where there is one that has not expired.
	c.Generation = 0
	wantCode(t, commit(ctx, s, c), abi.ScopeClosed)
	wantContents(t, s, k, "hello", "hi", "late", "turn")
}

func expiryUse(t *testing.T, s store.Store) {
	ctx := context.Background()
	app := applicationOf(t, s)
	k := keyOf(acme, "1")
	say(t, s, app, k, "hello", "hi")
	generation := history(t, s, k).Generation
	there := func(cutoff store.Cutoff, want bool) {
		t.Helper()
		if v := must(s.View(ctx, k, store.ViewLimit{Messages: 1, Cutoff: cutoff}))(t); (v.Generation > 0) != want {
			t.Errorf("with the cutoff %v the view is %+v", cutoff, v)
		}
	}
	there(noon, false)
	there(noon, false) // still
	touched := touchOf(requestScope(acme, "r"), k)
	touched.At, touched.Cutoff = noon.Add(time.Hour), noon.Add(-time.Hour)
	must(s.Touch(ctx, touched))(t)
	there(noon, true)
	there(noon.Add(time.Hour), false)
	c := commitOf(app, k, generation, "more", "yes")
	c.At = noon.Add(2 * time.Hour)
	noError(t, commit(ctx, s, c))
	there(noon.Add(time.Hour), true)
	there(noon.Add(2*time.Hour), false)
}

func expiryAnew(t *testing.T, s store.Store) {
	app := applicationOf(t, s)
	k := keyOf(acme, "1")
	say(t, s, app, k, "hello", "hi")
	touch(t, s, requestScope(acme, "r"), k)
	again := touchOf(app, k)
	again.At, again.Cutoff = late, noon
	generation := must(s.Touch(context.Background(), again))(t).Generation
	if evicted := closeScope(t, s, "r"); len(evicted) != 1 || evicted[0].Key != k || evicted[0].Messages != 0 {
		t.Errorf("evicted %v", evicted)
	}
	wantGone(t, s, k)
	wantCode(t, commit(context.Background(), s, commitOf(app, k, generation, "late", "turn")), abi.ScopeClosed)
}

func expiryEnds(t *testing.T, s store.Store) {
	ctx := context.Background()
	app := applicationOf(t, s)
	theirs := install(t, s, globex, chat, "their-app")
	use := func(si store.ScopeInstance, id carrel.MemoryID, minute int) carrel.MemoryKey {
		k := keyOf(si.Tenant, id)
		c := commitOf(si, k, 0, "hello", string(id))
		c.Touch.At = noon.Add(time.Duration(minute) * time.Minute)
		c.At = c.Touch.At
		noError(t, commit(ctx, s, c))
		return k
	}
	third, first := use(app, "third", 3), use(app, "first", 1)
	second, fourth := use(theirs, "second", 2), use(theirs, "fourth", 4)
	use(requestScope(acme, "r"), "a request's", 0)
	kept := use(app, "kept", 6)
	at := storedNoon.Add(time.Hour)
	var want []carrel.Eviction
	for _, k := range []carrel.MemoryKey{first, second, third, fourth} {
		want = append(want, carrel.Eviction{
			Handle: handleOf(k), Plugin: chat, Key: k, Reason: carrel.ReasonExpired,
			Messages: 2, Bytes: int64(len("hello") + len(k.ID)), At: at,
		})
	}
	expire := func(cutoff time.Time, limit int) []carrel.Eviction {
		t.Helper()
		return must(s.ExpireHistories(ctx, cutoff, noon.Add(time.Hour), limit))(t)
	}
	wantSame(t, "expired before the first was used", len(expire(noon, 10)), 0)
	wantSame(t, "none are asked for", len(expire(late, 0)), 0)
	wantSame(t, "first three", expire(noon.Add(4*time.Minute), 3), want[:3])
	wantSame(t, "the last", expire(noon.Add(4*time.Minute), 3), want[3:])
	wantSame(t, "no more", len(expire(noon.Add(4*time.Minute), 3)), 0)
	for _, k := range []carrel.MemoryKey{first, second, third, fourth} {
		wantGone(t, s, k)
	}
	wantContents(t, s, kept, "hello", "kept")
	wantContents(t, s, keyOf(acme, "a request's"), "hello", "a request's")
	wantCode(t, commit(ctx, s, commitOf(app, first, 1, "late", "turn")), abi.ScopeClosed)
	if evicted := closeScope(t, s, theirs.ID); len(evicted) != 0 {
		t.Errorf("the application closes with %v", evicted)
	}
}

func expiryNone(t *testing.T, s store.Store) {
	ctx := context.Background()
	app := applicationOf(t, s)
	for i, at := range []time.Time{{}, time.Unix(0, 0), noon} {
		k := keyOf(acme, carrel.MemoryID(fmt.Sprint(i)))
		touched := touchOf(app, k)
		touched.At = at
		generation := must(s.Touch(ctx, touched))(t).Generation
		if again := must(s.Touch(ctx, touched))(t).Generation; again != generation {
			t.Errorf("a history of %v began anew", at)
		}
		wantContents(t, s, k)
	}
	if n := len(must(s.ExpireHistories(ctx, store.Cutoff{}, late, 10))(t)); n != 0 {
		t.Errorf("%d histories expired", n)
	}
}
