package storetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/store"
)

// What remains of histories that ended.
var recordCases = []testCase{
	{"a scope that closes leaves a record of each history, with its name and what it held", recordOfScope},
	{"a history that is deleted or expires leaves a record without a scope", recordOfOne},
	{"the record of an erased history has no memory id", recordOfErased},
	{"an expired history that is used again leaves one record", recordOfRenewed},
	{"a history made anew leaves a record of its own", recordOfAnew},
	{"a history that two scopes touched leaves one record", recordOnce},
	{"numbers rise within each tenant and are not used again", recordNumbers},
	{"records are picked by time and by number, page by page", recordFilter},
	{"old records are forgotten, as many at a time as wanted", recordForgotten},
	{"a session keeps which scope ended its histories", recordOfSession},
}

func records(t *testing.T, s store.Store, f store.EvictionFilter) []store.EvictionRecord {
	t.Helper()
	if f.Limit == 0 {
		f.Limit = 1000
	}
	return must(s.ListEvictions(context.Background(), f))(t)
}

func deleteHistory(t *testing.T, s store.Store, k carrel.MemoryKey, why carrel.EvictionReason, at time.Time) carrel.Eviction {
	t.Helper()
	return must(s.DeleteHistory(context.Background(), k, store.Deletion{Reason: why, At: at}))(t)
}

// wantRecords checks that acme has the records of evictions, in any order.
func wantRecords(t *testing.T, s store.Store, want ...carrel.Eviction) {
	t.Helper()
	got := records(t, s, store.EvictionFilter{Tenant: acme})
	left := make(map[store.EvictionRecord]int)
	for i, r := range got {
		if i > 0 && r.N <= got[i-1].N {
			t.Errorf("record %d follows record %d", r.N, got[i-1].N)
		}
		r.N = 0
		left[r]++
	}
	for _, e := range want {
		id := e.Key.ID
		if e.Reason == carrel.ReasonErased {
			id = ""
		}
		r := store.EvictionRecord{
			Handle: e.Handle, Plugin: e.Plugin, MemoryID: id, Scope: e.Scope, Instance: e.Instance,
			Reason: e.Reason, Messages: e.Messages, Bytes: e.Bytes, At: e.At,
		}
		if left[r]--; left[r] < 0 {
			t.Errorf("there is no record %+v", r)
		}
	}
	if len(got) != len(want) {
		t.Errorf("there are %d records, want %d: %+v", len(got), len(want), got)
	}
}

func recordOfScope(t *testing.T, s store.Store) {
	one, two := keyOf(acme, "1"), keyOf(acme, "2")
	say(t, s, requestScope(acme, "r"), one, "hello", "hi")
	touch(t, s, requestScope(acme, "r"), two)
	touch(t, s, requestScope(acme, "other"), keyOf(acme, "3"))
	evicted := closeScope(t, s, "r")
	wantRecords(t, s, evicted...)
	got := records(t, s, store.EvictionFilter{Tenant: acme})
	wantSame(t, "the first record", got[0], store.EvictionRecord{
		N: got[0].N, Handle: handleOf(one), Plugin: chat, MemoryID: "1", Scope: carrel.ScopeRequest, Instance: "r",
		Reason: carrel.ReasonScopeClosed, Messages: 2, Bytes: 7, At: storedNoon,
	})
	closeScope(t, s, "r")
	wantRecords(t, s, evicted...)
	if other := records(t, s, store.EvictionFilter{Tenant: globex}); len(other) != 0 {
		t.Errorf("another tenant has %+v", other)
	}
}

func recordOfOne(t *testing.T, s store.Store) {
	ctx := context.Background()
	createTenants(t, s, acme)
	app := install(t, s, acme, chat, "app")
	old, young := keyOf(acme, "old"), keyOf(acme, "young")
	say(t, s, app, old, "hello", "hi")
	say(t, s, app, young, "hello", "hi")
	deleted := deleteHistory(t, s, young, carrel.ReasonDeleted, noon)
	expired := must(s.ExpireHistories(ctx, noon.Add(time.Hour), noon.Add(2*time.Hour), 10))(t)
	if len(expired) != 1 {
		t.Fatalf("expired are %+v", expired)
	}
	for _, e := range append(expired, deleted) {
		if e.Scope != "" || e.Instance != "" {
			t.Errorf("it names a scope: %+v", e)
		}
	}
	wantRecords(t, s, append(expired, deleted)...)
	closeScope(t, s, app.ID)
	wantRecords(t, s, append(expired, deleted)...)
}

func recordOfErased(t *testing.T, s store.Store) {
	say(t, s, requestScope(acme, "r"), keyOf(acme, "1"), "hello", "hi")
	if e := deleteHistory(t, s, keyOf(acme, "1"), carrel.ReasonErased, noon); e.Key.ID != "1" {
		t.Errorf("the report is %+v", e)
	}
	got := records(t, s, store.EvictionFilter{Tenant: acme})
	if len(got) != 1 || got[0].MemoryID != "" || got[0].Handle != handleOf(keyOf(acme, "1")) || got[0].Messages != 2 {
		t.Errorf("records are %+v", got)
	}
}

func recordOfRenewed(t *testing.T, s store.Store) {
	ctx := context.Background()
	createTenants(t, s, acme)
	app := install(t, s, acme, chat, "app")
	k := keyOf(acme, "1")
	say(t, s, app, k, "hello", "hi")
	again := touchOf(app, k)
	again.At, again.Cutoff = noon.Add(2*time.Hour), noon.Add(time.Hour)
	must(s.Touch(ctx, again))(t)
	wantRecords(t, s, carrel.Eviction{
		Handle: handleOf(k), Plugin: chat, Key: k, Reason: carrel.ReasonExpired, Messages: 2, Bytes: 7, At: storedNoon.Add(2 * time.Hour),
	})
}

