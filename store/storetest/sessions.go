package storetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/store"
)

var sessionCases = []testCase{
	{"a session comes back whole, and its scope instance is open", sessionFound},
	{"a new session is open and unused, whatever its creator says", sessionNew},
	{"a session is its owner's: tenant, key and subject", sessionOwner},
	{"a session of a missing tenant is not found", sessionOfMissingTenant},
	{"an id is given once, to sessions of both kinds", sessionUnique},
	{"past the quota no session is opened and the limit is named", sessionQuota},
	{"the use of a session moves forward, never back", sessionUsed},
	{"open sessions are listed in order of id, page by page, of all or of one owner", sessionPages},
	{"a session expires at the last instant of its idle or its max time", sessionExpiry},
	{"expired sessions of all tenants are listed, the longest expired first", sessionsExpired},
	{"metadata that a caller changes later is not the store's", sessionCopies},
}

const ses carrel.SessionID = "ses_1"

var ada = store.Toucher{Key: "key-1", Subject: "ada"}

func sessionOf(t carrel.TenantID, id carrel.SessionID) store.Session {
	return store.Session{
		ID:         id,
		Tenant:     t,
		Owner:      ada,
		IdleTTL:    30 * time.Minute,
		MaxTTL:     8 * time.Hour,
		CreatedAt:  noon,
		LastUsedAt: noon,
	}
}

func createSession(t *testing.T, s store.Store, n store.Session) {
	t.Helper()
	noError(t, s.CreateSession(context.Background(), n, 100))
}

// session returns a session of acme.
func session(t *testing.T, s store.Store, id carrel.SessionID) store.Session {
	t.Helper()
	return must(s.Session(context.Background(), acme, id, nil))(t)
}

// sessionScope is the scope instance of an HTTP session.
func sessionScope(t carrel.TenantID, id carrel.SessionID) store.ScopeInstance {
	return store.ScopeInstance{ID: carrel.ScopeID(id), Tenant: t, Scope: carrel.ScopeSession, OpenedAt: noon}
}

func sessionIDs(list []store.Session) []carrel.SessionID {
	var out []carrel.SessionID
	for _, ses := range list {
		out = append(out, ses.ID)
	}
	return out
}

func sessionFound(t *testing.T, s store.Store) {
	ctx := context.Background()
	createTenants(t, s, acme)
	n := sessionOf(acme, ses)
	n.IdleTTL += 999 * time.Nanosecond
	n.MaxTTL += time.Microsecond
	n.Metadata = []byte(`{"from": "a kiosk"}`)
	createSession(t, s, n)
	want := n
	want.IdleTTL = 30 * time.Minute
	want.CreatedAt, want.LastUsedAt = storedNoon, storedNoon
	wantSame(t, "session", session(t, s, ses), want)
	wantSame(t, "open sessions", must(s.ListSessions(ctx, acme, nil, "", 10))(t), []store.Session{want})

	si := sessionScope(acme, ses)
	si.OpenedAt = storedNoon
	wantSame(t, "open scopes", must(s.ListScopes(ctx, carrel.ScopeSession, "", 10))(t), []store.ScopeInstance{si})
	say(t, s, si, keyOf(acme, "1"), "hello", "hi")
	wantContents(t, s, keyOf(acme, "1"), "hello", "hi")
}

func sessionNew(t *testing.T, s store.Store) {
	createTenants(t, s, acme)
	n := sessionOf(acme, ses)
	n.LastUsedAt = noon.Add(time.Hour)
	n.ClosedAt, n.Reason, n.Evicted = noon, carrel.ReasonExpired, []carrel.Eviction{{Plugin: chat}}
	n.Metadata = []byte{}
	createSession(t, s, n)
	want := sessionOf(acme, ses)
	want.CreatedAt, want.LastUsedAt = storedNoon, storedNoon
	wantSame(t, "session", session(t, s, ses), want)
}

