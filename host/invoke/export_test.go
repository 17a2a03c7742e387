package invoke

import (
	"context"

	"github.com/carrelhost/carrel"
)

// Turns is the turn locks, for the tests of their races.
type Turns struct{ *turnLocks }

// NewTurns returns turn locks with room for so many waiters of one key.
func NewTurns(waiters int) Turns { return Turns{newTurnLocks(waiters)} }

// Acquire takes the turn of a key.
func (t Turns) Acquire(ctx context.Context, k carrel.MemoryKey, reject bool) (release func(), err error) {
	return t.acquire(ctx, k, reject)
}

// Held returns how many keys are held.
func (t Turns) Held() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.held)
}
