package scope_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/scope"
	"github.com/carrelhost/carrel/store"
)

// unsure is a store whose deletions by hand take place without being
// acknowledged.
type unsure struct{ *disk }

func (u unsure) DeleteTurn(ctx context.Context, k carrel.MemoryKey, generation, turn int64) error {
	if err := u.disk.DeleteTurn(ctx, k, generation, turn); err != nil {
		return err
	}
	return errDisk
}

func TestWatchersLearnOfATurnThatIsDeletedAndNothingIsEvicted(t *testing.T) {
	for name, c := range map[string]struct {
		turn int64
		lost bool // the acknowledgement
		code abi.Code
		told bool
	}{
		"it is there":                      {1, false, abi.OK, true},
		"it is not there":                  {2, false, abi.NotFound, false},
		"nobody knows whether it is there": {1, true, abi.Internal, true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, d *disk, _ *scope.Registry) {
				watcher := &onlooker{}
				r := registry(t, d, "one", func(cfg *scope.Config) {
					sessions(cfg)
					if c.lost {
						cfg.Store = unsure{d}
					}
				})
				r.Watch(watcher)
				app := activate(t, d, r, chat)
				chatIn(t, d, r, application(app, "a"))
				h := only(t, r)
				if err := r.DeleteTurn(t.Context(), h, c.turn); carrel.CodeOf(err) != c.code {
					t.Errorf("got %v", err)
				}
				if told := watcher.all(); c.told != slices.Equal(told, []string{"cut " + h.Handle.String()}) || !c.told && len(told) > 0 {
					t.Errorf("watchers were told %q", told)
				}
				now := only(t, r)
				if now.Generation != h.Generation || (now.Messages == 0) != c.told {
					t.Errorf("left is %+v", now)
				}
				s, err := r.Stats(t.Context())
				noError(t, err)
				if len(s.Evictions) != 0 {
					t.Errorf("evictions are %v", s.Evictions)
				}
			})
		})
	}
}

func TestErasingASubject(t *testing.T) {
	inBubble(t, func(t *testing.T, d *disk, r *scope.Registry) {
		watcher := &onlooker{}
		r.Watch(watcher)
		app := activate(t, d, r, chat)
		chatIn(t, d, r, application(app, "hers"))
		shared := application(app, "shared")
		chatIn(t, d, r, shared)
		shared.By.Subject = "bob"
		chatIn(t, d, r, shared)
		his := application(app, "his")
		his.By.Subject = "bob"
		chatIn(t, d, r, his)

		// A session of hers is in use, and so is one of her histories.
		s := openSession(t, r, scope.NewSession{})
		in, leave := enter(t, r, s.ID)
		chatIn(t, d, r, inSession(in, "of the session"))
		q := r.Begin(acme, "req_running")
		use := application(app, "hers")
		noError(t, q.Touch(t.Context(), use))
		v, err := r.Histories().View(t.Context(), use.Key, store.ViewLimit{Messages: 10})
		noError(t, err)

		evicted, err := r.Erase(t.Context(), acme, "ann")
		noError(t, err)
		if len(evicted.Evicted) != 3 || evicted.Histories != 3 {
			t.Errorf("erased are %+v", evicted)
		}
		if got := seen(t, r); !slices.Equal(got, []carrel.MemoryID{"his"}) {
			t.Errorf("left are %v", got)
		}
		told := watcher.all()
		slices.Sort(told)
		want := []string{"erased ann of acme", `hers erased by ""`, `of the session erased by ""`, `shared erased by ""`}
		if !slices.Equal(told, want) {
			t.Errorf("watchers were told %q", told)
		}

		// What runs is cut off, and nothing that the registry remembers of the
		// session brings it back or keeps anything.
		wantCode(t, commitTo(t.Context(), q, use, v.Generation, 2), abi.ScopeClosed)
		wantCode(t, r.Begin(acme, "req_late").Touch(t.Context(), inSession(in, "of the session")), abi.ScopeClosed)
		q.Close(t.Context())
		leave()
		_, _, err = r.Enter(t.Context(), ann, s.ID)
		wantCode(t, err, abi.NotFound)
		stop := run(t, r)
		wait(2 * time.Hour) // past its idle and max TTL
		stop()
		if got := seen(t, r); !slices.Equal(got, []carrel.MemoryID{"his"}) || r.Pending() != 0 {
			t.Errorf("left are %v, pending %d", got, r.Pending())
		}
		// The subject may come again.
		chatIn(t, d, r, application(app, "hers"))
		openSession(t, r, scope.NewSession{})
		if got := seen(t, r); len(got) != 2 {
			t.Errorf("seen are %v", got)
		}
	})
}

// torn is a store on which an erasure ends after some changes.
type torn struct {
	*disk
	left   int   // changes until it fails
	limits []int // of every change
}

func (d *torn) EraseSubject(ctx context.Context, t carrel.TenantID, s carrel.Subject, at time.Time, limit int) (store.Erasure, error) {
	d.limits = append(d.limits, limit)
	if d.left--; d.left < 0 {
		return store.Erasure{}, errDisk
	}
	return d.disk.EraseSubject(ctx, t, s, at, limit)
}

func TestErasingMuchGoesOnWhereItFailed(t *testing.T) {
	const many = 1600
	d, watcher := &torn{disk: newDisk(t), left: 2}, &onlooker{}
	r := registry(t, d.disk, "one", func(c *scope.Config) { c.Store = d })
	r.Watch(watcher)
	q := r.Begin(acme, "req_1")
	for n := range many {
		noError(t, q.Touch(t.Context(), request(carrel.MemoryID(fmt.Sprint(n)))))
	}
	if done, err := r.Erase(t.Context(), acme, "ann"); !errors.Is(err, errDisk) || done.Histories != 0 {
		t.Fatalf("got %+v, %v", done, err)
	}
	left := len(histories(t, d.disk))
	if erased := many - left; erased == 0 || left == 0 || len(watcher.all()) != erased+1 {
		t.Errorf("%d are left, watchers were told of %d", left, len(watcher.all()))
	}
	d.left = many
	done, err := r.Erase(t.Context(), acme, "ann")
	if err != nil || done.Histories != left || len(done.Evicted) != 1000 {
		t.Errorf("it erases %d and lists %d, %v, want %d and 1000", done.Histories, len(done.Evicted), err, left)
	}
	if now := histories(t, d.disk); len(now) != 0 || len(watcher.all()) != many+2 || watcher.all()[many+1] != "erased ann of acme" {
		t.Errorf("%d are left, watchers were told of %d", len(now), len(watcher.all()))
	}
	for _, limit := range d.limits {
		if limit < 1 || limit > 500 {
			t.Errorf("a change of %d", limit)
		}
	}
}
