package scope_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/host/scope"
)

// run starts the registry's retries until the test ends.
func run(t *testing.T, r *scope.Registry) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.Run(ctx)
	}()
	return func() {
		cancel()
		<-ended
	}
}

func TestEvictionsThatFailAreTriedUntilTheySucceed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		r := registry(t, d, "one", nil)
		stop := run(t, r)
		defer stop()
		requests := map[carrel.MemoryID]*scope.Request{}
		for _, id := range []carrel.MemoryID{"a", "b", "c"} {
			requests[id] = r.Begin(acme, carrel.RequestID("req_"+id))
			chatOnce(t, d, requests[id], request(id), 1)
		}
		d.failAll(true)
		for id, q := range requests {
			if closed := q.Close(t.Context()); !closed.Pending || closed.Evicted != nil {
				t.Errorf("%s: got %+v", id, closed)
			}
		}
		for range 5 {
			<-time.After(time.Second)
			synctest.Wait()
			if r.Pending() != 3 || len(histories(t, d)) != 3 {
				t.Fatalf("%d are pending, %v are left", r.Pending(), histories(t, d))
			}
		}
		if n := len(d.written()); n < 6+3+5 || n > 6+3+10 {
			t.Errorf("in five seconds %d writes were tried", n-9)
		}
		d.failAll(false)
		<-time.After(time.Second + time.Millisecond)
		synctest.Wait()
		if r.Pending() != 0 || len(histories(t, d)) != 0 || open(t, d, carrel.ScopeRequest) != 0 {
			t.Errorf("%d are pending, %v are left", r.Pending(), histories(t, d))
		}
		quiet := len(d.written())
		<-time.After(time.Hour)
		synctest.Wait()
		if n := len(d.written()); n != quiet {
			t.Errorf("%d writes followed although nothing was pending", n-quiet)
		}

		// What fails later is tried again as well.
		q := r.Begin(acme, "req_later")
		chatOnce(t, d, q, request("later"), 1)
		d.failNth(1, false)
		if closed := q.Close(t.Context()); !closed.Pending {
			t.Errorf("got %+v", closed)
		}
		<-time.After(time.Second + time.Millisecond)
		synctest.Wait()
		if r.Pending() != 0 || len(histories(t, d)) != 0 {
			t.Errorf("%d are pending, %v are left", r.Pending(), histories(t, d))
		}
	})
}

func TestAnEvictionWhoseAcknowledgementWasLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		r := registry(t, d, "one", nil)
		stop := run(t, r)
		defer stop()
		q := r.Begin(acme, "req_1")
		chatOnce(t, d, q, request("a"), 1)
		var told onlooker
		r.Watch(&told)
		d.failNth(1, true)
		if closed := q.Close(t.Context()); !closed.Pending {
			t.Errorf("got %+v", closed)
		}
		<-time.After(time.Second + time.Millisecond)
		synctest.Wait()
		if r.Pending() != 0 || len(histories(t, d)) != 0 {
			t.Errorf("%d are pending, %v are left", r.Pending(), histories(t, d))
		}
		// Nobody has a report of what ended, so copies of everything go.
		if got := told.all(); !slices.Equal(got, []string{"lost"}) {
			t.Errorf("watchers were told %v", got)
		}
	})
}

func TestAnApplicationWhoseCloseFailsKeepsItsReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		r := registry(t, d, "one", nil)
		stop := run(t, r)
		defer stop()
		app := activate(t, d, r, chat)
		q := r.Begin(acme, "req_1")
		chatOnce(t, d, q, application(app, "a"), 1)
		q.Close(t.Context())
		before, err := d.Deactivate(t.Context(), acme, chat)
		noError(t, err)
		d.failNth(1, false)
		if c := r.CloseApplication(t.Context(), before.Scope, carrel.ReasonPluginRemoved); !c.Pending {
			t.Fatalf("got %+v", c)
		}
		<-time.After(time.Second + time.Millisecond)
		synctest.Wait()
		if r.Pending() != 0 || len(histories(t, d)) != 0 {
			t.Errorf("%d are pending, %v are left", r.Pending(), histories(t, d))
		}
		want := fmt.Sprintf("close %s plugin_removed", app.ID)
		if w := d.written(); !slices.Equal(w[len(w)-2:], []string{want, want}) {
			t.Errorf("got %v", w)
		}
	})
}

func TestAStoreThatHangsDoesNotHoldTheAnswerForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		r := registry(t, d, "one", func(c *scope.Config) { c.EvictTimeout = 3 * time.Second })
		q := r.Begin(acme, "req_1")
		chatOnce(t, d, q, request("a"), 1)
		d.watch(func(ctx context.Context, write string) {
			if strings.HasPrefix(write, "close") {
				<-ctx.Done()
			}
		})
		start := time.Now()
		closed := q.Close(t.Context())
		if took := time.Since(start); !closed.Pending || took != 3*time.Second {
			t.Errorf("got %+v after %v", closed, took)
		}
		d.watch(nil)
		stop := run(t, r)
		defer stop()
		synctest.Wait()
		if r.Pending() != 0 || len(histories(t, d)) != 0 {
			t.Errorf("%d are pending, %v are left", r.Pending(), histories(t, d))
		}
	})
}

// What a process could not evict before it ended, the next one does.
func TestAPendingEvictionOutlivesItsProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		r := registry(t, d, "one", nil)
		stop := run(t, r)
		q := r.Begin(acme, "req_1")
		chatOnce(t, d, q, request("a"), 1)
		d.failAll(true)
		q.Close(t.Context())
		<-time.After(time.Minute)
		stop()
		if r.Pending() != 1 {
			t.Errorf("%d are pending", r.Pending())
		}
		d.failAll(false)
		wantRecovered(t, registry(t, d, "two", nil), scope.Recovered{Scopes: 1, Histories: 1})
		if len(histories(t, d)) != 0 {
			t.Error("the history is still there")
		}
	})
}
