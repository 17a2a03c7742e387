package scope

import (
	"context"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/store"
)

// Histories are the store's histories without those that an expired session
// touched, whether or not anybody has closed that session yet (using them
// closes it first), and without those that have expired themselves: cutoffs
// that callers give are replaced by the one of now. Everybody but the registry
// uses these and not the store's. Errors are the store's, and overloaded while
// an expired session of the tenant cannot be closed. They are safe for
// concurrent use.
type Histories struct{ r *Registry }

var _ store.Histories = Histories{}

// Histories returns the histories that may be used.
func (r *Registry) Histories() Histories { return Histories{r} }

// cutoff is that of now.
func (r *Registry) cutoff() store.Cutoff {
	if r.cfg.HistoryIdleTTL <= 0 {
		return store.Cutoff{}
	}
	return r.cfg.Now().Add(-r.cfg.HistoryIdleTTL)
}

// View implements store.Histories.
func (h Histories) View(ctx context.Context, k carrel.MemoryKey, limit store.ViewLimit) (store.View, error) {
	if err := h.r.settle(ctx, k.Tenant); err != nil {
		return store.View{}, err
	}
	limit.Cutoff = h.r.cutoff()
	return h.r.cfg.Store.View(ctx, k, limit)
}

// Commit implements store.Histories. A turn built upon a history whose session
// has expired meanwhile is scope_closed: acknowledged, it would be lost.
func (h Histories) Commit(ctx context.Context, c store.Commit) (store.Committed, error) {
	return h.r.commit(ctx, "", c)
}

// commit is Commit of a request, if it is that of one.
func (r *Registry) commit(ctx context.Context, request carrel.ScopeID, c store.Commit) (store.Committed, error) {
	if err := r.settle(ctx, c.Touch.Key.Tenant); err != nil {
		return store.Committed{}, err
	}
	c.Touch.Cutoff = r.cutoff()
	done, err := r.cfg.Store.Commit(ctx, c)
	if c.Generation == 0 { // else it does not touch
		r.tellReplaced(request, c.Touch, done.Replaced, err)
	}
	return done, err
}

// History implements store.Histories.
func (h Histories) History(ctx context.Context, t carrel.TenantID, id carrel.Handle, by *store.Toucher, _ store.Cutoff) (store.History, error) {
	if err := h.r.settle(ctx, t); err != nil {
		return store.History{}, err
	}
	return h.r.cfg.Store.History(ctx, t, id, by, h.r.cutoff())
}

// ListHistories implements store.Histories.
func (h Histories) ListHistories(ctx context.Context, f store.HistoryFilter) ([]store.History, error) {
	if err := h.r.settle(ctx, f.Tenant); err != nil {
		return nil, err
	}
	f.Cutoff = h.r.cutoff()
	return h.r.cfg.Store.ListHistories(ctx, f)
}

// lives refuses (not_found) a generation that has expired: whoever changes it
// learned of it a while ago.
func (h Histories) lives(ctx context.Context, k carrel.MemoryKey, generation int64) error {
	c := h.r.cutoff()
	if c.IsZero() {
		return nil
	}
	now, err := h.r.cfg.Store.History(ctx, k.Tenant, h.r.Handle(k), nil, c)
	if err == nil && now.Generation != generation {
		err = carrel.FailNotFound("scope.Histories")
	}
	return err
}

// Messages implements store.Histories. A history that expires between two
// pages is not_found.
func (h Histories) Messages(ctx context.Context, k carrel.MemoryKey, generation, after int64, limit store.MessageLimit) (store.MessagePage, error) {
	if err := h.r.settle(ctx, k.Tenant); err != nil {
		return store.MessagePage{}, err
	}
	limit.Cutoff = h.r.cutoff()
	return h.r.cfg.Store.Messages(ctx, k, generation, after, limit)
}

// DeleteTurn implements store.Histories.
func (h Histories) DeleteTurn(ctx context.Context, k carrel.MemoryKey, generation, turn int64) error {
	if err := h.r.settle(ctx, k.Tenant); err != nil {
		return err
	}
	if err := h.lives(ctx, k, generation); err != nil {
		return err
	}
	return h.r.cfg.Store.DeleteTurn(ctx, k, generation, turn)
}

// DeleteHistory implements store.Histories.
func (h Histories) DeleteHistory(ctx context.Context, k carrel.MemoryKey, d store.Deletion) (carrel.Eviction, error) {
	if err := h.r.settle(ctx, k.Tenant); err != nil {
		return carrel.Eviction{}, err
	}
	d.Cutoff = h.r.cutoff()
	return h.r.cfg.Store.DeleteHistory(ctx, k, d)
}

// ExpireHistories implements store.Histories.
func (h Histories) ExpireHistories(ctx context.Context, _ store.Cutoff, at time.Time, limit int) ([]carrel.Eviction, error) {
	return h.r.cfg.Store.ExpireHistories(ctx, h.r.cutoff(), at, limit)
}
