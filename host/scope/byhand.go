package scope

import (
	"context"
	"fmt"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/store"
)

// DeleteTurn deletes one turn of a history by hand, whatever runs on it. Its
// errors are those of Histories.
func (r *Registry) DeleteTurn(ctx context.Context, h store.History, turn int64) error {
	if err := r.Histories().DeleteTurn(ctx, h.Key, h.Generation, turn); err != nil {
		return fmt.Errorf("delete turn: %w", err)
	}
	return nil
}

// Erase ends every history that a subject touched. Its errors are the store's.
func (r *Registry) Erase(ctx context.Context, t carrel.TenantID, s carrel.Subject) ([]carrel.Eviction, error) {
	evicted, err := r.cfg.Store.EraseSubject(ctx, t, s, r.cfg.Now())
	if err != nil {
		return nil, fmt.Errorf("erase subject: %w", err)
	}
	r.tellEvicted("", evicted)
	return evicted, nil
}

// Scrub takes what was deleted off the disk. Its errors are the store's.
func (r *Registry) Scrub(ctx context.Context) (store.Scrub, error) {
	return r.cfg.Store.Scrub(ctx, r.cfg.Now())
}
