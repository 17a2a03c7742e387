package scope_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/host/scope"
	"github.com/carrelhost/carrel/store"
)

// doubtful is a disk whose answers to some operations get lost.
type doubtful struct {
	*disk
	lose error // what comes instead of the answer; nil = the answer
}

func (d *doubtful) OpenSession(ctx context.Context, s store.ScopeInstance) error {
	if err := d.disk.OpenSession(ctx, s); err != nil {
		return err
	}
	return d.lose
}

func (d *doubtful) DeleteHistory(ctx context.Context, k carrel.MemoryKey, how store.Deletion) (carrel.Eviction, error) {
	e, err := d.disk.DeleteHistory(ctx, k, how)
	if err == nil && d.lose != nil {
		return carrel.Eviction{}, d.lose
	}
	return e, err
}

// Nobody knows the id of such a session, so that only the registry can end it.
func TestASocketWhoseOpeningWasNotAnsweredDoesNotStayOpen(t *testing.T) {
	for name, failure := range map[string]error{
		"the answer was lost": errDisk, "the client went away": context.Canceled, "it took too long": context.DeadlineExceeded,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &doubtful{newDisk(t), failure}
				r := registry(t, d.disk, "one", func(c *scope.Config) { c.Store = d })
				stop := run(t, r)
				defer stop()
				if _, err := r.OpenSocket(t.Context(), acme); !errors.Is(err, failure) {
					t.Fatalf("got %v", err)
				}
				<-time.After(time.Second + time.Millisecond)
				synctest.Wait()
				if n := open(t, d.disk, carrel.ScopeSession); n != 0 || r.Pending() != 0 {
					t.Errorf("%d are open, %d pending", n, r.Pending())
				}
			})
		})
	}
}

// An id that is taken is another's: that one must not be closed.
func TestASocketsIDThatIsTakenClosesNothing(t *testing.T) {
	d := newDisk(t)
	r := registry(t, d, "one", func(c *scope.Config) { c.NewID = func() string { return "always" } })
	if _, err := r.OpenSocket(t.Context(), acme); err != nil {
		t.Fatal(err)
	}
	if _, err := r.OpenSocket(t.Context(), acme); !errors.Is(err, store.ErrExists) {
		t.Fatalf("got %v", err)
	}
	if n := open(t, d, carrel.ScopeSession); n != 1 || r.Pending() != 0 {
		t.Errorf("%d are open, %d pending", n, r.Pending())
	}
}

func TestADeletionThatWasNotAnsweredIsToldToWhoeverKeepsCopies(t *testing.T) {
	d, watcher := &doubtful{newDisk(t), nil}, &onlooker{}
	r := registry(t, d.disk, "one", func(c *scope.Config) { c.Store = d })
	r.Watch(watcher)
	chatOnce(t, d.disk, r.Begin(acme, "req_1"), request("a"), 1)
	d.lose = errDisk
	if _, err := r.Delete(t.Context(), key("a")); !errors.Is(err, errDisk) {
		t.Fatalf("got %v", err)
	}
	if want := []string{"cut " + r.Handle(key("a")).String()}; !slices.Equal(watcher.all(), want) {
		t.Errorf("told %q, want %q", watcher.all(), want)
	}
	d.lose = nil
	if _, err := r.Delete(t.Context(), key("a")); err == nil || len(watcher.all()) != 1 { // not_found is certain
		t.Errorf("got %v, told %q", err, watcher.all())
	}
}
