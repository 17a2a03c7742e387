package scope_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/host/scope"
	"github.com/carrelhost/carrel/store"
)

// behind makes a commit as the host does: its time begins behind the gate.
func behind(ctx context.Context, r *scope.Registry, q *scope.Request, u scope.Use, most time.Duration) error {
	ctx, leave, err := r.Pass(ctx)
	if err != nil {
		return err
	}
	defer leave()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), most)
	defer cancel()
	_, err = q.Commit(ctx, u, store.Commit{Turns: []store.NewTurn{{Messages: []carrel.Message{
		{Role: carrel.RoleUser, Content: "question"}, {Role: carrel.RoleAssistant, Content: "answer"},
	}}}})
	return err
}

// blocked is a store that takes no writes while it is scrubbed, as one with a
// single writer does.
type blocked struct {
	*keeper
	writer sync.RWMutex
}

func (b *blocked) Scrub(ctx context.Context, at time.Time) (store.Scrub, error) {
	b.writer.Lock()
	defer b.writer.Unlock()
	return b.keeper.Scrub(ctx, at)
}

func (b *blocked) wait(ctx context.Context) error {
	for !b.writer.TryRLock() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
	b.writer.RUnlock()
	return nil
}

func (b *blocked) Touch(ctx context.Context, t store.Touch) (done store.Touched, err error) {
	if err := b.wait(ctx); err != nil {
		return done, err
	}
	return b.keeper.Touch(ctx, t)
}

func (b *blocked) Commit(ctx context.Context, c store.Commit) (done store.Committed, err error) {
	if err := b.wait(ctx); err != nil {
		return done, err
	}
	return b.keeper.Commit(ctx, c)
}

func (b *blocked) CloseScope(ctx context.Context, id carrel.ScopeID, why carrel.EvictionReason, at time.Time) ([]carrel.Eviction, error) {
	if err := b.wait(ctx); err != nil {
		return nil, err
	}
	return b.keeper.CloseScope(ctx, id, why, at)
}

// gated runs a test on a store whose scrub takes a minute, much longer than a
// commit or a close may.
func gated(t *testing.T, do func(t *testing.T, b *blocked, r *scope.Registry)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &blocked{keeper: newKeeper(t)}
		b.took = time.Minute
		do(t, b, registry(t, b.disk, "one", func(c *scope.Config) {
			sessions(c)
			c.Store, c.EvictTimeout = b, time.Second
		}))
	})
}

func TestTurnsWaitForAScrubAndAreStored(t *testing.T) {
	gated(t, func(t *testing.T, b *blocked, r *scope.Registry) {
		app := activate(t, b.disk, r, chat)
		var all sync.WaitGroup
		all.Go(func() {
			if _, err := r.Scrub(t.Context()); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		start := time.Now()
		for n := range 50 {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
				defer cancel()
				q := r.Begin(acme, carrel.RequestID(fmt.Sprint("req_", n)))
				u := application(app, carrel.MemoryID(fmt.Sprint("kept", n)))
				if n%2 == 0 {
					u = request(carrel.MemoryID(fmt.Sprint("ends", n)))
				}
				if n%5 == 0 {
					if err := q.Touch(ctx, application(app, carrel.MemoryID(fmt.Sprint("touched", n)))); err != nil {
						t.Errorf("touch %d: %v", n, err)
					}
				}
				if err := behind(ctx, r, q, u, time.Second); err != nil {
					t.Errorf("turn %d: %v", n, err)
				}
				if closed := q.Close(ctx); closed.Pending || len(closed.Evicted) != 1-n%2 {
					t.Errorf("close %d: %+v", n, closed)
				}
			})
		}
		all.Wait()
		if took := time.Since(start); took != time.Minute {
			t.Errorf("it took %v", took)
		}
		if left := histories(t, b.disk); len(left) != 25+10 || r.Pending() != 0 {
			t.Errorf("%d histories are stored, %d evictions pending", len(left), r.Pending())
		}
	})
}

func TestAWaitForAScrubEndsWithItsRequest(t *testing.T) {
	gated(t, func(t *testing.T, b *blocked, r *scope.Registry) {
		q := r.Begin(acme, "req_1")
		noError(t, behind(t.Context(), r, q, request("ends"), time.Second))
		stop := run(t, r)
		defer stop()
		done := make(chan error, 1)
		go func() {
			_, err := r.Scrub(t.Context())
			done <- err
		}()
		synctest.Wait()
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err := behind(ctx, r, q, request("late"), time.Second); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the turn: %v", err)
		}
		if err := q.Touch(ctx, request("late")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the touch: %v", err)
		}
		if closed := q.Close(ctx); !closed.Pending {
			t.Errorf("the close: %+v", closed)
		}
		if took := time.Since(start); took != 5*time.Second {
			t.Errorf("it took %v", took)
		}
		noError(t, <-done)
		synctest.Wait()
		if left := histories(t, b.disk); len(left) != 0 || r.Pending() != 0 {
			t.Errorf("left are %v, %d pending", left, r.Pending())
		}
	})
}

func TestScrubsAndTurnsDoNotStarveEachOther(t *testing.T) {
	gated(t, func(t *testing.T, b *blocked, r *scope.Registry) {
		app := activate(t, b.disk, r, chat)
		b.watch(func(context.Context, string) { wait(10 * time.Millisecond) })
		ctx, stop := context.WithCancel(t.Context())
		var all sync.WaitGroup
		turns := make([]int, 8)
		for n := range turns { // always some are under way
			all.Go(func() {
				for i := 0; ctx.Err() == nil; i++ {
					q := r.Begin(acme, carrel.RequestID(fmt.Sprint(n, "-", i)))
					if err := behind(t.Context(), r, q, application(app, carrel.MemoryID(fmt.Sprint(n, "-", i))), time.Second); err != nil {
						t.Errorf("turn: %v", err)
					}
					turns[n]++
				}
			})
		}
		start := time.Now()
		var scrubs sync.WaitGroup
		for range 3 { // the next one waits already when one ends
			scrubs.Go(func() {
				if _, err := r.Scrub(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		scrubs.Wait()
		if took := time.Since(start); took > 3*time.Minute+time.Second {
			t.Errorf("the scrubs waited %v", took-3*time.Minute)
		}
		stop()
		all.Wait()
		for n, count := range turns {
			if count < 3 { // two between the scrubs, and one after them
				t.Errorf("caller %d had %d turns", n, count)
			}
		}
	})
}

func TestAScrubThatIsGivenUpLetsTurnsPass(t *testing.T) {
	gated(t, func(t *testing.T, _ *blocked, r *scope.Registry) {
		_, leave, err := r.Pass(t.Context()) // a write that hangs
		noError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		passed := make(chan error, 1)
		go func() {
			wait(time.Millisecond) // when the scrub waits
			_, leave, err := r.Pass(t.Context())
			if err == nil {
				leave()
			}
			passed <- err
		}()
		if _, err := r.Scrub(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the scrub: %v", err)
		}
		noError(t, <-passed)
		leave()
		if _, err := r.Scrub(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
