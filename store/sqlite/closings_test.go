package sqlite_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/store"
	"github.com/carrelhost/carrel/store/sqlite"
	"github.com/carrelhost/carrel/store/storetest"
)

// late is a store that does not delete what a closed scope leaves, until the
// scope's id is used again, which only tests do.
type late struct {
	*sqlite.Store
	mu      sync.Mutex
	waiting map[carrel.ScopeID]func()
}

func (l *late) CloseScope(ctx context.Context, id carrel.ScopeID, why carrel.EvictionReason, at time.Time) ([]carrel.Eviction, error) {
	l.mu.Lock()
	if l.waiting[id] == nil {
		l.waiting[id] = l.HoldClosing(id)
	}
	l.mu.Unlock()
	return l.Store.CloseScope(ctx, id, why, at)
}

func (l *late) reuse(ctx context.Context, id carrel.ScopeID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting[id] == nil {
		return
	}
	l.release(ctx)
}

// release wants mu locked.
func (l *late) release(ctx context.Context) {
	for _, release := range l.waiting {
		release()
	}
	clear(l.waiting)
	emptied(ctx, l.Store)
}

// settle deletes everything.
func (l *late) settle(ctx context.Context) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.release(ctx)
}

// ListEvictions and Scrub speak of what is deleted, or wait for it.
func (l *late) ListEvictions(ctx context.Context, f store.EvictionFilter) ([]store.EvictionRecord, error) {
	l.settle(ctx)
	return l.Store.ListEvictions(ctx, f)
}

func (l *late) Scrub(ctx context.Context, at time.Time) (store.Scrub, error) {
	l.settle(ctx)
	return l.Store.Scrub(ctx, at)
}

func (l *late) Touch(ctx context.Context, t store.Touch) (store.Touched, error) {
	if t.Scope.Scope == carrel.ScopeRequest {
		l.reuse(ctx, t.Scope.ID)
	}
	return l.Store.Touch(ctx, t)
}

func (l *late) CreateSession(ctx context.Context, n store.Session, most int) error {
	l.reuse(ctx, carrel.ScopeID(n.ID))
	return l.Store.CreateSession(ctx, n, most)
}

// soon is a store that has deleted everything when a close returns.
type soon struct{ *sqlite.Store }

func (s soon) CloseScope(ctx context.Context, id carrel.ScopeID, why carrel.EvictionReason, at time.Time) ([]carrel.Eviction, error) {
	evicted, err := s.Store.CloseScope(ctx, id, why, at)
	emptied(ctx, s.Store)
	return evicted, err
}

func (s soon) ListEvictions(ctx context.Context, f store.EvictionFilter) ([]store.EvictionRecord, error) {
	emptied(ctx, s.Store)
	return s.Store.ListEvictions(ctx, f)
}

// emptied waits until closings have left nothing behind.
func emptied(ctx context.Context, s *sqlite.Store) {
	for n, err := s.Count(ctx, "closings"); err == nil && n > 0; n, err = s.Count(ctx, "closings") {
		runtime.Gosched()
	}
}

// What is still to be deleted makes no difference to anybody, while it is
// there and afterwards.
func TestContractWithoutDeletingAtOnce(t *testing.T) {
	for name, wrap := range map[string]func(*sqlite.Store) store.Store{
		"deleted soon after": func(s *sqlite.Store) store.Store { return soon{s} },
		"not deleted yet": func(s *sqlite.Store) store.Store {
			return &late{Store: s, waiting: make(map[carrel.ScopeID]func())}
		},
	} {
		t.Run(name, func(t *testing.T) {
			storetest.Run(t, func(t *testing.T) store.Store {
				s, err := sqlite.Open(context.Background(), sqlite.Config{Path: newPath(t)})
				if err != nil {
					t.Fatal(err)
				}
				if err := s.NeverAtOnce(); err != nil {
					t.Fatal(err)
				}
				return wrap(s)
			})
		})
	}
}

// many are more histories than are deleted at once, and than one step deletes.
const many = 600

func inScope(c store.Commit, si store.ScopeInstance) store.Commit {
	c.Touch.Scope = si
	return c
}

// sessionScope opens an HTTP session in which many keys have histories.
func sessionScope(t *testing.T, s *sqlite.Store, id carrel.SessionID, keys int) store.ScopeInstance {
	t.Helper()
	if err := s.CreateSession(t.Context(), fixtureSession(id), 10); err != nil {
		t.Fatal(err)
	}
	si := store.ScopeInstance{ID: carrel.ScopeID(id), Tenant: acme, Scope: carrel.ScopeSession}
	fill(t, s, si, keys)
	return si
}

