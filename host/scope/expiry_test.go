package scope_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/scope"
	"github.com/carrelhost/carrel/store"
)

// turnIn runs one turn on an explicit id in a session, and leaves it.
func turnIn(t *testing.T, d *disk, r *scope.Registry, s carrel.SessionID, id carrel.MemoryID) {
	t.Helper()
	in, leave := enter(t, r, s)
	q := r.Begin(acme, carrel.RequestID("req_in_"+id))
	chatOnce(t, d, q, inSession(in, id), 1)
	q.Close(t.Context())
	leave()
}

// seen returns the ids that somebody who lists sees.
func seen(t *testing.T, r *scope.Registry) []carrel.MemoryID {
	t.Helper()
	list, err := r.Histories().ListHistories(t.Context(), store.HistoryFilter{Tenant: acme, Limit: 1000})
	noError(t, err)
	var ids []carrel.MemoryID
	for _, h := range list {
		ids = append(ids, h.Key.ID)
	}
	return ids
}

// before is what there was before the session's time passes.
type before struct {
	h   store.History
	app store.ScopeInstance
}

// uses are the ways to use a history that is not there any more. Each returns
// an error if it finds one.
func uses() map[string]func(ctx context.Context, r *scope.Registry, was before) error {
	return map[string]func(ctx context.Context, r *scope.Registry, was before) error{
		"a list": func(ctx context.Context, r *scope.Registry, _ before) error {
			list, err := r.Histories().ListHistories(ctx, store.HistoryFilter{Tenant: acme, Limit: 10})
			if err == nil && len(list) > 0 {
				err = fmt.Errorf("listed is %+v", list)
			}
			return err
		},
		"a history by its handle": func(ctx context.Context, r *scope.Registry, was before) error {
			h, err := r.Histories().History(ctx, acme, was.h.Handle, nil, store.Cutoff{})
			return mustBe(abi.NotFound, h, err)
		},
		"the messages of a generation that was learned before": func(ctx context.Context, r *scope.Registry, was before) error {
			list, err := r.Histories().Messages(ctx, was.h.Key, was.h.Generation, -1, store.MessageLimit{Messages: 10})
			return mustBe(abi.NotFound, list, err)
		},
		"a view": func(ctx context.Context, r *scope.Registry, was before) error {
			v, err := r.Histories().View(ctx, was.h.Key, store.ViewLimit{Messages: 10})
			if err == nil && (v.Generation != 0 || len(v.Recent) > 0) {
				err = fmt.Errorf("viewed is %+v", v)
			}
			return err
		},
		"an end by hand": func(ctx context.Context, r *scope.Registry, was before) error {
			e, err := r.Delete(ctx, was.h.Key)
			return mustBe(abi.NotFound, e, err)
		},
		"the commit of a turn that read it before": func(ctx context.Context, r *scope.Registry, was before) error {
			q := r.Begin(acme, "req_2")
			defer q.Close(ctx)
			err := commitTo(ctx, q, application(was.app, was.h.Key.ID), was.h.Generation, 2)
			return mustBe(abi.ScopeClosed, "an acknowledgement", err)
		},
	}
}

// Nothing sweeps and nobody asks for the session: each of these is the first
// that happens after its time has passed.
func TestNobodyUsesWhatAnExpiredSessionTouched(t *testing.T) {
	for name, use := range uses() {
		for ttl, after := range map[string]time.Duration{"idle": time.Minute, "max": time.Hour} {
			t.Run(name+", the "+ttl+" TTL", func(t *testing.T) {
				inBubble(t, func(t *testing.T, d *disk, r *scope.Registry) {
					app := activate(t, d, r, chat)
					n := scope.NewSession{}
					if ttl == "max" {
						n.IdleTTL = 2 * time.Hour
					}
					s := openSession(t, r, n)
					turnIn(t, d, r, s.ID, "a")
					wait(after - time.Microsecond)
					list, err := r.Histories().ListHistories(t.Context(), store.HistoryFilter{Tenant: acme, Limit: 10})
					noError(t, err)
					if len(list) != 1 || list[0].Messages != 2 {
						t.Fatalf("a moment before, listed is %+v", list)
					}
					wait(time.Microsecond)
					if err := use(t.Context(), r, before{list[0], app}); err != nil {
						t.Error(err)
					}
					if closed := wantClosed(t, r, s.ID, carrel.ReasonExpired); len(closed.Evicted) != 1 || len(histories(t, d)) != 0 {
						t.Errorf("its end is %+v, left are %v", closed, histories(t, d))
					}
				})
			})
		}
	}
}

func mustBe(want abi.Code, got any, err error) error {
	if carrel.CodeOf(err) != want {
		return fmt.Errorf("got %+v, %w, want %v", got, err, want)
	}
	return nil
}