func sessionOwner(t *testing.T, s store.Store) {
	ctx := context.Background()
	createTenants(t, s, acme, globex)
	createSession(t, s, sessionOf(acme, ses))
	must(s.Session(ctx, acme, ses, &ada))(t)
	for name, who := range map[string]struct {
		tenant carrel.TenantID
		by     *store.Toucher
	}{
		"another tenant":                     {globex, nil},
		"another tenant's equal key":         {globex, &ada},
		"a tenant that does not exist":       {"initech", nil},
		"another key":                        {acme, &store.Toucher{Key: "key-2", Subject: ada.Subject}},
		"the key on behalf of another":       {acme, &store.Toucher{Key: ada.Key, Subject: "eve"}},
		"the key on behalf of nobody":        {acme, &store.Toucher{Key: ada.Key}},
		"nobody":                             {acme, &store.Toucher{}},
		"the names exchanged for each other": {acme, &store.Toucher{Key: carrel.KeyID(ada.Subject), Subject: carrel.Subject(ada.Key)}},
	} {
		if _, err := s.Session(ctx, who.tenant, ses, who.by); carrel.CodeOf(err) != abi.NotFound {
			t.Errorf("%s: %v, want not_found", name, err)
		}
		if list := must(s.ListSessions(ctx, who.tenant, who.by, "", 10))(t); len(list) != 0 {
			t.Errorf("%s sees %v", name, list)
		}
	}
	wantCode(t, s.UseSession(ctx, globex, ses, noon.Add(time.Minute)), abi.NotFound)
	if used := session(t, s, ses).LastUsedAt; !used.Equal(storedNoon) {
		t.Errorf("another tenant used the session at %v", used)
	}
	_, err := s.Touch(ctx, touchOf(sessionScope(globex, ses), keyOf(globex, "1")))
	wantCode(t, err, abi.ScopeClosed)
	wantGone(t, s, keyOf(globex, "1"))

	// A closed one is its owner's, too.
	closeScope(t, s, carrel.ScopeID(ses))
	_, err = s.Session(ctx, globex, ses, nil)
	wantCode(t, err, abi.NotFound)
	_, err = s.Session(ctx, acme, ses, &store.Toucher{Key: ada.Key})
	wantCode(t, err, abi.NotFound)
	wantCode(t, s.UseSession(ctx, globex, ses, noon), abi.NotFound)
}

func sessionOfMissingTenant(t *testing.T, s store.Store) {
	ctx := context.Background()
	wantCode(t, s.CreateSession(ctx, sessionOf(acme, ses), 10), abi.NotFound)
	_, err := s.Session(ctx, acme, ses, nil)
	wantCode(t, err, abi.NotFound)
	if open := must(s.ListScopes(ctx, carrel.ScopeSession, "", 10))(t); len(open) != 0 {
		t.Errorf("a scope is open: %v", open)
	}
}

func sessionUnique(t *testing.T, s store.Store) {
	ctx := context.Background()
	createTenants(t, s, acme, globex)
	createSession(t, s, sessionOf(acme, ses))
	noError(t, s.OpenSession(ctx, socketScope(acme, "ses_ws", node)))
	closedOne := sessionOf(acme, "ses_closed")
	createSession(t, s, closedOne)
	closeScope(t, s, "ses_closed")
	touch(t, s, requestScope(acme, "r"), keyOf(acme, "1"))
	for _, id := range []carrel.SessionID{ses, "ses_ws", "ses_closed", "r"} {
		for _, tenant := range []carrel.TenantID{acme, globex} {
			other := sessionOf(tenant, id)
			other.Owner.Key = "key-2"
			// The quota is reached as well: what exists is said first.
			wantIs(t, s.CreateSession(ctx, other, 0), store.ErrExists)
			wantIs(t, s.OpenSession(ctx, socketScope(tenant, carrel.ScopeID(id), node)), store.ErrExists)
		}
	}
	if got := session(t, s, ses); got.Owner != ada {
		t.Errorf("the session's owner is %+v now", got.Owner)
	}
	want := []carrel.ScopeID{carrel.ScopeID(ses), "ses_ws"}
	wantSame(t, "open scopes", ids(must(s.ListScopes(ctx, carrel.ScopeSession, "", 10))(t)), want)
}

