package idempotency

import (
	"context"
	"fmt"
	"time"
)

// Releases in the background: a claim that stays although nothing ran, or
// although what ran has failed, would have a handler's key answer
// idempotency_interrupted for as long as claims are kept.
const (
	mostReleases  = 1024 // at once; each holds up repeats of its own call only
	releaseTries  = 20
	releaseRepeat = time.Second // between tries, besides what each waits for the store
)

// claimTime is now, or a moment later: a release finds the claim that it is
// for by the time, and no two claims of a process have the same.
func (k *Keeper) claimTime() time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	// Stores count in microseconds.
	now := k.cfg.Now().Truncate(time.Microsecond)
	if !now.After(k.lastClaim) {
		now = k.lastClaim.Add(time.Microsecond)
	}
	k.lastClaim = now
	return now
}

// pass gives the turn to the next call.
func (k *Keeper) pass(o *Once) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.next(o.id)
}

// release removes the claim that the call asked for, if it was taken.
func (o *Once) release(ctx context.Context) error {
	ctx, leave, _ := o.k.admit(ctx) // it is released also if ctx has ended
	defer leave()
	ctx, cancel := o.k.writing(ctx)
	defer cancel()
	if err := o.k.cfg.Store.ReleaseClaim(ctx, o.made); err != nil {
		return fmt.Errorf("release claim: %w", err)
	}
	return nil
}

// releaseLater releases a call's claim in the background and then passes the
// turn on, unless too many wait already. The store decides writes in the order
// in which they came: the first try that it hears comes after the claim.
func (k *Keeper) releaseLater(ctx context.Context, o *Once) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	select {
	case <-k.stopped:
		return false
	default:
	}
	if k.releases == mostReleases {
		return false
	}
	k.releases++
	k.places[o.id].taken = nil // whoever says something else may have a chance
	k.late.Go(func() {
		err := o.untilReleased(context.WithoutCancel(ctx))
		if err != nil {
			k.cfg.Log.Error("idempotency key not released", "tenant", o.tenant, "err", err)
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		k.releases--
		k.next(o.id)
	})
	return true
}

// untilReleased tries, at least once.
func (o *Once) untilReleased(ctx context.Context) error {
	for n := 1; ; n++ {
		err := o.release(ctx)
		if err == nil || n == releaseTries {
			return err
		}
		pause := time.NewTimer(releaseRepeat)
		select {
		case <-pause.C:
		case <-o.k.stopped:
			pause.Stop()
			return err
		}
	}
}