// The touch of a turn of another scope is one of the history that comes then.
func TestATurnAfterAnExpiredSessionBeginsAnewAndStays(t *testing.T) {
	inBubble(t, func(t *testing.T, d *disk, r *scope.Registry) {
		app := activate(t, d, r, chat)
		s := openSession(t, r, scope.NewSession{})
		turnIn(t, d, r, s.ID, "a")
		wait(time.Minute)
		q := r.Begin(acme, "req_2")
		use := application(app, "a")
		noError(t, q.Touch(t.Context(), use))
		v, err := r.Histories().View(t.Context(), use.Key, store.ViewLimit{Messages: 10})
		noError(t, err)
		if v.Generation == 0 || len(v.Recent) > 0 {
			t.Errorf("the turn is built upon %+v", v)
		}
		noError(t, commitTo(t.Context(), q, use, v.Generation, 2))
		q.Close(t.Context())
		stop := run(t, r)
		synctest.Wait()
		stop()
		wantClosed(t, r, s.ID, carrel.ReasonExpired)
		if left := histories(t, d); left["a"] != 2 {
			t.Errorf("left are %v", left)
		}
	})
}

// desk is a store whose queries for expired sessions are counted and whose uses fail on demand.
type desk struct {
	*disk
	queries atomic.Int64
	deaf    atomic.Bool // takes no uses
}

func (d *desk) ExpiredSessions(ctx context.Context, now time.Time, limit int) ([]store.Session, error) {
	d.queries.Add(1)
	return d.disk.ExpiredSessions(ctx, now, limit)
}

func (d *desk) UseSession(ctx context.Context, t carrel.TenantID, id carrel.SessionID, at time.Time) error {
	if d.deaf.Load() {
		return errDisk
	}
	return d.disk.UseSession(ctx, t, id, at)
}

func atDesk(t *testing.T, do func(t *testing.T, d *desk, r *scope.Registry)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d := &desk{disk: newDisk(t)}
		do(t, d, registry(t, d.disk, "one", func(c *scope.Config) {
			sessions(c)
			c.Store = d
		}))
	})
}

// Not even where a session is in use for longer than it may be idle.
func TestBetweenExpiriesNobodyAsksForThem(t *testing.T) {
	atDesk(t, func(t *testing.T, d *desk, r *scope.Registry) {
		s := openSession(t, r, scope.NewSession{})
		in, leave := enter(t, r, s.ID)
		defer leave()
		wait(2 * time.Minute)
		seen(t, r)
		before := d.queries.Load()
		if before == 0 {
			t.Error("what has ended since the start was asked of nobody")
		}
		for n := range 200 {
			q := r.Begin(acme, carrel.RequestID(fmt.Sprintf("req_%d", n)))
			use := inSession(in, "a")
			noError(t, q.Touch(t.Context(), use))
			v, err := r.Histories().View(t.Context(), use.Key, store.ViewLimit{Messages: 10})
			noError(t, err)
			noError(t, commitTo(t.Context(), q, use, v.Generation, n))
			q.Close(t.Context())
			seen(t, r)
		}
		if n := d.queries.Load() - before; n != 0 {
			t.Errorf("200 turns asked %d times", n)
		}
	})
}

func TestWhatASessionInUseTouchedIsSeen(t *testing.T) {
	atDesk(t, func(t *testing.T, d *desk, r *scope.Registry) {
		s := openSession(t, r, scope.NewSession{})
		turnIn(t, d.disk, r, s.ID, "a")
		_, leave := enter(t, r, s.ID)
		for step, want := range []struct {
			wait time.Duration
			seen int
		}{{10 * time.Minute, 1}, {20 * time.Minute, 1}, {30*time.Minute - time.Microsecond, 1}, {time.Microsecond, 0}} {
			wait(want.wait)
			if got := seen(t, r); len(got) != want.seen {
				t.Errorf("at step %d seen are %v", step, got)
			}
		}
		leave()
		wantClosed(t, r, s.ID, carrel.ReasonExpired)
	})
}

func TestTheIdleTimeBeginsWhenAUseEnds(t *testing.T) {
	for name, deaf := range map[string]bool{"that is noted": false, "that could not be noted, and is over": true} {
		t.Run(name, func(t *testing.T) {
			atDesk(t, func(t *testing.T, d *desk, r *scope.Registry) {
				s := openSession(t, r, scope.NewSession{})
				turnIn(t, d.disk, r, s.ID, "a")
				_, leave := enter(t, r, s.ID)
				wait(10 * time.Minute)
				if got := seen(t, r); len(got) != 1 { // and learns of the max TTL
					t.Fatalf("seen are %v", got)
				}
				d.deaf.Store(deaf)
				leave()
				if !deaf {
					wait(time.Minute - time.Microsecond)
					if got := seen(t, r); len(got) != 1 {
						t.Errorf("a moment before, seen are %v", got)
					}
					wait(time.Microsecond)
				}
				if got := seen(t, r); len(got) != 0 {
					t.Errorf("seen are %v", got)
				}
				d.deaf.Store(false)
				wantClosed(t, r, s.ID, carrel.ReasonExpired)
			})
		})
	}
}