func sessionQuota(t *testing.T, s store.Store) {
	ctx := context.Background()
	createTenants(t, s, acme, globex)
	createSession(t, s, sessionOf(acme, "ses_1"))
	createSession(t, s, sessionOf(acme, "ses_2"))
	err := s.CreateSession(ctx, sessionOf(acme, "ses_3"), 2)
	wantCode(t, err, abi.QuotaExceeded)
	if e, ok := errors.AsType[*carrel.Error](err); ok && e.Limit != "sessions" {
		t.Errorf("the limit is %q", e.Limit)
	}
	_, err = s.Session(ctx, acme, "ses_3", nil)
	wantCode(t, err, abi.NotFound)
	if open := must(s.ListScopes(ctx, carrel.ScopeSession, "", 10))(t); len(open) != 2 {
		t.Errorf("open scopes are %v", open)
	}
	// Another tenant's sessions do not count, nor do sockets or closed ones.
	noError(t, s.CreateSession(ctx, sessionOf(globex, "ses_4"), 1))
	noError(t, s.OpenSession(ctx, socketScope(acme, "ses_ws", node)))
	closeScope(t, s, "ses_1")
	noError(t, s.CreateSession(ctx, sessionOf(acme, "ses_3"), 2))
	wantCode(t, s.CreateSession(ctx, sessionOf(acme, "ses_5"), 2), abi.QuotaExceeded)
	// Closing again gives no more room.
	closeScope(t, s, "ses_1")
	wantCode(t, s.CreateSession(ctx, sessionOf(acme, "ses_5"), 2), abi.QuotaExceeded)
}

func sessionUsed(t *testing.T, s store.Store) {
	ctx := context.Background()
	createTenants(t, s, acme)
	createSession(t, s, sessionOf(acme, ses))
	want := session(t, s, ses)
	for _, later := range []time.Duration{5 * time.Minute, 3 * time.Minute, 5 * time.Minute, 6 * time.Minute} {
		noError(t, s.UseSession(ctx, acme, ses, noon.Add(later)))
		if at := storedNoon.Add(later); at.After(want.LastUsedAt) {
			want.LastUsedAt = at
		}
		wantSame(t, "session", session(t, s, ses), want)
	}
	wantCode(t, s.UseSession(ctx, acme, "ses_2", noon), abi.NotFound)
	closeScope(t, s, carrel.ScopeID(ses))
	wantCode(t, s.UseSession(ctx, acme, ses, noon.Add(time.Hour)), abi.SessionClosed)
	if used := session(t, s, ses).LastUsedAt; !used.Equal(want.LastUsedAt) {
		t.Errorf("the closed session was used at %v", used)
	}
	// A WebSocket's own session is none of these.
	noError(t, s.OpenSession(ctx, socketScope(acme, "ses_ws", node)))
	wantCode(t, s.UseSession(ctx, acme, "ses_ws", noon), abi.NotFound)
}

func sessionPages(t *testing.T, s store.Store) {
	ctx := context.Background()
	createTenants(t, s, acme, globex)
	eve := store.Toucher{Key: ada.Key, Subject: "eve"}
	for _, id := range []carrel.SessionID{"d", "a", "e", "b", "c", "closed"} {
		n := sessionOf(acme, id)
		if id == "b" {
			n.Owner = eve
		}
		createSession(t, s, n)
	}
	createSession(t, s, sessionOf(globex, "f"))
	noError(t, s.OpenSession(ctx, socketScope(acme, "g", node)))
	closeScope(t, s, "closed")
	listed := func(by *store.Toucher, limit int) []carrel.SessionID {
		t.Helper()
		return sessionIDs(walk(t, limit, func(last *store.Session) ([]store.Session, error) {
			after := orElse(last, "", func(ses store.Session) carrel.SessionID { return ses.ID })
			return s.ListSessions(ctx, acme, by, after, limit)
		}))
	}
	wantSame(t, "all", listed(nil, 2), []carrel.SessionID{"a", "b", "c", "d", "e"})
	wantSame(t, "one owner's", listed(&ada, 2), []carrel.SessionID{"a", "c", "d", "e"})
	wantSame(t, "another owner's", listed(&eve, 2), []carrel.SessionID{"b"})
	if none := must(s.ListSessions(ctx, acme, nil, "", 0))(t); len(none) != 0 {
		t.Errorf("at most 0 sessions are %v", none)
	}
}

