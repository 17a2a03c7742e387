package scope_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/host/scope"
	"github.com/carrelhost/carrel/store"
)

// keeper is a store whose upkeep a test watches and makes fail.
type keeper struct {
	*disk

	mu      sync.Mutex // guards what follows
	broken  bool
	limits  []int       // of every batch
	scrubs  []time.Time // when they began
	running int         // scrubs
	most    int         // of running
	took    time.Duration
}

func newKeeper(t *testing.T) *keeper {
	t.Helper()
	return &keeper{disk: newDisk(t)}
}

func (k *keeper) fail(broken bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.broken = broken
}

// batch notes a batch and says whether it fails.
func (k *keeper) batch(limit int) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.limits = append(k.limits, limit)
	if k.broken {
		return errDisk
	}
	return nil
}

func (k *keeper) ExpireHistories(ctx context.Context, c store.Cutoff, at time.Time, limit int) ([]carrel.Eviction, error) {
	if err := k.batch(limit); err != nil {
		return nil, err
	}
	return k.disk.ExpireHistories(ctx, c, at, limit)
}

func (k *keeper) ForgetEvictions(ctx context.Context, before time.Time, limit int) (int, error) {
	if err := k.batch(limit); err != nil {
		return 0, err
	}
	return k.disk.ForgetEvictions(ctx, before, limit)
}

func (k *keeper) Scrub(ctx context.Context, at time.Time) (store.Scrub, error) {
	k.mu.Lock()
	k.scrubs = append(k.scrubs, at)
	k.running++
	k.most = max(k.most, k.running)
	broken, took := k.broken, k.took
	k.mu.Unlock()
	defer func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.running--
	}()
	select {
	case <-ctx.Done():
		return store.Scrub{}, ctx.Err()
	case <-time.After(took):
	}
	if broken {
		return store.Scrub{}, errDisk
	}
	return k.disk.Scrub(ctx, at)
}

// began returns when scrubs began, counted from a start.
func (k *keeper) began(start time.Time) []time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	var out []time.Duration
	for _, at := range k.scrubs {
		out = append(out, at.Sub(start))
	}
	return out
}

// onlooker notes what it is told.
type onlooker struct {
	mu   sync.Mutex // guards told
	told []string
}

func (o *onlooker) note(format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.told = append(o.told, fmt.Sprintf(format, args...))
}

func (o *onlooker) Touching(carrel.RequestID, carrel.Handle) {}
func (o *onlooker) Evicted(s carrel.ScopeID, evicted []carrel.Eviction) {
	for _, e := range evicted {
		o.note("%s %s by %q", e.Key.ID, e.Reason, s)
	}
}
func (o *onlooker) Cut(h carrel.Handle)                          { o.note("cut %s", h) }
func (o *onlooker) Lost()                                        { o.note("lost") }
func (o *onlooker) Erased(t carrel.TenantID, who carrel.Subject) { o.note("erased %s of %s", who, t) }

func (o *onlooker) all() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.told)
}

func TestExpiredHistoriesAreSweptInBatchesAndWatchersAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = 600
		k, watcher := newKeeper(t), &onlooker{}
		r := registry(t, k.disk, "one", func(c *scope.Config) {
			expiring(c)
			c.Store = k
		})
		r.Watch(watcher)
		app := activate(t, k.disk, r, chat)
		for n := range many {
			chatIn(t, k.disk, r, application(app, carrel.MemoryID(fmt.Sprint(n))))
		}
		wait(idle)
		chatIn(t, k.disk, r, application(app, "young"))
		stop := run(t, r)
		synctest.Wait()
		stop()
		if left := histories(t, k.disk); len(left) != 1 || left["young"] != 2 {
			t.Errorf("%d are left", len(left))
		}
		if told := watcher.all(); len(told) != many || !slices.Contains(told, `7 expired by ""`) {
			t.Errorf("watchers were told of %d", len(told))
		}
		for _, limit := range k.limits {
			if limit <= 0 || limit > 500 {
				t.Errorf("a batch of %d", limit)
			}
		}
	})
}

func TestRecordsOfEvictionsAreForgottenInTime(t *testing.T) {
	for name, c := range map[string]struct{ configured, kept time.Duration }{
		"as configured":           {48 * time.Hour, 48 * time.Hour},
		"by default after a week": {0, 7 * 24 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const many = 600
				d := newDisk(t)
				r := registry(t, d, "one", func(cfg *scope.Config) {
					sessions(cfg)
					cfg.EvictionsKept = c.configured
				})
				q := r.Begin(acme, "req_1")
				for n := range many {
					chatOnce(t, d, q, request(carrel.MemoryID(fmt.Sprint(n))), 1)
				}
				q.Close(t.Context())
				records := func() int {
					list, err := d.ListEvictions(t.Context(), store.EvictionFilter{Tenant: acme, Limit: 2 * many})
					noError(t, err)
					return len(list)
				}
				stop := run(t, r)
				defer stop()
				wait(c.kept - time.Second)
				if n := records(); n != many {
					t.Errorf("a moment before, %d are left", n)
				}
				wait(time.Minute)
				if n := records(); n != 0 {
					t.Errorf("%d are left", n)
				}
			})
		})
	}
}

func TestASweepThatFailsIsMadeUpFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(t)
		r := registry(t, k.disk, "one", func(c *scope.Config) {
			expiring(c)
			c.Store, c.EvictionsKept = k, time.Hour
		})
		app := activate(t, k.disk, r, chat)
		chatIn(t, k.disk, r, application(app, "a"))
		chatIn(t, k.disk, r, request("gone"))
		k.fail(true)
		stop := run(t, r)
		defer stop()
		wait(2 * idle)
		if len(histories(t, k.disk)) != 1 {
			t.Fatalf("left are %v", histories(t, k.disk))
		}
		k.fail(false)
		wait(time.Minute)
		records, err := k.ListEvictions(t.Context(), store.EvictionFilter{Tenant: acme, Limit: 10})
		noError(t, err)
		if len(histories(t, k.disk)) != 0 || len(records) != 1 || records[0].Reason != carrel.ReasonExpired {
			t.Errorf("left are %v, recorded %+v", histories(t, k.disk), records)
		}
	})
}
