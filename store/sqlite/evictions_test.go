package sqlite_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/store"
	"github.com/carrelhost/carrel/store/sqlite"
)

func records(t *testing.T, s *sqlite.Store) []store.EvictionRecord {
	t.Helper()
	return must(s.ListEvictions(t.Context(), store.EvictionFilter{Tenant: acme, Limit: 1_000_000}))(t)
}

// wantOneRecordEach checks that each of many keys has a record, and the keys
// in twice have two.
func wantOneRecordEach(t *testing.T, s *sqlite.Store, keys int, twice ...int) {
	t.Helper()
	left := make(map[carrel.MemoryID]int)
	for n := range keys {
		left[carrel.MemoryID(fmt.Sprint(n))]++
	}
	for _, n := range twice {
		left[carrel.MemoryID(fmt.Sprint(n))]++
	}
	numbers := make(map[int64]bool)
	for _, r := range records(t, s) {
		if numbers[r.N] {
			t.Errorf("number %d was given twice", r.N)
		}
		numbers[r.N] = true
		left[r.MemoryID]--
	}
	for id, n := range left {
		if n != 0 {
			t.Errorf("of history %s, %d records are missing", id, n)
		}
	}
}

func TestOnlyTheNewestRecordsOfATenantAreKept(t *testing.T) {
	ctx := t.Context()
	s := open(t, sqlite.Config{Path: newPath(t), EvictionRecords: 3})
	want := func(ids ...carrel.MemoryID) {
		t.Helper()
		var got []carrel.MemoryID
		for _, r := range records(t, s) {
			got = append(got, r.MemoryID)
		}
		if d := cmp.Diff(ids, got); d != "" {
			t.Errorf("records (-want +got):\n%s", d)
		}
	}
	for n := range 5 {
		commit(t, s, commitOf(n, 0, "hello", "hi"))
		k, _ := keyOf(n)
		must(s.DeleteHistory(ctx, k, store.Deletion{Reason: carrel.ReasonDeleted, At: noon}))(t)
		wantRows(t, s, map[string]int{"evictions": min(n+1, 3)})
	}
	want("2", "3", "4")
	fill(t, s, requestScope("many"), many)
	must(s.CloseScope(ctx, "many", carrel.ReasonScopeClosed, noon))(t)
	emptied(ctx, s)
	want("597", "598", "599")
}

func TestALargeScopeLeavesOneRecordOfEachHistoryAcrossARestart(t *testing.T) {
	ctx := t.Context()
	path := newPath(t)
	s := open(t, sqlite.Config{Path: path})
	if err := createTenant(ctx, s, acme); err != nil {
		t.Fatal(err)
	}
	si := sessionScope(t, s, "ses_large", many)
	s.HoldClosing(si.ID)
	must(s.CloseScope(ctx, si.ID, carrel.ReasonExpired, noon))(t)
	if n := len(records(t, s)); n != 0 {
		t.Errorf("%d records are there before anything is deleted", n)
	}
	commit(t, s, commitOf(0, 0, "anew", "yes"))
	got := records(t, s)
	if len(got) != 1 || got[0].MemoryID != "0" || got[0].Scope != carrel.ScopeSession || got[0].Instance != si.ID ||
		got[0].Reason != carrel.ReasonExpired || !got[0].At.Equal(noon) || got[0].Messages != 2 {
		t.Errorf("the record of what was replaced is %+v", got)
	}
	closeStore(t, s)

	s = open(t, sqlite.Config{Path: path})
	emptied(ctx, s)
	wantOneRecordEach(t, s, many)
	for _, r := range records(t, s) {
		if r.Scope != carrel.ScopeSession || r.Instance != si.ID || r.Reason != carrel.ReasonExpired || !r.At.Equal(noon) || r.Plugin != "chat" {
			t.Fatalf("a record is %+v", r)
		}
	}
	must(s.CloseScope(ctx, "r", carrel.ReasonScopeClosed, noon))(t)
	wantOneRecordEach(t, s, many, 0)
}

func TestALongHistoryIsDeletedByHandInASmallChange(t *testing.T) {
	ctx := t.Context()
	s := open(t, sqlite.Config{Path: newPath(t)})
	texts := bytesOf("a message", 5000)
	k, _ := keyOf(1)
	release, err := s.HoldEndings()
	if err != nil {
		t.Fatal(err)
	}
	for n := range 3 {
		commit(t, s, commitOf(1, 0, texts...))
		e := must(s.DeleteHistory(ctx, k, store.Deletion{Reason: carrel.ReasonDeleted, At: noon}))(t)
		if e.Messages != 5000 || e.Scope != "" || e.Instance != "" {
			t.Errorf("the eviction is %+v", e)
		}
		if v := must(s.View(ctx, k, store.ViewLimit{Messages: 10}))(t); v.Generation != 0 {
			t.Errorf("the history is there: %+v", v)
		}
		// Beside what is held before it, it is there until the next under its key makes it go.
		wantRows(t, s, map[string]int{"messages": 5000, "closings": n + 2, "evictions": n})
	}
	release()
	emptied(ctx, s)
	want := []store.EvictionRecord{}
	for n := range 3 {
		_, h := keyOf(1)
		want = append(want, store.EvictionRecord{
			N: int64(n + 1), Handle: h, Plugin: "chat", MemoryID: "1", Reason: carrel.ReasonDeleted, Messages: 5000,
			Bytes: 5000 * int64(len("a message")), At: noon,
		})
	}
	if d := cmp.Diff(want, records(t, s)); d != "" {
		t.Errorf("records (-want +got):\n%s", d)
	}
	wantRows(t, s, map[string]int{"messages": 0, "histories": 0, "closings": 0, "replaced": 0, "scopes": 1, "touches": 1})
	if evicted := must(s.CloseScope(ctx, "r", carrel.ReasonScopeClosed, noon))(t); len(evicted) != 0 {
		t.Errorf("the close of its scope ended %v", evicted)
	}
	wantRows(t, s, nothing)
}

