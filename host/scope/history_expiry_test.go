package scope_test

import (
	"context"
	"maps"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/scope"
	"github.com/carrelhost/carrel/store"
)

// idle is how long histories of applications live in these tests.
const idle = time.Hour

// expiring has histories expire, and goes by the clock of the bubble.
func expiring(c *scope.Config) {
	sessions(c)
	c.HistoryIdleTTL = idle
}

func whereHistoriesExpire(t *testing.T, do func(t *testing.T, d *disk, r *scope.Registry, app store.ScopeInstance)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		r := registry(t, d, "one", expiring)
		do(t, d, r, activate(t, d, r, chat))
	})
}

// chatIn runs one turn of a request of its own.
func chatIn(t *testing.T, d *disk, r *scope.Registry, u scope.Use) {
	t.Helper()
	q := r.Begin(acme, carrel.RequestID("req_"+string(u.Key.ID)))
	chatOnce(t, d, q, u, 1)
	q.Close(t.Context())
}

// only returns the one history that is seen.
func only(t *testing.T, r *scope.Registry) store.History {
	t.Helper()
	list, err := r.Histories().ListHistories(t.Context(), store.HistoryFilter{Tenant: acme, Limit: 10})
	noError(t, err)
	if len(list) != 1 {
		t.Fatalf("seen are %+v, want one", list)
	}
	return list[0]
}

// Nothing sweeps: each of these is the first that happens after the history's
// time has passed, and none of them brings it back.
func TestNobodyUsesAHistoryThatHasExpired(t *testing.T) {
	ways := uses()
	ways["the end of a turn of it"] = func(ctx context.Context, r *scope.Registry, was before) error {
		return mustBe(abi.NotFound, "a deletion", r.DeleteTurn(ctx, was.h, 1))
	}
	for name, use := range ways {
		t.Run(name, func(t *testing.T) {
			whereHistoriesExpire(t, func(t *testing.T, d *disk, r *scope.Registry, app store.ScopeInstance) {
				chatIn(t, d, r, application(app, "a"))
				wait(idle - time.Microsecond)
				was := only(t, r)
				wait(time.Microsecond)
				for range 2 {
					if err := use(t.Context(), r, before{was, app}); err != nil {
						t.Error(err)
					}
				}
				if got := seen(t, r); len(got) != 0 {
					t.Errorf("then seen are %v", got)
				}
			})
		})
	}
}

func TestReadingDoesNotKeepAHistoryAlive(t *testing.T) {
	whereHistoriesExpire(t, func(t *testing.T, d *disk, r *scope.Registry, app store.ScopeInstance) {
		chatIn(t, d, r, application(app, "a"))
		for range 59 {
			wait(time.Minute)
			h := only(t, r)
			_, err := r.Histories().Messages(t.Context(), h.Key, h.Generation, -1, 10)
			noError(t, err)
			_, err = r.Histories().View(t.Context(), h.Key, store.ViewLimit{Messages: 10})
			noError(t, err)
		}
		wait(time.Minute)
		if got := seen(t, r); len(got) != 0 {
			t.Errorf("seen are %v", got)
		}
	})
}

func TestATurnOnAHistoryThatHasExpiredBeginsANewOne(t *testing.T) {
	whereHistoriesExpire(t, func(t *testing.T, d *disk, r *scope.Registry, app store.ScopeInstance) {
		watcher := &onlooker{}
		r.Watch(watcher)
		use := application(app, "a")
		chatIn(t, d, r, use)
		was := only(t, r)
		wait(idle)
		q := r.Begin(acme, "req_2")
		noError(t, q.Touch(t.Context(), use))
		v, err := r.Histories().View(t.Context(), use.Key, store.ViewLimit{Messages: 10})
		noError(t, err)
		if v.Generation <= was.Generation || len(v.Recent) > 0 {
			t.Errorf("the turn is built upon %+v", v)
		}
		noError(t, commitTo(t.Context(), q, use, v.Generation, 2))
		q.Close(t.Context())
		if now := only(t, r); now.Generation != v.Generation || now.Messages != 2 {
			t.Errorf("seen is %+v", now)
		}
		if n := stats(t, r).Evictions[carrel.ReasonExpired]; n != 1 || len(watcher.all()) != 1 {
			t.Errorf("%d are counted, watchers were told %q", n, watcher.all())
		}
		records, err := d.ListEvictions(t.Context(), store.EvictionFilter{Tenant: acme, Limit: 10})
		noError(t, err)
		if len(records) != 1 || records[0].Reason != carrel.ReasonExpired || records[0].Messages != 2 {
			t.Errorf("recorded are %+v", records)
		}
	})
}