// What the store has from before the start ends in time too.
func TestSessionsOfAnEarlierProcessExpire(t *testing.T) {
	inBubble(t, func(t *testing.T, d *disk, r *scope.Registry) {
		first, second := openSession(t, r, scope.NewSession{}), openSession(t, r, scope.NewSession{IdleTTL: 10 * time.Minute})
		turnIn(t, d, r, first.ID, "a")
		turnIn(t, d, r, second.ID, "b")
		wait(time.Minute)
		r = registry(t, d, "two", sessions)
		if got := seen(t, r); len(got) != 1 || got[0] != "b" {
			t.Errorf("after the start seen are %v", got)
		}
		wait(9 * time.Minute)
		if got := seen(t, r); len(got) != 0 {
			t.Errorf("later seen are %v", got)
		}
	})
}

// Whoever judges has read the store and does not know of it.
func TestAUseThatBeginsOrEndsWhileOthersAreJudgedExpiresInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &reader{disk: newDisk(t)}
		r := registry(t, d.disk, "one", func(c *scope.Config) {
			sessions(c)
			c.Store = d
		})
		d.mu.Lock()
		var in *scope.Session
		var leave func()
		d.then = func() { in, leave = enter(t, r, openSession(t, r, scope.NewSession{}).ID) }
		d.mu.Unlock()
		seen(t, r)
		noError(t, r.Begin(acme, "req_1").Touch(t.Context(), inSession(in, "a")))
		d.mu.Lock()
		d.then = leave
		d.mu.Unlock()
		wait(10 * time.Minute)
		seen(t, r) // during which the use ends
		if d.then != nil {
			t.Fatal("nothing was read")
		}
		wait(time.Minute - time.Microsecond)
		if got := seen(t, r); len(got) != 1 {
			t.Fatalf("a moment before, seen are %v", got)
		}
		wait(time.Microsecond)
		if got := seen(t, r); len(got) != 0 {
			t.Errorf("seen are %v", got)
		}
	})
}

func TestManySessionsThatExpireTogetherCloseTogether(t *testing.T) {
	inBubble(t, func(t *testing.T, d *disk, r *scope.Registry) {
		const many = 150
		for n := range many {
			turnIn(t, d, r, openSession(t, r, scope.NewSession{}).ID, carrel.MemoryID(fmt.Sprint(n)))
		}
		wait(time.Minute)
		results := make(chan error, 10)
		for range cap(results) {
			go func() {
				list, err := r.Histories().ListHistories(t.Context(), store.HistoryFilter{Tenant: acme, Limit: many})
				if err == nil && len(list) > 0 {
					err = fmt.Errorf("%d are listed", len(list))
				}
				results <- err
			}()
		}
		for range cap(results) {
			noError(t, <-results)
		}
	})
}

// Nothing that an expired session touched is shown because the store failed,
// and nobody else suffers from it.
func TestWhileAnExpiredSessionCannotBeClosedItsTenantSeesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, d *disk, r *scope.Registry) {
		noError(t, d.CreateTenant(t.Context(), store.Tenant{ID: "other", CreatedAt: noon}))
		app := activate(t, d, r, chat)
		s := openSession(t, r, scope.NewSession{})
		turnIn(t, d, r, s.ID, "a")
		wait(time.Minute)
		d.failAll(true)
		for range 3 {
			list, err := r.Histories().ListHistories(t.Context(), store.HistoryFilter{Tenant: acme, Limit: 10})
			noError(t, mustBe(abi.Overloaded, list, err))
			v, err := r.Histories().View(t.Context(), key("a"), store.ViewLimit{Messages: 10})
			noError(t, mustBe(abi.Overloaded, v, err))
			noError(t, mustBe(abi.Overloaded, "a touch", r.Begin(acme, "req_2").Touch(t.Context(), application(app, "a"))))
			_, err = r.Histories().ListHistories(t.Context(), store.HistoryFilter{Tenant: "other", Limit: 10})
			noError(t, err)
		}
		if n := len(d.written()); n != 3 { // the turn's touch and commit, and one attempt
			t.Errorf("the store was written to %d times: %v", n, d.written())
		}
		d.failAll(false)
		stop := run(t, r)
		defer stop()
		wait(2 * time.Second)
		if got := seen(t, r); len(got) != 0 {
			t.Errorf("seen are %v", got)
		}
		wantClosed(t, r, s.ID, carrel.ReasonExpired)
	})
}

// Whoever gives up while others close what has expired is not kept.
func TestAReaderThatGivesUpWaitsForNobody(t *testing.T) {
	inBubble(t, func(t *testing.T, d *disk, r *scope.Registry) {
		s := openSession(t, r, scope.NewSession{})
		turnIn(t, d, r, s.ID, "a")
		wait(time.Minute)
		held := make(chan struct{})
		d.watch(func(context.Context, string) { <-held })
		first := make(chan []carrel.MemoryID)
		go func() { first <- seen(t, r) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := r.Histories().View(ctx, key("a"), store.ViewLimit{Messages: 10}); ctx.Err() == nil || err == nil {
			t.Errorf("got %v, %v", ctx.Err(), err)
		}
		close(held)
		if got := <-first; len(got) != 0 {
			t.Errorf("seen are %v", got)
		}
	})
}
