package scope

import (
	"context"
	"fmt"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/store"
)

// DeleteTurn deletes one turn of a history by hand, whatever runs on it. Its
// errors are those of Histories.
func (r *Registry) DeleteTurn(ctx context.Context, h store.History, turn int64) error {
	err := r.Histories().DeleteTurn(ctx, h.Key, h.Generation, turn)
	if carrel.CodeOf(err) != abi.NotFound { // else it is gone, or may be
		r.tellCut(h.Handle)
	}
	if err != nil {
		return fmt.Errorf("delete turn: %w", err)
	}
	return nil
}

// Erase ends every history that a subject of the tenant touched, and its
// sessions, and waits for nothing: what runs for the subject goes on, and its
// turns are dropped when they come to be stored. Its errors are the store's.
func (r *Registry) Erase(ctx context.Context, t carrel.TenantID, s carrel.Subject) ([]carrel.Eviction, error) {
	// The sessions need no more than that: what the registry remembers of
	// them, uses under way, closes that are pending and when the next one can
	// be over, does no harm for a session that is not there.
	evicted, err := r.cfg.Store.EraseSubject(ctx, t, s, r.cfg.Now())
	r.tellEvicted("", evicted)
	r.tellErased(t, s) // also where nobody knows whether it was done
	if err != nil {
		return nil, fmt.Errorf("erase subject: %w", err)
	}
	return evicted, nil
}
