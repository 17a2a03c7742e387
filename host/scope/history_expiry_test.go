package scope_test

import (
	"context"
	"errors"
	"maps"
	"slices"
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
			_, err := r.Histories().Messages(t.Context(), h.Key, h.Generation, -1, store.MessageLimit{Messages: 10})
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
		wantOneExpired(t, r, watcher, `a expired by "req_2"`)
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

// wantOneExpired checks that one history was counted as expired, and watchers
// were told of it and of nothing else.
func wantOneExpired(t *testing.T, r *scope.Registry, watcher *onlooker, told string) {
	t.Helper()
	if n := stats(t, r).Evictions[carrel.ReasonExpired]; n != 1 || !slices.Equal(watcher.all(), []string{told}) {
		t.Errorf("%d are counted, watchers were told %q", n, watcher.all())
	}
}

// finder counts what is asked and done beside the touch, the read and the
// commit of a turn.
type finder struct {
	*disk
	looks, sweeps atomic.Int64
}

func (f *finder) History(ctx context.Context, t carrel.TenantID, h carrel.Handle, by *store.Toucher, c store.Cutoff) (store.History, error) {
	f.looks.Add(1)
	return f.disk.History(ctx, t, h, by, c)
}

func (f *finder) ExpireHistories(ctx context.Context, c store.Cutoff, at time.Time, limit int) ([]carrel.Eviction, error) {
	f.sweeps.Add(1)
	return f.disk.ExpireHistories(ctx, c, at, limit)
}

// Whoever uses one history pays for no other, and asks about it only once.
func TestARequestEndsNoExpiredHistoryButItsOwn(t *testing.T) {
	for name, use := range map[string]struct {
		do   func(t *testing.T, q *scope.Request, u scope.Use)
		told string
	}{
		"by its touch": {func(t *testing.T, q *scope.Request, u scope.Use) {
			t.Helper()
			noError(t, q.Touch(t.Context(), u))
		}, `a expired by "req_2"`},
		"by its first turn": {func(t *testing.T, q *scope.Request, u scope.Use) {
			t.Helper()
			noError(t, commitTo(t.Context(), q, u, 0, 2))
		}, `a expired by "req_2"`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, watcher := &finder{disk: newDisk(t)}, &onlooker{}
				r := registry(t, f.disk, "one", func(c *scope.Config) {
					expiring(c)
					c.Store = f
				})
				r.Watch(watcher)
				app := activate(t, f.disk, r, chat)
				for _, id := range []carrel.MemoryID{"a", "b", "c"} {
					chatIn(t, f.disk, r, application(app, id))
				}
				wait(idle)
				q := r.Begin(acme, "req_2")
				use.do(t, q, application(app, "a"))
				q.Close(t.Context())
				wantOneExpired(t, r, watcher, use.told)
				if left := histories(t, f.disk); len(left) != 3 {
					t.Errorf("left are %v: others' are the sweep's to end", left)
				}
				h := only(t, r)
				_, err := r.Histories().Messages(t.Context(), h.Key, h.Generation, -1, store.MessageLimit{Messages: 10})
				noError(t, err)
				if f.looks.Load() != 0 || f.sweeps.Load() != 0 {
					t.Errorf("%d histories were looked for, there were %d sweeps", f.looks.Load(), f.sweeps.Load())
				}
			})
		})
	}
}

// A touch of unknown outcome may have ended the history before it.
func TestATouchThatWasNotAnsweredIsToldToWhoeverKeepsCopies(t *testing.T) {
	for name, c := range map[string]struct {
		expires bool
		told    []string
	}{
		"histories expire":        {true, []string{`a expired by "req_2"`}},
		"histories do not expire": {false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, watcher := newDisk(t), &onlooker{}
				r := registry(t, d, "one", func(cfg *scope.Config) {
					if sessions(cfg); c.expires {
						expiring(cfg)
					}
				})
				r.Watch(watcher)
				app := activate(t, d, r, chat)
				chatIn(t, d, r, application(app, "a"))
				wait(idle)
				d.failNth(1, true)
				if err := r.Begin(acme, "req_2").Touch(t.Context(), application(app, "a")); !errors.Is(err, errDisk) {
					t.Fatalf("got %v", err)
				}
				if !slices.Equal(watcher.all(), c.told) || stats(t, r).Evictions[carrel.ReasonExpired] != 0 {
					t.Errorf("told %q, counted %v", watcher.all(), stats(t, r).Evictions)
				}
			})
		})
	}
}

func TestWhetherAnyOfSomeHistoriesHasExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &finder{disk: newDisk(t)}
		r := registry(t, f.disk, "one", func(c *scope.Config) {
			expiring(c)
			c.Store = f
		})
		app := activate(t, f.disk, r, chat)
		chatIn(t, f.disk, r, application(app, "old"))
		q := r.Begin(acme, "req_long")
		chatOnce(t, f.disk, q, request("a request's"), 1)
		wait(idle)
		chatIn(t, f.disk, r, application(app, "young"))
		for name, c := range map[string]struct {
			tenant carrel.TenantID
			of     []carrel.MemoryID
			want   bool
			looks  int64
		}{
			"none is asked about":               {acme, nil, false, 0},
			"none has":                          {acme, []carrel.MemoryID{"young", "a request's", "never there"}, false, 3},
			"one has, and no more are asked of": {acme, []carrel.MemoryID{"young", "old", "a request's"}, true, 2},
			"it is another tenant's":            {"globex", []carrel.MemoryID{"old"}, false, 1},
		} {
			f.looks.Store(0)
			var of []carrel.Handle
			for _, id := range c.of {
				of = append(of, r.Handle(key(id)))
			}
			got, err := r.Expired(t.Context(), c.tenant, of)
			if err != nil || got != c.want || f.looks.Load() != c.looks {
				t.Errorf("%s: got %v, %v after %d looks", name, got, err, f.looks.Load())
			}
		}
		if f.sweeps.Load() != 0 || len(histories(t, f.disk)) != 3 {
			t.Errorf("there were %d sweeps, left are %v", f.sweeps.Load(), histories(t, f.disk))
		}
	})
}
