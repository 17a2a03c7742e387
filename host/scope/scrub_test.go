package scope_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carrelhost/carrel/host/scope"
)

// scrubbed runs a test on a registry that scrubs once a day, and whose store,
// which never was scrubbed, has deleted something.
func scrubbed(t *testing.T, do func(t *testing.T, k *keeper, start func() *scope.Registry)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(t)
		start := func() *scope.Registry {
			return registry(t, k.disk, "one", func(c *scope.Config) {
				sessions(c)
				c.Store, c.ScrubEvery = k, 24*time.Hour
			})
		}
		chatIn(t, k.disk, start(), request("deleted"))
		do(t, k, start)
	})
}

func wantScrubs(t *testing.T, k *keeper, start time.Time, want ...time.Duration) {
	t.Helper()
	if got := k.began(start); !slices.Equal(got, want) {
		t.Errorf("scrubs began after %v, want %v", got, want)
	}
}

const day = 24 * time.Hour

func TestAStoreThatNeverDeletedAnythingIsNotScrubbed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, start := newKeeper(t), time.Now()
		r := registry(t, k.disk, "one", func(c *scope.Config) {
			sessions(c)
			c.Store, c.ScrubEvery = k, day
		})
		stop := run(t, r)
		defer stop()
		wait(day + time.Hour)
		chatIn(t, k.disk, r, request("deleted"))
		wait(day)
		wantScrubs(t, k, start, 2*day)
	})
}

// Nothing sweeps: only the scrub can have ended them.
func TestAScrubEndsWhatHasExpiredFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		r := registry(t, d, "one", expiring)
		chatIn(t, d, r, application(activate(t, d, r, chat), "expired"))
		s := openSession(t, r, scope.NewSession{})
		turnIn(t, d, r, s.ID, "of a session that is over")
		wait(idle)
		if left := histories(t, d); len(left) != 2 {
			t.Fatalf("before are %v", left)
		}
		done, err := r.Scrub(t.Context())
		noError(t, err)
		if left := histories(t, d); len(left) != 0 || done.Due {
			t.Errorf("left are %v, the scrub is %+v", left, done)
		}
	})
}

func TestTheStatusOfScrubsCountsWhatHasExpiredAsDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(t)
		r := registry(t, k.disk, "one", func(c *scope.Config) {
			expiring(c)
			c.Store = k
		})
		chatIn(t, k.disk, r, application(activate(t, k.disk, r, chat), "expires"))
		due := func() bool {
			t.Helper()
			last, err := r.ScrubStatus(t.Context())
			noError(t, err)
			return last.Due
		}
		wait(idle - time.Microsecond)
		if due() {
			t.Error("something is due although nothing has expired")
		}
		wait(time.Microsecond)
		k.fail(true)
		if !due() {
			t.Error("nothing is due while nothing can be swept")
		}
		k.fail(false)
		if !due() {
			t.Error("nothing is due although a history has expired")
		}
		_, err := r.Scrub(t.Context())
		noError(t, err)
		if due() {
			t.Error("something is due after the scrub")
		}
	})
}

func TestAStoreIsScrubbedAtOnceIfItNeverWasAndThenEveryInterval(t *testing.T) {
	scrubbed(t, func(t *testing.T, k *keeper, begin func() *scope.Registry) {
		start := time.Now()
		stop := run(t, begin())
		defer stop()
		wait(2*day + time.Hour)
		wantScrubs(t, k, start, 0, day, 2*day)
	})
}

func TestRestartsNeitherPutAScrubOffNorBringItForward(t *testing.T) {
	scrubbed(t, func(t *testing.T, k *keeper, begin func() *scope.Registry) {
		start := time.Now()
		for range 50 { // never at the instant of a scrub, which may then have begun or not
			stop := run(t, begin())
			wait(61 * time.Minute)
			stop()
		}
		wantScrubs(t, k, start, 0, day, 2*day)
	})
}

