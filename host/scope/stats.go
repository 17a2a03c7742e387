package scope

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/store"
)

// Stats are what the registry and its store hold at one time, and what
// happened since the start of the process.
type Stats struct {
	// Counts are the store's: open scopes by kind, histories, touches, and
	// those histories of a request's or session's own id that an application
	// scope keeps.
	store.Counts
	// Evictions counts the histories that ended since the start, by reason,
	// those that Recover ended among them. It lacks what a write of unknown
	// outcome ended.
	Evictions map[carrel.EvictionReason]int64
	// LateCommits counts the turns since the start that were dropped because
	// their history or their scope had ended meanwhile.
	LateCommits int64
	// Pending is how many closed scopes wait for their eviction; see
	// Registry.Pending.
	Pending int
	// Scrub is the last scrub. Its Due says that there is something to do.
	Scrub store.Scrub
	// ScrubAge is how long ago that was; 0 = there was none.
	ScrubAge time.Duration
}

// Stats returns the numbers as of now; the caller owns them. It costs what
// store.Upkeep.Counts does. Errors are the store's.
func (r *Registry) Stats(ctx context.Context) (Stats, error) {
	c, err := r.cfg.Store.Counts(ctx)
	if err != nil {
		return Stats{}, fmt.Errorf("count: %w", err)
	}
	last, err := r.LastScrub(ctx)
	if err != nil {
		return Stats{}, err
	}
	s := Stats{Counts: c, Pending: r.Pending(), Scrub: last}
	s.Evictions, s.LateCommits = r.counts.sums()
	if !last.At.IsZero() {
		s.ScrubAge = max(r.cfg.Now().Sub(last.At), 0) // a clock may be set back
	}
	return s, nil
}

// counts are what happened since the start.
type counts struct {
	mu        sync.Mutex // guards what follows
	evictions map[carrel.EvictionReason]int64
	late      int64
}

func (c *counts) ended(evicted []carrel.Eviction) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range evicted {
		c.evictions[e.Reason]++
	}
}

func (c *counts) dropped() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.late++
}

func (c *counts) sums() (map[carrel.EvictionReason]int64, int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.evictions), c.late
}