func TestNoTableNamesASubjectThatWasErased(t *testing.T) {
	for _, keys := range []int{5, many} {
		t.Run(fmt.Sprintf("with %d histories", keys), func(t *testing.T) {
			ctx := t.Context()
			path := newPath(t)
			s := open(t, sqlite.Config{Path: path})
			if err := createTenant(ctx, s, acme); err != nil {
				t.Fatal(err)
			}
			subject := carrel.Subject(canaries{}.new("subject"))
			by := store.Toucher{Key: "k", Subject: subject}
			for n, id := range []carrel.SessionID{"ses_open", "ses_closed"} {
				ses := fixtureSession(id)
				ses.Owner = by
				if err := s.CreateSession(ctx, ses, 10); err != nil {
					t.Fatal(err)
				}
				si := store.ScopeInstance{ID: carrel.ScopeID(id), Tenant: acme, Scope: carrel.ScopeSession}
				for i := range keys {
					c := named(carrel.MemoryID(fmt.Sprintf("%s-%d", id, i)), si, by, "hello", "hi")
					c.Touch.Key.Kind, c.Touch.Key.Owner = carrel.KindPlugin, carrel.Owner("subject:"+subject)
					commit(t, s, c)
				}
				claim := store.Claim{ID: [32]byte{byte(n)}, Tenant: acme, Subject: subject, Node: "run-1", At: noon}
				must(s.Claim(ctx, claim, someClaims))(t)
			}
			must(s.CloseScope(ctx, "ses_closed", carrel.ReasonScopeClosed, noon))(t)
			commit(t, s, named("plain", requestScope("r"), by, "hello", "hi"))
			commit(t, s, named("another's", requestScope("r"), store.Toucher{Key: "k", Subject: "bob"}, "hello", "hi"))
			if tables := naming(t, path, string(subject)); len(tables) == 0 {
				t.Fatal("no table names the subject while it is there")
			}

			evicted := must(s.EraseSubject(ctx, acme, subject, noon, 1000))(t).Evicted
			if len(evicted) != keys+1 {
				t.Errorf("%d histories were erased, want %d", len(evicted), keys+1)
			}
			for i, e := range evicted {
				if want := carrel.MemoryID(fmt.Sprintf("ses_open-%d", i)); i < keys && e.Key.ID != want {
					t.Fatalf("eviction %d is of %s, want %s: they are sorted by generation", i, e.Key.ID, want)
				}
			}
			left := must(s.ListHistories(ctx, store.HistoryFilter{Tenant: acme, Limit: 10}))(t)
			if len(left) != 1 || left[0].Key.ID != "another's" {
				t.Errorf("left are %+v", left)
			}
			emptied(ctx, s)
			if tables := naming(t, path, string(subject)); len(tables) > 0 {
				t.Errorf("the subject is named in %v", tables)
			}
			erased := 0
			for _, r := range records(t, s) {
				if r.Reason == carrel.ReasonErased {
					erased++
					if r.MemoryID != "" || r.Scope != "" {
						t.Fatalf("a record is %+v", r)
					}
				}
			}
			if erased != keys+1 {
				t.Errorf("%d records say erased, want %d", erased, keys+1)
			}
		})
	}
}

// naming returns the tables in which any value of any row contains text.
func naming(t *testing.T, path, text string) []string {
	t.Helper()
	db := must(sqlite.Raw(path))(t)
	defer func() { _ = db.Close() }()
	rows, err := db.Query("SELECT name FROM sqlite_schema WHERE type = 'table'")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	var tables, found []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			t.Fatal(err)
		}
		tables = append(tables, name)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	for _, table := range tables {
		dump, err := dumpOf(context.Background(), db, table)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(dump, []byte(text)) {
			found = append(found, table)
		}
	}
	return found
}

func TestTheQueriesOfEndsUseIndexes(t *testing.T) {
	path := newPath(t)
	open(t, sqlite.Config{Path: path})
	db := must(sqlite.Raw(path))(t)
	defer func() { _ = db.Close() }()
	for name, query := range sqlite.EndQueries {
		t.Run(name, func(t *testing.T) {
			for _, step := range planOf(t, db, query) {
				few := step == "SCAN c" || // closings
					step == "SCAN claims USING INDEX claims_open" // those that are worked on
				if strings.HasPrefix(step, "SCAN") && !few && !strings.HasPrefix(step, "SCAN (") ||
					strings.Contains(step, "AUTOMATIC") || strings.Contains(step, "MATERIALIZE") {
					t.Errorf("a whole table is walked: %s", step)
				}
			}
		})
	}
}