func TestAScrubThatIsAskedForCounts(t *testing.T) {
	scrubbed(t, func(t *testing.T, k *keeper, begin func() *scope.Registry) {
		start, r := time.Now(), begin()
		stop := run(t, r)
		defer stop()
		wait(day - time.Hour)
		done, err := r.Scrub(t.Context())
		noError(t, err)
		if !done.At.Equal(start.Add(day-time.Hour)) || done.Due {
			t.Errorf("it is %+v", done)
		}
		wait(day + time.Minute) // at the very instant it may have begun or not
		wantScrubs(t, k, start, 0, day-time.Hour, 2*day-time.Hour)
		if last, err := r.LastScrub(t.Context()); err != nil || !last.At.Equal(start.Add(2*day-time.Hour)) {
			t.Errorf("the last is %+v, %v", last, err)
		}
	})
}

func TestAClockThatWasSetBackPutsNoScrubOff(t *testing.T) {
	scrubbed(t, func(t *testing.T, k *keeper, begin func() *scope.Registry) {
		start := time.Now()
		_, err := k.disk.Scrub(t.Context(), start.Add(1000*day))
		noError(t, err)
		stop := run(t, begin())
		defer stop()
		wait(day + time.Hour)
		wantScrubs(t, k, start, 0, day)
	})
}

func TestAScrubThatFailsIsTriedAgainButNotAllTheTime(t *testing.T) {
	scrubbed(t, func(t *testing.T, k *keeper, begin func() *scope.Registry) {
		start := time.Now()
		k.fail(true)
		stop := run(t, begin())
		defer stop()
		wait(150 * time.Minute)
		k.fail(false)
		wait(day)
		wantScrubs(t, k, start, 0, time.Hour, 2*time.Hour, 3*time.Hour)
	})
}

func TestWithoutAnIntervalNothingIsScrubbedUnasked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(t)
		r := registry(t, k.disk, "one", func(c *scope.Config) {
			sessions(c)
			c.Store = k
		})
		stop := run(t, r)
		wait(100 * day)
		stop()
		wantScrubs(t, k, time.Now())
	})
}

func TestScrubsFollowEachOther(t *testing.T) {
	scrubbed(t, func(t *testing.T, k *keeper, begin func() *scope.Registry) {
		k.took = time.Minute
		start, r := time.Now(), begin()
		stop := run(t, r)
		defer stop()
		synctest.Wait()
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				if _, err := r.Scrub(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		// Whoever gives up is not kept.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := r.Scrub(ctx); err == nil || time.Since(start) != time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		all.Wait()
		wantScrubs(t, k, start, 0, time.Minute, 2*time.Minute, 3*time.Minute)
		if k.most != 1 {
			t.Errorf("%d ran at once", k.most)
		}
	})
}

func TestTheEndOfRunCutsAScrubShort(t *testing.T) {
	scrubbed(t, func(t *testing.T, k *keeper, begin func() *scope.Registry) {
		k.took = time.Hour
		start := time.Now()
		stop := run(t, begin())
		wait(time.Minute)
		stop()
		if took := time.Since(start); took != time.Minute {
			t.Errorf("it ended after %v", took)
		}
	})
}

func TestShutdownEvictsWhatIsLeftToEvictAndThenScrubs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(t)
		r := registry(t, k.disk, "one", func(c *scope.Config) {
			expiring(c)
			c.Store = k
		})
		app := activate(t, k.disk, r, chat)
		chatIn(t, k.disk, r, application(app, "expired"))
		s := openSession(t, r, scope.NewSession{})
		turnIn(t, k.disk, r, s.ID, "of a session that is over")
		wait(idle)
		chatIn(t, k.disk, r, application(app, "kept"))
		q := r.Begin(acme, "req_1")
		chatOnce(t, k.disk, q, request("not evicted"), 1)
		k.failAll(true)
		if closed := q.Close(t.Context()); !closed.Pending {
			t.Fatalf("got %+v", closed)
		}
		if err := r.Shutdown(t.Context()); err == nil {
			t.Error("it does not say what it could not do")
		}
		if len(k.scrubs) != 1 {
			t.Errorf("%d scrubs, want one of what could be evicted", len(k.scrubs))
		}
		k.failAll(false)
		noError(t, r.Shutdown(t.Context()))
		if left := histories(t, k.disk); len(left) != 1 || left["kept"] != 2 || r.Pending() != 0 {
			t.Errorf("left are %v", left)
		}
		if last, err := r.LastScrub(t.Context()); err != nil || last.At.IsZero() || last.Due {
			t.Errorf("the last scrub is %+v, %v", last, err)
		}
	})
}