// Its touch is a use: it has the whole time from there.
func TestATurnThatRunsWhileItsHistoryWouldExpireIsStored(t *testing.T) {
	whereHistoriesExpire(t, func(t *testing.T, d *disk, r *scope.Registry, app store.ScopeInstance) {
		stop := run(t, r)
		defer stop()
		use := application(app, "a")
		chatIn(t, d, r, use)
		wait(idle - time.Second)
		q := r.Begin(acme, "req_2")
		noError(t, q.Touch(t.Context(), use))
		v, err := r.Histories().View(t.Context(), use.Key, store.ViewLimit{Messages: 10})
		noError(t, err)
		wait(2 * time.Minute) // the longest that a turn may take; it is less than histories live
		noError(t, commitTo(t.Context(), q, use, v.Generation, 2))
		q.Close(t.Context())
		if h := only(t, r); h.Messages != 4 {
			t.Errorf("seen is %+v", h)
		}
	})
}

func TestOnlyWhatApplicationsTouchExpires(t *testing.T) {
	whereHistoriesExpire(t, func(t *testing.T, d *disk, r *scope.Registry, app store.ScopeInstance) {
		stop := run(t, r)
		defer stop()
		chatIn(t, d, r, application(app, "of the application"))
		socket, err := r.OpenSocket(t.Context(), acme)
		noError(t, err)
		defer socket.Close(context.Background())
		chatIn(t, d, r, inSession(socket, "of the session"))
		q := r.Begin(acme, "req_long")
		defer q.Close(context.Background())
		chatOnce(t, d, q, request("of the request"), 1)
		wait(10 * idle)
		want := map[carrel.MemoryID]int64{"of the session": 2, "of the request": 2}
		if got := seen(t, r); len(got) != 2 || !maps.Equal(histories(t, d), want) {
			t.Errorf("seen are %v, stored %v", got, histories(t, d))
		}
	})
}

func TestWithoutATimeToLiveHistoriesStay(t *testing.T) {
	inBubble(t, func(t *testing.T, d *disk, r *scope.Registry) {
		app := activate(t, d, r, chat)
		chatIn(t, d, r, application(app, "a"))
		stop := run(t, r)
		defer stop()
		wait(30 * 24 * time.Hour)
		if h := only(t, r); h.Messages != 2 {
			t.Errorf("seen is %+v", h)
		}
	})
}

// finder counts how often a history is looked for.
type finder struct {
	*disk
	looks atomic.Int64
}

func (f *finder) History(ctx context.Context, t carrel.TenantID, h carrel.Handle, by *store.Toucher, c store.Cutoff) (store.History, error) {
	f.looks.Add(1)
	return f.disk.History(ctx, t, h, by, c)
}

func TestARequestsOwnHistoryIsNotLookedFor(t *testing.T) {
	d := newDisk(t)
	counting := &finder{disk: d}
	r := registry(t, d, "one", func(c *scope.Config) {
		c.Store, c.HistoryIdleTTL = counting, idle
	})
	own := request("req_1#com.acme.Chat.chat")
	own.Key.Kind = carrel.KindRequest
	for name, c := range map[string]struct {
		use   scope.Use
		looks int64
	}{
		"nobody else can have one under the request's own id": {own, 0},
		"anybody can have one under an explicit id":           {request("a"), 1},
	} {
		t.Run(name, func(t *testing.T) {
			counting.looks.Store(0)
			q := r.Begin(acme, "req_1")
			defer q.Close(t.Context())
			noError(t, commitTo(t.Context(), q, c.use, 0, 1))
			if n := counting.looks.Load(); n != c.looks {
				t.Errorf("it was looked for %d times, want %d", n, c.looks)
			}
		})
	}
}