func fill(t *testing.T, s *sqlite.Store, si store.ScopeInstance, keys int) {
	t.Helper()
	for n := range keys {
		k, _ := keyOf(n)
		commit(t, s, inScope(commitOf(n, must(s.View(t.Context(), k, store.ViewLimit{Messages: 0}))(t).Generation, "hello", "hi"), si))
	}
}

func wantRows(t *testing.T, s *sqlite.Store, want map[string]int) {
	t.Helper()
	for table, n := range want {
		if got := must(s.Count(t.Context(), table))(t); got != n {
			t.Errorf("%s has %d rows, want %d", table, got, n)
		}
	}
}

var nothing = map[string]int{"scopes": 0, "touches": 0, "histories": 0, "messages": 0, "touchers": 0, "replaced": 0}

func TestALargeSessionKeepsItsReportWhateverIsDeletedYet(t *testing.T) {
	ctx := context.Background()
	path := newPath(t)
	s := open(t, sqlite.Config{Path: path})
	if err := createTenant(ctx, s, acme); err != nil {
		t.Fatal(err)
	}
	si := sessionScope(t, s, "ses_large", many)
	s.HoldClosing(si.ID)
	evicted := must(s.CloseScope(ctx, si.ID, carrel.ReasonExpired, noon))(t)
	if len(evicted) != many || evicted[0].Messages != 2 || evicted[0].Reason != carrel.ReasonExpired ||
		evicted[many-1].Key.ID != carrel.MemoryID(fmt.Sprint(many-1)) {
		t.Fatalf("%d evictions are reported, the first is %+v", len(evicted), evicted[0])
	}
	same := func(s *sqlite.Store, when string) {
		t.Helper()
		if d := cmp.Diff(evicted, must(s.Session(ctx, acme, "ses_large", nil))(t).Evicted); d != "" {
			t.Errorf("%s the kept report differs:\n%s", when, d)
		}
	}
	same(s, "before anything is deleted")
	// Two keys begin anew meanwhile.
	for _, n := range []int{0, many - 1} {
		commit(t, s, commitOf(n, 0, "anew", "yes", "more"))
	}
	same(s, "after two keys began anew")
	wantRows(t, s, map[string]int{"closings": 1, "replaced": 2, "histories": many, "messages": 2*(many-2) + 6})
	closeStore(t, s) // and the process ends before it has deleted anything

	s = open(t, sqlite.Config{Path: path})
	for must(s.Count(ctx, "closings"))(t) > 0 {
		same(s, "while it is being deleted")
	}
	same(s, "when all is deleted")
	wantRows(t, s, map[string]int{"scopes": 1, "touches": 2, "histories": 2, "messages": 6, "touchers": 2, "replaced": 0, "session_evictions": many})
	if again := must(s.CloseScope(ctx, "r", carrel.ReasonScopeClosed, noon))(t); len(again) != 2 {
		t.Errorf("the request that began the keys anew ended %d", len(again))
	}
	wantRows(t, s, nothing)
}

func TestWhatTwoLargeScopesTouchedEndsWithTheFirst(t *testing.T) {
	ctx := context.Background()
	s := open(t, sqlite.Config{Path: newPath(t)})
	if err := createTenant(ctx, s, acme); err != nil {
		t.Fatal(err)
	}
	first := sessionScope(t, s, "ses_first", many)
	second := sessionScope(t, s, "ses_second", many+300)
	small := store.ScopeInstance{ID: "small", Tenant: acme, Scope: carrel.ScopeRequest, Node: "run-1", OpenedAt: noon}
	fill(t, s, small, 3)
	release := s.HoldClosing(first.ID)
	closed := func(id carrel.ScopeID, want int) {
		t.Helper()
		if got := must(s.CloseScope(ctx, id, carrel.ReasonScopeClosed, noon))(t); len(got) != want {
			t.Errorf("%s ended %d histories, want %d", id, len(got), want)
		}
	}
	closed(first.ID, many)
	closed(second.ID, 300)
	closed(small.ID, 0)
	closed(first.ID, 0)
	if n := len(must(s.Session(ctx, acme, "ses_second", nil))(t).Evicted); n != 300 {
		t.Errorf("the second session keeps %d", n)
	}
	release()
	emptied(t.Context(), s)
	for id, want := range map[carrel.SessionID]int{"ses_first": many, "ses_second": 300} {
		if n := len(must(s.Session(ctx, acme, id, nil))(t).Evicted); n != want {
			t.Errorf("in the end %s keeps %d, want %d", id, n, want)
		}
	}
	wantRows(t, s, nothing)
}