func recordOfAnew(t *testing.T, s store.Store) {
	k := keyOf(acme, "1")
	var evicted []carrel.Eviction
	for range 3 {
		say(t, s, requestScope(acme, "r"), k, "hello", "hi")
		evicted = append(evicted, deleteHistory(t, s, k, carrel.ReasonDeleted, noon))
	}
	say(t, s, requestScope(acme, "r"), k, "hello", "hi")
	evicted = append(evicted, closeScope(t, s, "r")...)
	say(t, s, requestScope(acme, "r2"), k, "hello", "hi")
	evicted = append(evicted, closeScope(t, s, "r2")...)
	if len(evicted) != 5 {
		t.Fatalf("evicted %v", evicted)
	}
	wantRecords(t, s, evicted...)
}

func recordOnce(t *testing.T, s store.Store) {
	k := keyOf(acme, "1")
	say(t, s, requestScope(acme, "r"), k, "hello", "hi")
	touch(t, s, requestScope(acme, "r2"), k)
	evicted := closeScope(t, s, "r")
	wantRecords(t, s, append(evicted, closeScope(t, s, "r2")...)...)
}

func recordNumbers(t *testing.T, s store.Store) {
	ctx := context.Background()
	used := make(map[int64]bool)
	last := int64(0)
	for n := range 6 {
		tenant := acme
		if n%3 == 2 {
			tenant = globex
		}
		k := keyOf(tenant, carrel.MemoryID(fmt.Sprint(n)))
		touch(t, s, requestScope(tenant, carrel.ScopeID(fmt.Sprint("r", n))), k)
		deleteHistory(t, s, k, carrel.ReasonDeleted, noon)
		got := records(t, s, store.EvictionFilter{Tenant: acme})
		for _, r := range got {
			if used[r.N] || r.N <= last {
				t.Errorf("number %d was used before, the last is %d", r.N, last)
			}
			used[r.N], last = true, r.N
		}
		must(s.ForgetEvictions(ctx, noon.Add(time.Second), 100))(t)
	}
	if len(used) != 4 {
		t.Errorf("%d numbers were used", len(used))
	}
}

// endInHours ends a history in each of some hours.
func endInHours(t *testing.T, s store.Store, hours int) {
	t.Helper()
	for n := range hours {
		k := keyOf(acme, carrel.MemoryID(fmt.Sprint(n)))
		touch(t, s, requestScope(acme, carrel.ScopeID(fmt.Sprint("r", n))), k)
		deleteHistory(t, s, k, carrel.ReasonDeleted, noon.Add(time.Duration(n)*time.Hour))
		records(t, s, store.EvictionFilter{Tenant: acme}) // each before the next
	}
}

func recordIDs(all []store.EvictionRecord) []carrel.MemoryID {
	ids := []carrel.MemoryID{}
	for _, r := range all {
		ids = append(ids, r.MemoryID)
	}
	return ids
}

func recordFilter(t *testing.T, s store.Store) {
	endInHours(t, s, 5)
	all := walk(t, 2, func(last *store.EvictionRecord) ([]store.EvictionRecord, error) {
		return s.ListEvictions(context.Background(), store.EvictionFilter{
			Tenant: acme, Limit: 2, After: orElse(last, 0, func(r store.EvictionRecord) int64 { return r.N }),
		})
	})
	wantSame(t, "all", recordIDs(all), []carrel.MemoryID{"0", "1", "2", "3", "4"})
	since := store.EvictionFilter{Tenant: acme, Since: storedNoon.Add(2 * time.Hour)}
	wantSame(t, "since", recordIDs(records(t, s, since)), []carrel.MemoryID{"2", "3", "4"})
	since.After = all[2].N
	wantSame(t, "since and after", recordIDs(records(t, s, since)), []carrel.MemoryID{"3", "4"})
	if none := must(s.ListEvictions(context.Background(), store.EvictionFilter{Tenant: acme}))(t); len(none) != 0 {
		t.Errorf("a limit of 0 yields %v", none)
	}
}

func recordForgotten(t *testing.T, s store.Store) {
	ctx := context.Background()
	endInHours(t, s, 5)
	for _, step := range []struct{ limit, want int }{{2, 2}, {0, 0}, {2, 1}, {2, 0}} {
		if n := must(s.ForgetEvictions(ctx, storedNoon.Add(3*time.Hour), step.limit))(t); n != step.want {
			t.Errorf("of at most %d, %d were forgotten, want %d", step.limit, n, step.want)
		}
	}
	wantSame(t, "left", recordIDs(records(t, s, store.EvictionFilter{Tenant: acme})), []carrel.MemoryID{"3", "4"})
}

func recordOfSession(t *testing.T, s store.Store) {
	createTenants(t, s, acme)
	createSession(t, s, sessionOf(acme, ses))
	say(t, s, sessionScope(acme, ses), keyOf(acme, "1"), "hello", "hi")
	evicted := closeScope(t, s, carrel.ScopeID(ses))
	if len(evicted) != 1 || evicted[0].Scope != carrel.ScopeSession || evicted[0].Instance != carrel.ScopeID(ses) {
		t.Errorf("evicted %+v", evicted)
	}
	wantSame(t, "kept", session(t, s, ses).Evicted, evicted)
	wantRecords(t, s, evicted...)
	wantSame(t, "kept when all is deleted", session(t, s, ses).Evicted, evicted)
}
