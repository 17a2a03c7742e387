package scope

import (
	"context"
	"fmt"
	"time"

	"github.com/carrelhost/carrel/store"
)

// Scrub takes what was deleted before off the disk; see store.Upkeep. If a
// scrub runs already, this one follows it. It waits for turns that are being
// stored, and those that come meanwhile wait for it; see Pass. Errors are the
// store's, and the context's; what they cut short changed nothing.
func (r *Registry) Scrub(ctx context.Context) (store.Scrub, error) {
	select {
	case r.scrubbing <- struct{}{}:
		defer func() { <-r.scrubbing }()
	case <-ctx.Done():
		return store.Scrub{}, fmt.Errorf("wait for another scrub: %w", ctx.Err())
	}
	open, err := r.gate.hold(ctx)
	if err != nil {
		return store.Scrub{}, err
	}
	defer open()
	done, err := r.cfg.Store.Scrub(ctx, r.cfg.Now())
	if err != nil {
		return store.Scrub{}, fmt.Errorf("scrub: %w", err)
	}
	r.cfg.Log.Info("scrubbed", "took", done.Took)
	return done, nil
}

// LastScrub says when Scrub last succeeded, in this process or one before, and
// whether there is something to do since. Errors are the store's.
func (r *Registry) LastScrub(ctx context.Context) (store.Scrub, error) {
	last, err := r.cfg.Store.LastScrub(ctx)
	if err != nil {
		return store.Scrub{}, fmt.Errorf("last scrub: %w", err)
	}
	return last, nil
}

// scrubRetries is how many attempts a scrub that keeps failing has within
// ScrubEvery: each may have the writes wait as long as one that succeeds.
const scrubRetries = 24

// scrubLoop scrubs whenever the last time is ScrubEvery ago, whoever did it.
// A store that never was scrubbed is at once.
func (r *Registry) scrubLoop(ctx context.Context) {
	if r.cfg.ScrubEvery <= 0 {
		return
	}
	again := min(max(r.cfg.ScrubEvery/scrubRetries, r.cfg.SweepEvery), r.cfg.ScrubEvery)
	for {
		wait, err := r.scrubIfOld(ctx)
		if err != nil {
			if ctx.Err() == nil {
				r.cfg.Log.Error("not scrubbed; it will be tried again", "in", again, "err", err)
			}
			wait = again
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

// scrubIfOld scrubs if it is time to, and returns how long to wait until it is
// the next time.
func (r *Registry) scrubIfOld(ctx context.Context) (time.Duration, error) {
	last, err := r.LastScrub(ctx)
	if err != nil {
		return 0, err
	}
	// One in the future says that the clock was set back, and nothing else.
	if age := r.cfg.Now().Sub(last.At); !last.At.IsZero() && age >= 0 && age < r.cfg.ScrubEvery {
		return r.cfg.ScrubEvery - age, nil
	}
	if _, err := r.Scrub(ctx); err != nil {
		return 0, err
	}
	return r.cfg.ScrubEvery, nil
}
