package scope_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/host/scope"
	"github.com/carrelhost/carrel/store"
)

const sweepEvery = 30 * time.Second // the default

// until sleeps until an instant after start, and until what is due then is
// done.
func until(start time.Time, after time.Duration) {
	<-time.After(time.Until(start.Add(after + time.Millisecond)))
	synctest.Wait()
}

// used activates a plugin and leaves a history in its application scope.
func used(t *testing.T, d *disk, r *scope.Registry, p carrel.PluginName) store.ScopeInstance {
	t.Helper()
	app := activate(t, d, r, p)
	q := r.Begin(acme, carrel.RequestID("req_"+p))
	chatOnce(t, d, q, application(app, carrel.MemoryID(p)), 1)
	q.Close(t.Context())
	return app
}

// leave deactivates a plugin as a request does that ends before it closes the
// application scope.
func leave(t *testing.T, d *disk, p carrel.PluginName) {
	t.Helper()
	_, err := d.Deactivate(t.Context(), acme, p)
	noError(t, err)
}

func TestAnApplicationScopeThatADeactivationLeftIsClosedAtTheSecondSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		r := registry(t, d, "one", nil)
		start := time.Now()
		defer run(t, r)()
		app := used(t, d, r, chat)
		used(t, d, r, "active")
		until(start, 10*time.Second)
		leave(t, d, chat)
		until(start, sweepEvery)
		if n := len(histories(t, d)); n != 2 {
			t.Errorf("after the first sweep that saw it %d histories are there, want 2", n)
		}
		until(start, 2*sweepEvery)
		if left := histories(t, d); len(left) != 1 || left["active"] != 2 || open(t, d, carrel.ScopeApplication) != 1 {
			t.Errorf("left are %v and %d application scopes", left, open(t, d, carrel.ScopeApplication))
		}
		if w := d.written(); w[len(w)-1] != fmt.Sprintf("close %s plugin_removed", app.ID) {
			t.Errorf("the last write is %q", w[len(w)-1])
		}
		writes := len(d.written())
		until(start, time.Hour)
		if now := d.written(); len(now) != writes {
			t.Errorf("the sweeps of an hour wrote %v", now[writes:])
		}
	})
}

func TestADeactivationUnderWayIsNotRaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		r := registry(t, d, "one", nil)
		start := time.Now()
		defer run(t, r)()
		// Another is left just before, so that each sweep has one to close.
		for i := range 3 {
			p, left := carrel.PluginName(fmt.Sprint("slow", i)), carrel.PluginName(fmt.Sprint("left", i))
			app := used(t, d, r, p)
			used(t, d, r, left)
			leave(t, d, left)
			at := time.Duration(i+1) * sweepEvery
			until(start, at-time.Second)
			leave(t, d, p)
			until(start, at+sweepEvery-time.Second) // after one sweep, before the next
			closed := r.CloseApplication(t.Context(), app.ID, carrel.ReasonScopeClosed)
			if len(closed.Evicted) != 1 || closed.Evicted[0].Reason != carrel.ReasonScopeClosed {
				t.Errorf("deactivation %d reports %+v", i, closed)
			}
		}
		until(start, 10*sweepEvery)
		if left := histories(t, d); len(left) != 0 {
			t.Errorf("left are %v", left)
		}
	})
}

func TestMoreOrphansThanAPageAreClosedInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = 501
		d := newDisk(t)
		r := registry(t, d, "one", nil)
		for i := range many {
			p := carrel.PluginName(fmt.Sprintf("p%04d", i))
			used(t, d, r, p)
			leave(t, d, p)
		}
		start := time.Now()
		defer run(t, r)() // the first sweep is at once
		for i, want := range []int{many, many - 500, 0} {
			until(start, time.Duration(i)*sweepEvery)
			if n := open(t, d, carrel.ScopeApplication); n != want {
				t.Errorf("after sweep %d %d are open, want %d", i, n, want)
			}
		}
		if left := histories(t, d); len(left) != 0 {
			t.Errorf("left are %v", left)
		}
	})
}

// deaf is a disk whose lists fail while a test wants them to.
type deaf struct {
	*disk
	broken atomic.Bool
}

func (d *deaf) Orphans(ctx context.Context, node string, limit int) ([]store.ScopeInstance, error) {
	if d.broken.Load() {
		return nil, errDisk
	}
	return d.disk.Orphans(ctx, node, limit)
}

func (d *deaf) ListScopes(ctx context.Context, kind carrel.Scope, after carrel.ScopeID, limit int) ([]store.ScopeInstance, error) {
	if d.broken.Load() {
		return nil, errDisk
	}
	return d.disk.ListScopes(ctx, kind, after, limit)
}

func TestASweepOfOrphansThatFailsIsMadeUpFor(t *testing.T) {
	for name, broken := range map[string]func(d *deaf, broken bool){
		"when they cannot be listed": func(d *deaf, broken bool) { d.broken.Store(broken) },
		"when they cannot be closed": func(d *deaf, broken bool) { d.failAll(broken) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &deaf{disk: newDisk(t)}
				r := registry(t, d.disk, "one", func(c *scope.Config) { c.Store = d })
				used(t, d.disk, r, chat)
				leave(t, d.disk, chat)
				start := time.Now()
				defer run(t, r)()
				until(start, sweepEvery/2) // seen once
				broken(d, true)
				until(start, 3*sweepEvery+sweepEvery/2)
				if n := len(histories(t, d.disk)); n != 1 {
					t.Errorf("%d histories are there, want 1", n)
				}
				broken(d, false)
				until(start, 4*sweepEvery)
				if n := len(histories(t, d.disk)); n != 0 || open(t, d.disk, carrel.ScopeApplication) != 0 || r.Pending() != 0 {
					t.Errorf("%d histories and %d pending are left", n, r.Pending())
				}
			})
		})
	}
}

// What Recover would close at the next start is closed in this one, too.
func TestWhatAnotherRunLeavesIsClosedAtTheSecondSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		r := registry(t, d, "one", nil)
		start := time.Now()
		defer run(t, r)()
		chatOnce(t, d, registry(t, d, "dead", nil).Begin(acme, "req_dead"), request("theirs"), 1)
		mine := r.Begin(acme, "req_mine")
		chatOnce(t, d, mine, request("mine"), 1)
		until(start, 5*sweepEvery)
		if left := histories(t, d); len(left) != 1 || left["mine"] != 2 {
			t.Errorf("left are %v", left)
		}
		if !slices.Contains(d.written(), "close req_dead scope_closed") {
			t.Errorf("got %v", d.written())
		}
		mine.Close(t.Context())
	})
}
