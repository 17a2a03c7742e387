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

// The right to be forgotten.
var erasureCases = []testCase{
	{"every history that a subject touched is erased, under whichever key and scope", erasureOfTouched},
	{"what others touched in the subject's open session is erased too", erasureOfSession},
	{"a subject's sessions are gone, open and closed", erasureOfSessions},
	{"a subject's idempotent answers are gone", erasureOfClaims},
	{"the same name in another tenant is somebody else", erasureOfOneTenant},
	{"a subject that nobody heard of has nothing, and the empty one is nobody", erasureOfNobody},
	{"a key that was erased begins anew, and dies with the scopes that touched it", erasureAnew},
	{"a turn under way when its subject is erased is not stored", erasureDuringTurn},
	{"much is erased in changes of a few, the oldest histories first and sessions last", erasureInPages},
	{"what is touched between two changes of an erasure is erased as well", erasureMeanwhile},
}

func touchedBy(t *testing.T, s store.Store, si store.ScopeInstance, k carrel.MemoryKey, key carrel.KeyID, subject carrel.Subject) {
	t.Helper()
	touch := touchOf(si, k)
	touch.By = store.Toucher{Key: key, Subject: subject}
	must(s.Touch(context.Background(), touch))(t)
}

// erase erases all of it at once, where that is little.
func erase(t *testing.T, s store.Store, subject carrel.Subject) []carrel.Eviction {
	t.Helper()
	done := must(s.EraseSubject(context.Background(), acme, subject, noon.Add(time.Hour), 1000))(t)
	if done.More {
		t.Error("it says that there may be more")
	}
	return done.Evicted
}

func erasedOf(k carrel.MemoryKey) carrel.Eviction {
	return carrel.Eviction{Handle: handleOf(k), Plugin: chat, Key: k, Reason: carrel.ReasonErased, At: storedNoon.Add(time.Hour)}
}

func erasureOfTouched(t *testing.T, s store.Store) {
	createTenants(t, s, acme)
	app := install(t, s, acme, chat, "app")
	header := carrel.MemoryKey{Tenant: acme, Namespace: "chat", Kind: carrel.KindPlugin, Owner: "subject:ada", ID: "h"}
	one, both, bobs, nobodys := keyOf(acme, "1"), keyOf(acme, "2"), keyOf(acme, "3"), keyOf(acme, "4")
	touchedBy(t, s, app, header, "key-1", "ada")
	touchedBy(t, s, app, bobs, "key-1", "bob")
	touchedBy(t, s, requestScope(acme, "r"), both, "key-1", "bob")
	touchedBy(t, s, app, nobodys, "key-1", "")
	touchedBy(t, s, requestScope(acme, "r"), one, "key-2", "ada")
	touchedBy(t, s, app, both, "key-2", "ada")
	want := []carrel.Eviction{erasedOf(header), erasedOf(both), erasedOf(one)}
	wantSame(t, "evictions", erase(t, s, "ada"), want)
	for _, k := range []carrel.MemoryKey{header, one, both} {
		wantGone(t, s, k)
	}
	wantContents(t, s, bobs)
	wantContents(t, s, nobodys)
	wantRecords(t, s, want...)
	if again := erase(t, s, "ada"); len(again) != 0 {
		t.Errorf("erasing again evicted %v", again)
	}
	if left := closeScope(t, s, app.ID); len(left) != 2 {
		t.Errorf("the application's close evicted %v", left)
	}
}

func erasureOfSession(t *testing.T, s store.Store) {
	createTenants(t, s, acme)
	adas := sessionOf(acme, ses)
	adas.Owner = store.Toucher{Key: "key-1", Subject: "ada"}
	createSession(t, s, adas)
	k, kept := keyOf(acme, "1"), keyOf(acme, "2")
	touchedBy(t, s, sessionScope(acme, ses), k, "key-1", "")
	touchedBy(t, s, requestScope(acme, "r"), kept, "key-1", "")
	wantSame(t, "evictions", erase(t, s, "ada"), []carrel.Eviction{erasedOf(k)})
	wantGone(t, s, k)
	wantContents(t, s, kept)
	_, err := s.Touch(context.Background(), touchOf(sessionScope(acme, ses), k))
	wantCode(t, err, abi.ScopeClosed)
	wantRecords(t, s, erasedOf(k))
}