func sessionExpiry(t *testing.T, s store.Store) {
	ctx := context.Background()
	createTenants(t, s, acme)
	n := sessionOf(acme, ses)
	n.IdleTTL, n.MaxTTL = 30*time.Minute, time.Hour
	createSession(t, s, n)
	expiresAfter := func(ttl time.Duration) {
		t.Helper()
		for now, want := range map[time.Time][]carrel.SessionID{
			noon:                                  nil,
			storedNoon.Add(ttl - time.Nanosecond): nil,
			storedNoon.Add(ttl):                   {ses},
			storedNoon.Add(100 * time.Hour):       {ses},
		} {
			wantSame(t, "expired at "+now.String(), sessionIDs(must(s.ExpiredSessions(ctx, now, 10))(t)), want)
		}
	}
	expiresAfter(30 * time.Minute)
	noError(t, s.UseSession(ctx, acme, ses, noon.Add(20*time.Minute)))
	expiresAfter(50 * time.Minute)
	noError(t, s.UseSession(ctx, acme, ses, noon.Add(10*time.Minute)))
	expiresAfter(50 * time.Minute)
	// The idle time would now end later than the longest time.
	noError(t, s.UseSession(ctx, acme, ses, noon.Add(40*time.Minute)))
	expiresAfter(time.Hour)
	noError(t, s.UseSession(ctx, acme, ses, noon.Add(2*time.Hour)))
	expiresAfter(time.Hour)
	// Expired is not closed: that is the caller's to do.
	if got := session(t, s, ses); !got.ClosedAt.IsZero() {
		t.Errorf("the session closed by itself: %+v", got)
	}
	touch(t, s, sessionScope(acme, ses), keyOf(acme, "1"))
}

func sessionsExpired(t *testing.T, s store.Store) {
	ctx := context.Background()
	createTenants(t, s, acme, globex)
	create := func(tenant carrel.TenantID, id carrel.SessionID, idle, longest int) {
		n := sessionOf(tenant, id)
		n.IdleTTL, n.MaxTTL = time.Duration(idle)*time.Minute, time.Duration(longest)*time.Minute
		createSession(t, s, n)
	}
	create(acme, "a", 40, 100)
	create(globex, "b", 100, 10)
	create(acme, "c", 20, 30)
	create(acme, "d", 100, 100)
	create(acme, "closed", 1, 1)
	closeScope(t, s, "closed")
	noError(t, s.OpenSession(ctx, socketScope(acme, "socket", node)))
	expired := func(minutes, limit int) []carrel.SessionID {
		return sessionIDs(must(s.ExpiredSessions(ctx, noon.Add(time.Duration(minutes)*time.Minute), limit))(t))
	}
	wantSame(t, "expired", expired(99, 10), []carrel.SessionID{"b", "c", "a"})
	wantSame(t, "the longest expired", expired(99, 2), []carrel.SessionID{"b", "c"})
	wantSame(t, "expired sooner", expired(15, 10), []carrel.SessionID{"b"})
	if first := must(s.ExpiredSessions(ctx, time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), 1))(t); len(first) != 1 || first[0].ID != "b" {
		t.Errorf("the first of all that will expire is %v", first)
	}
	if none := expired(99, 0); len(none) != 0 {
		t.Errorf("at most 0 sessions are %v", none)
	}
	noError(t, s.UseSession(ctx, acme, "c", noon.Add(15*time.Minute))) // until 30
	noError(t, s.UseSession(ctx, acme, "a", noon.Add(15*time.Minute))) // until 55
	wantSame(t, "expired after uses", expired(54, 10), []carrel.SessionID{"b", "c"})
	wantSame(t, "whole", must(s.ExpiredSessions(ctx, noon.Add(54*time.Minute), 10))(t)[1], session(t, s, "c"))
	closeScope(t, s, "b")
	closeScope(t, s, "c")
	if left := expired(54, 10); len(left) != 0 {
		t.Errorf("closed ones are left: %v", left)
	}
}

func sessionCopies(t *testing.T, s store.Store) {
	createTenants(t, s, acme)
	n := sessionOf(acme, ses)
	n.Metadata = []byte(`{"a":1}`)
	createSession(t, s, n)
	n.Metadata[0] = '!'
	say(t, s, sessionScope(acme, ses), keyOf(acme, "1"), "hello", "hi")
	evicted := closeScope(t, s, carrel.ScopeID(ses))
	evicted[0].Plugin = "changed"
	got := session(t, s, ses)
	got.Metadata[1], got.Evicted[0].Plugin = '!', "changed"
	got = session(t, s, ses)
	if string(got.Metadata) != `{"a":1}` || got.Evicted[0].Plugin != chat {
		t.Errorf("the session is %+v", got)
	}
}
