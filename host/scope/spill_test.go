package scope_test

import (
	"fmt"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/host/scope"
	"github.com/carrelhost/carrel/store"
)

// outage closes many requests, each with a history, while the store takes no
// writes.
func outage(t *testing.T, d *disk, r *scope.Registry, many int) {
	t.Helper()
	requests := make([]*scope.Request, many)
	for i := range requests {
		id := fmt.Sprintf("n%05d", i)
		requests[i] = r.Begin(acme, carrel.RequestID("req_"+id))
		chatOnce(t, d, requests[i], request(carrel.MemoryID(id)), 1)
	}
	d.failAll(true)
	for _, q := range requests {
		if closed := q.Close(t.Context()); !closed.Pending {
			t.Fatalf("got %+v", closed)
		}
	}
}

func TestMoreClosedRequestsThanAreRememberedAreFoundInTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		r := registry(t, d, "one", nil)
		before, other := r.Begin(acme, "req_a"), registry(t, d, "two", nil).Begin(acme, "req_b")
		chatOnce(t, d, before, request("before"), 1)
		chatOnce(t, d, other, request("other"), 1)
		app := activate(t, d, r, chat)
		outage(t, d, r, scope.MaxPending+700)
		if n := r.Pending(); n != scope.MaxPending {
			t.Errorf("%d are remembered", n)
		}
		// Others than requests are remembered nevertheless, with their reasons.
		leaveClosing := r.CloseApplication(t.Context(), app.ID, carrel.ReasonPluginRemoved)
		if n := r.Pending(); n != scope.MaxPending+1 || !leaveClosing.Pending {
			t.Errorf("%d are remembered", n)
		}
		start := time.Now()
		defer run(t, r)()
		until(start, 5*time.Second)
		d.failAll(false)
		after := r.Begin(acme, "req_c")
		chatOnce(t, d, after, request("after"), 1)
		until(start, 6*time.Second)
		want := map[carrel.MemoryID]int64{"before": 2, "other": 2, "after": 2}
		if left := histories(t, d); !maps.Equal(left, want) || open(t, d, carrel.ScopeRequest) != 3 {
			t.Errorf("left are %v", left)
		}
		if open(t, d, carrel.ScopeApplication) != 0 || r.Pending() != 0 {
			t.Errorf("%d application scopes are open, %d are pending", open(t, d, carrel.ScopeApplication), r.Pending())
		}
		for _, q := range []*scope.Request{before, after} {
			if closed := q.Close(t.Context()); len(closed.Evicted) != 1 || closed.Pending {
				t.Errorf("a request in flight ended with %+v", closed)
			}
		}
	})
}

// A write whose caller gave up may take place after the scopes were listed.
func TestAScopeThatOpensLateIsFoundByTheNextPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		r := registry(t, d, "one", nil)
		outage(t, d, r, scope.MaxPending+10)
		d.failAll(false)
		start := time.Now()
		stop := run(t, r)
		until(start, time.Second/2)
		if n := len(histories(t, d)); n != 0 {
			t.Fatalf("%d histories are left", n)
		}
		late := store.ScopeInstance{ID: "req_late", Tenant: acme, Scope: carrel.ScopeRequest, Node: "one", OpenedAt: noon}
		_, err := d.Store.Touch(t.Context(), store.Touch{
			Scope: late, Key: key("late"), Handle: r.Handle(key("late")), Plugin: chat, By: someone, At: noon,
		})
		noError(t, err)
		until(start, time.Second)
		if n := len(histories(t, d)); n != 0 || open(t, d, carrel.ScopeRequest) != 0 {
			t.Errorf("%d histories are left", n)
		}
		writes := len(d.written())
		until(start, time.Hour)
		stop()
		if now := d.written(); len(now) != writes {
			t.Errorf("afterwards it wrote %v", now[writes:])
		}
	})
}

func TestAPassThatFailsIsRepeated(t *testing.T) {
	for name, fail := range map[string]func(d *deaf){
		"when the scopes cannot be listed":  func(d *deaf) { d.broken.Store(true) },
		"when one of them cannot be closed": func(d *deaf) { d.failNth(scope.MaxPending+3, false) },
		"when an acknowledgement is lost":   func(d *deaf) { d.failNth(scope.MaxPending+3, true) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &deaf{disk: newDisk(t)}
				r := registry(t, d.disk, "one", func(c *scope.Config) { c.Store = d })
				outage(t, d.disk, r, scope.MaxPending+5)
				d.failAll(false)
				fail(d)
				start := time.Now()
				defer run(t, r)()
				synctest.Wait()
				if n := len(histories(t, d.disk)); n == 0 || n > 5 {
					t.Errorf("%d histories are left by the pass that failed", n)
				}
				d.broken.Store(false)
				until(start, time.Second)
				if n := len(histories(t, d.disk)); n != 0 || open(t, d.disk, carrel.ScopeRequest) != 0 {
					t.Errorf("%d histories are left", n)
				}
			})
		})
	}
}

// Requests that could not even touch count as well: whether their write took
// place is not known.
func TestAnOutageOfTheStoreTakesBoundedMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		r := registry(t, d, "one", nil)
		start := time.Now()
		defer run(t, r)()
		d.failAll(true)
		for i := range 5 * scope.MaxPending {
			q := r.Begin(acme, carrel.RequestID(fmt.Sprint("req_", i)))
			if err := q.Touch(t.Context(), request("a")); err == nil {
				t.Fatal("the store is not broken")
			}
			q.Close(t.Context())
			if n := r.Pending(); n > scope.MaxPending {
				t.Fatalf("%d are remembered", n)
			}
		}
		until(start, time.Minute)
		if n := r.Pending(); n != scope.MaxPending {
			t.Errorf("%d are pending", n)
		}
		d.failAll(false)
		until(start, time.Minute+time.Second)
		if r.Pending() != 0 || open(t, d, carrel.ScopeRequest) != 0 {
			t.Errorf("%d are pending, %d are open", r.Pending(), open(t, d, carrel.ScopeRequest))
		}
	})
}