func erasureOfSessions(t *testing.T, s store.Store) {
	ctx := context.Background()
	createTenants(t, s, acme)
	for _, id := range []carrel.SessionID{"open", "closed", "bobs"} {
		n := sessionOf(acme, id)
		n.Owner = store.Toucher{Key: "key-1", Subject: "ada"}
		if id == "bobs" {
			n.Owner.Subject = "bob"
		}
		createSession(t, s, n)
	}
	touchedBy(t, s, sessionScope(acme, "closed"), keyOf(acme, "1"), "key-1", "ada")
	closeScope(t, s, "closed")
	if evicted := erase(t, s, "ada"); len(evicted) != 0 {
		t.Errorf("evicted %v", evicted)
	}
	for _, id := range []carrel.SessionID{"open", "closed"} {
		_, err := s.Session(ctx, acme, id, nil)
		wantCode(t, err, abi.NotFound)
	}
	if got := session(t, s, "bobs"); !got.ClosedAt.IsZero() {
		t.Errorf("the other's session is %+v", got)
	}
	wantSame(t, "open scopes", ids(must(s.ListScopes(ctx, carrel.ScopeSession, "", 10))(t)), []carrel.ScopeID{"bobs"})
}

func erasureOfClaims(t *testing.T, s store.Store) {
	for n, subject := range []carrel.Subject{"ada", "ada", "bob"} {
		c := claimOf(byte(n))
		c.Subject = subject
		claim(t, s, c)
	}
	answer(t, s, 0)
	erase(t, s, "ada")
	for n, want := range []store.ClaimState{store.ClaimTaken, store.ClaimTaken, store.ClaimElsewhere} {
		c := claimOf(byte(n))
		c.Node = "run-2"
		if got := claim(t, s, c); got.State != want {
			t.Errorf("claim %d is %v, want %v", n, got.State, want)
		}
	}
}

func erasureOfOneTenant(t *testing.T, s store.Store) {
	createTenants(t, s, acme, globex)
	theirs := sessionOf(globex, ses)
	theirs.Owner.Subject = "ada"
	createSession(t, s, theirs)
	touchedBy(t, s, requestScope(globex, "r2"), keyOf(globex, "1"), "key-1", "ada")
	touchedBy(t, s, requestScope(acme, "r"), keyOf(acme, "1"), "key-1", "ada")
	wantSame(t, "evictions", erase(t, s, "ada"), []carrel.Eviction{erasedOf(keyOf(acme, "1"))})
	wantContents(t, s, keyOf(globex, "1"))
	must(s.Session(context.Background(), globex, ses, nil))(t)
}

func erasureOfNobody(t *testing.T, s store.Store) {
	touchedBy(t, s, requestScope(acme, "r"), keyOf(acme, "1"), "key-1", "")
	for _, subject := range []carrel.Subject{"", "eve"} {
		if evicted := erase(t, s, subject); len(evicted) != 0 {
			t.Errorf("evicted %v", evicted)
		}
	}
	wantContents(t, s, keyOf(acme, "1"))
}

func erasureAnew(t *testing.T, s store.Store) {
	r, k := requestScope(acme, "r"), keyOf(acme, "1")
	say(t, s, r, k, "hello", "hi")
	old := history(t, s, k).Generation
	erase(t, s, "ada")
	wantGone(t, s, k)
	say(t, s, requestScope(acme, "r2"), k, "anew", "yes")
	if now := history(t, s, k).Generation; now <= old {
		t.Errorf("the new generation is %d, the old one was %d", now, old)
	}
	wantContents(t, s, k, "anew", "yes")
	if evicted := closeScope(t, s, "r"); len(evicted) != 1 || evicted[0].Messages != 2 {
		t.Errorf("evicted %v", evicted)
	}
	if n := len(records(t, s, store.EvictionFilter{Tenant: acme})); n != 2 {
		t.Errorf("there are %d records", n)
	}
}