func TestASessionMayBeForgottenBeforeItsHistoriesAreDeleted(t *testing.T) {
	ctx := context.Background()
	s := open(t, sqlite.Config{Path: newPath(t)})
	if err := createTenant(ctx, s, acme); err != nil {
		t.Fatal(err)
	}
	si := sessionScope(t, s, "ses_1", many)
	release := s.HoldClosing(si.ID)
	must(s.CloseScope(ctx, si.ID, carrel.ReasonExpired, noon))(t)
	commit(t, s, commitOf(1, 0, "anew", "yes"))
	if n := must(s.ForgetSessions(ctx, noon.Add(24*time.Hour)))(t); n != 1 {
		t.Errorf("%d sessions were forgotten", n)
	}
	release()
	emptied(t.Context(), s)
	wantRows(t, s, map[string]int{"sessions": 0, "session_evictions": 0, "histories": 1, "messages": 2})
}

// One history with very many messages is as much to delete as many histories.
func TestALongHistoryIsDeletedAfterwards(t *testing.T) {
	ctx := context.Background()
	s := open(t, sqlite.Config{Path: newPath(t)})
	texts := slices.Repeat([]string{"a message"}, 5000)
	commit(t, s, commitOf(1, 0, texts...))
	release := s.HoldClosing("r")
	if evicted := must(s.CloseScope(ctx, "r", carrel.ReasonScopeClosed, noon))(t); len(evicted) != 1 || evicted[0].Messages != 5000 {
		t.Errorf("evicted %v", evicted)
	}
	k, h := keyOf(1)
	if v := must(s.View(ctx, k, store.ViewLimit{Messages: 10}))(t); v.Generation != 0 {
		t.Errorf("the history is there: %+v", v)
	}
	_, err := s.History(ctx, acme, h, nil, store.Cutoff{})
	wantCode(t, err, abi.NotFound)
	wantRows(t, s, map[string]int{"messages": 5000})
	release()
	emptied(t.Context(), s)
	wantRows(t, s, nothing)
}

// Whoever asked for the close need not wait for it to be done.
func TestACloseWhoseCallerGaveUpIsFinished(t *testing.T) {
	s := open(t, sqlite.Config{Path: newPath(t)})
	fill(t, s, store.ScopeInstance{ID: "r", Tenant: acme, Scope: carrel.ScopeRequest, Node: "run-1", OpenedAt: noon}, many)
	ctx, cancel := context.WithCancel(context.Background())
	release := hold(t, s)
	gone := make(chan struct{})
	closed := queue(s, 0, func() error {
		defer close(gone)
		_, err := s.CloseScope(ctx, "r", carrel.ReasonScopeClosed, noon)
		return err
	})
	next := queue(s, 1, func() error {
		return s.Do(func() { // in the same transaction, after it
			cancel()
			<-gone
		})
	})
	release()
	wantCode(t, <-closed, abi.Canceled)
	if err := <-next; err != nil {
		t.Fatal(err)
	}
	if n := len(must(s.ListHistories(context.Background(), store.HistoryFilter{Tenant: acme, Limit: 10}))(t)); n != 0 {
		t.Errorf("%d histories are there", n)
	}
	emptied(t.Context(), s)
	wantRows(t, s, nothing)
}

func TestNoQueryMakesACopyOfTheLiveHistories(t *testing.T) {
	path := newPath(t)
	open(t, sqlite.Config{Path: path})
	db := must(sqlite.Raw(path))(t)
	defer func() { _ = db.Close() }()
	for name, query := range sqlite.LiveQueries {
		t.Run(name, func(t *testing.T) {
			values := map[string]int{"a history by its key": 5, "a tenant's histories": 6, "the histories that somebody touched": 9, "the histories touched in a scope": 3}
			rows, err := db.Query("EXPLAIN QUERY PLAN "+query, slices.Repeat([]any{1}, values[name])...)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = rows.Close() }()
			for rows.Next() {
				var id, parent, unused int
				var step string
				if err := rows.Scan(&id, &parent, &unused, &step); err != nil {
					t.Fatal(err)
				}
				t.Log(step)
				if strings.Contains(step, "MATERIALIZE") || strings.Contains(step, "CO-ROUTINE") ||
					strings.HasPrefix(step, "SCAN") && step != "SCAN c" {
					t.Errorf("all histories are walked: %s", step)
				}
			}
			if err := rows.Err(); err != nil {
				t.Fatal(err)
			}
		})
	}
}
