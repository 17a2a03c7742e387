package scope

import (
	"context"
	"fmt"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/store"
)

// sweepBatch bounds how many histories end, or records go, in one change:
// other writes come in between.
const sweepBatch = 256

// Expired reports whether any of these histories of a tenant has expired, swept
// or not: then whoever has copies of what it says shows them no more. It asks
// the store about one after another until one has, and about none without a
// time to live. Histories that ended are none; those who watch were told.
// Errors are the store's.
func (r *Registry) Expired(ctx context.Context, t carrel.TenantID, of []carrel.Handle) (bool, error) {
	c := r.cutoff()
	if c.IsZero() {
		return false, nil
	}
	for _, h := range of {
		now, err := r.cfg.Store.History(ctx, t, h, nil, store.Cutoff{})
		switch {
		case carrel.CodeOf(err) == abi.NotFound:
		case err != nil:
			return false, fmt.Errorf("look for an expired history: %w", err)
		case now.Application && !now.LastUsedAt.After(c):
			return true, nil
		}
	}
	return false, nil
}

// sweepHistories ends the histories that have expired. Nobody has seen them
// since they did.
func (r *Registry) sweepHistories(ctx context.Context) error {
	if r.cfg.HistoryIdleTTL <= 0 {
		return nil
	}
	for {
		evicted, err := r.cfg.Store.ExpireHistories(ctx, r.cutoff(), r.cfg.Now(), sweepBatch)
		r.tellEvicted("", evicted)
		if err != nil {
			return fmt.Errorf("expire histories: %w", err)
		}
		if len(evicted) < sweepBatch {
			return nil
		}
	}
}

// sweepRecords forgets the records of evictions that are older than they are
// to be kept.
func (r *Registry) sweepRecords(ctx context.Context) error {
	for {
		n, err := r.cfg.Store.ForgetEvictions(ctx, r.cfg.Now().Add(-r.cfg.EvictionsKept), sweepBatch)
		if err != nil {
			return fmt.Errorf("forget records of evictions: %w", err)
		}
		if n < sweepBatch {
			return nil
		}
	}
}

// sweepAll does, again and again until ctx ends, what is due but for failed
// evictions and scrubs. What fails is tried again at the next sweep, and keeps
// nothing else from being done.
func (r *Registry) sweepAll(ctx context.Context) {
	orphans := orphanSweep{r: r}
	sweeps := []struct {
		what string
		do   func(context.Context) error
	}{
		{"sessions", r.sweep},
		{"orphaned scopes", orphans.sweep},
		{"histories", r.sweepHistories},
		{"records of evictions", r.sweepRecords},
	}
	tick := time.NewTicker(r.cfg.SweepEvery)
	defer tick.Stop()
	for {
		for _, s := range sweeps {
			if err := s.do(ctx); err != nil && ctx.Err() == nil {
				r.cfg.Log.Error(s.what+" not swept; it will be tried again", "err", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
