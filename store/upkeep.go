package store

import (
	"context"
	"time"

	"github.com/carrelhost/carrel"
)

// Scrub is what is known of the last scrub.
type Scrub struct {
	At   time.Time     // when it ended; zero = there was none
	Took time.Duration // how long it took
	// Due says that something was deleted since, which may still be on the
	// disk.
	Due bool
}

// Counts are what a store holds at one time.
type Counts struct {
	Scopes    map[carrel.Scope]int64 // open scope instances
	Histories int64
	Touches   int64 // pairs of a scope instance and a key that was touched in it
	Leaking   int64 // histories of a request's or session's own id that an application scope holds
}

// Upkeep is what an operator, and the host's clock, ask of a store.
type Upkeep interface {
	// Scrub takes what was deleted before it was called off the disk: after
	// it, no byte of that is left in any file of the store. What closed scopes
	// have left to delete in the background is deleted first. Writes wait
	// while it runs, which takes longer the more is stored; reads go on. If
	// nothing was deleted since the last, it is quick, and only makes a log
	// empty that the store keeps.
	Scrub(ctx context.Context, at time.Time) (Scrub, error)

	// LastScrub says when Scrub last succeeded.
	LastScrub(ctx context.Context) (Scrub, error)

	// Counts counts. It reads indexes as a whole, and is meant to be asked a
	// few times a minute.
	Counts(ctx context.Context) (Counts, error)
}
