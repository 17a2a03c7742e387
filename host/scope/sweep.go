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

// Expire ends the histories that have expired, of all tenants, and tells those
// who watch: whoever shows copies of what histories say calls it first. Without
// a time to live it costs nothing. Errors are the store's.
func (r *Registry) Expire(ctx context.Context) error { return r.sweepHistories(ctx) }

// endExpired ends the history under a key if it has expired. The first write
// to the new one would end it as well, and nobody would learn of it.
func (r *Registry) endExpired(ctx context.Context, k carrel.MemoryKey) error {
	c := r.cutoff()
	if c.IsZero() {
		return nil
	}
	h, err := r.cfg.Store.History(ctx, k.Tenant, r.Handle(k), nil, store.Cutoff{})
	if carrel.CodeOf(err) == abi.NotFound {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for an expired history: %w", err)
	}
	if !h.Application || h.LastUsedAt.After(c) {
		return nil
	}
	return r.sweepHistories(ctx)
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
