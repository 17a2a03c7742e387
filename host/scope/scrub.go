package scope

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/carrelhost/carrel/store"
)

// Scrub ends what has expired and takes what was deleted before off the disk;
// see store.Upkeep. If a scrub runs already, this one follows it. It waits for
// turns that are being stored, and those that come meanwhile wait for it; see
// Pass. Errors are the store's, and the context's; what they cut short is done
// by the next.
func (r *Registry) Scrub(ctx context.Context) (store.Scrub, error) {
	select {
	case r.scrubbing <- struct{}{}:
		defer func() { <-r.scrubbing }()
	case <-ctx.Done():
		return store.Scrub{}, fmt.Errorf("wait for another scrub: %w", ctx.Err())
	}
	if err := r.endExpired(ctx); err != nil {
		return store.Scrub{}, err
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

// endExpired ends the sessions and histories whose time has passed, and that
// nobody has seen since: their bytes go only when they do.
func (r *Registry) endExpired(ctx context.Context) error {
	return errors.Join(r.closeExpired(ctx), r.sweepHistories(ctx))
}

// ScrubStatus is LastScrub, and counts what has expired and was not swept yet
// as deleted. It ends that first, unless a scrub runs, which did so itself; if
// it cannot, it says that there is something to do. Errors are the store's.
func (r *Registry) ScrubStatus(ctx context.Context) (store.Scrub, error) {
	unswept := false
	select {
	case r.scrubbing <- struct{}{}:
		if err := r.endExpired(ctx); err != nil {
			r.cfg.Log.Error("what has expired is not swept; it will be tried again", "err", err)
			unswept = true
		}
		<-r.scrubbing
	default:
	}
	last, err := r.LastScrub(ctx)
	last.Due = last.Due || unswept && err == nil
	return last, err
}

// LastScrub says when Scrub last succeeded, in this process or one before, and
// whether anything was deleted since. Errors are the store's.
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
// A store that never was scrubbed is at once if anything was deleted.
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
	if last.At.IsZero() && !last.Due { // nothing was ever deleted
		return r.cfg.ScrubEvery, nil
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
