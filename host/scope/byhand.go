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

// eraseBatch bounds what is erased of each kind in one change, and
// erasedListed how many evictions an erasure lists.
const (
	eraseBatch   = 256
	erasedListed = 1000
)

// Erased is what an erasure did.
type Erased struct {
	Evicted   []carrel.Eviction // the first 1,000 of them
	Histories int               // that ended, listed or not
}

// Erase ends every history that a subject of the tenant touched, and its
// sessions, and waits for nothing: what runs for the subject goes on, and its
// turns are dropped when they come to be stored. It goes on in bounded changes
// until nothing is left, so that what is touched meanwhile ends as well. If it
// fails, what it has erased stays erased, watchers were told of that, and
// another call goes on. Its errors are the store's.
func (r *Registry) Erase(ctx context.Context, t carrel.TenantID, s carrel.Subject) (Erased, error) {
	// The sessions need no more than that: what the registry remembers of
	// them, uses under way, closes that are pending and when the next one can
	// be over, does no harm for a session that is not there.
	defer r.tellErased(t, s) // also where nobody knows whether it was done
	var all Erased
	for more := true; more; {
		done, err := r.cfg.Store.EraseSubject(ctx, t, s, r.cfg.Now(), eraseBatch)
		r.tellEvicted("", done.Evicted)
		if err != nil {
			return Erased{}, fmt.Errorf("erase subject: %w", err)
		}
		more = done.More
		all.Histories += len(done.Evicted)
		all.Evicted = append(all.Evicted, done.Evicted[:min(len(done.Evicted), erasedListed-len(all.Evicted))]...)
	}
	return all, nil
}