func erasureDuringTurn(t *testing.T, s store.Store) {
	r, k := requestScope(acme, "r"), keyOf(acme, "1")
	generation := touch(t, s, r, k)
	erase(t, s, "ada")
	wantCode(t, commit(context.Background(), s, commitOf(r, k, generation, "late", "turn")), abi.ScopeClosed)
	wantGone(t, s, k)
}

// erasureFew is how many of each an erasure of pages takes.
const erasureFew = 3

func erasureInPages(t *testing.T, s store.Store) {
	ctx := context.Background()
	createTenants(t, s, acme)
	var want []carrel.MemoryKey
	for i := range 7 {
		k := keyOf(acme, carrel.MemoryID(fmt.Sprint(i)))
		touchedBy(t, s, requestScope(acme, "r"), k, carrel.KeyID(fmt.Sprint("key-", i%2)), "ada")
		touchedBy(t, s, requestScope(acme, "r"), k, "key-2", "ada") // found twice, reported once
		want = append(want, k)
	}
	for i := range 4 {
		n := sessionOf(acme, carrel.SessionID(fmt.Sprint("ses_", i)))
		n.Owner = store.Toucher{Key: "key-1", Subject: "ada"}
		createSession(t, s, n)
		k := keyOf(acme, carrel.MemoryID(fmt.Sprint("in ", i)))
		touchedBy(t, s, sessionScope(acme, n.ID), k, "key-1", "")
		if want = append(want, k); i == 3 {
			closeScope(t, s, "ses_3")
			want = want[:len(want)-1]
		}
	}
	for i := range byte(2 * erasureFew) {
		c := claimOf(i)
		c.Subject = "ada"
		claim(t, s, c)
	}
	var got []carrel.MemoryKey
	changes := 0
	for more := true; more; changes++ {
		done := must(s.EraseSubject(ctx, acme, "ada", noon, erasureFew))(t)
		if more = done.More; len(done.Evicted) > erasureFew || changes > 20 {
			t.Fatalf("change %d evicts %v", changes, done.Evicted)
		}
		for _, e := range done.Evicted {
			got = append(got, e.Key)
		}
		// Nothing that was touched in a session outlives it.
		open := must(s.ListSessions(ctx, acme, nil, "", 10))(t)
		if left := must(s.ListHistories(ctx, store.HistoryFilter{Tenant: acme, Limit: 10}))(t); len(left) > 0 && len(open) != 3 {
			t.Errorf("after %d changes %d sessions and %d histories are left", changes+1, len(open), len(left))
		}
	}
	wantSame(t, "erased", got, want)
	for i := range 4 {
		_, err := s.Session(ctx, acme, carrel.SessionID(fmt.Sprint("ses_", i)), nil)
		wantCode(t, err, abi.NotFound)
	}
	if open := must(s.ListScopes(ctx, carrel.ScopeSession, "", 10))(t); len(open) != 0 {
		t.Errorf("open are %v", open)
	}
	for i := range byte(2 * erasureFew) {
		c := claimOf(i)
		c.Node = "run-2"
		if now := claim(t, s, c); now.State != store.ClaimTaken {
			t.Errorf("claim %d is %v", i, now.State)
		}
	}
}

func erasureMeanwhile(t *testing.T, s store.Store) {
	ctx := context.Background()
	for i := range 2 * erasureFew {
		touchedBy(t, s, requestScope(acme, "r"), keyOf(acme, carrel.MemoryID(fmt.Sprint(i))), "key-1", "ada")
	}
	late := keyOf(acme, "late")
	var got []carrel.Eviction
	for i, more := 0, true; more; i++ {
		done := must(s.EraseSubject(ctx, acme, "ada", noon, erasureFew))(t)
		if got, more = append(got, done.Evicted...), done.More; i == 0 {
			touchedBy(t, s, requestScope(acme, "r2"), late, "key-1", "ada")
		}
	}
	if len(got) != 2*erasureFew+1 || got[len(got)-1].Key != late {
		t.Errorf("erased are %v", got)
	}
	wantGone(t, s, late)
}
