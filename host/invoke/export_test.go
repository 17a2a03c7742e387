package invoke

import (
	"context"
	"time"

	"github.com/carrelhost/carrel"
)

// Failure is the line of a plugin's log.
func Failure(e *carrel.Error) string { return failure(e) }

// Turns is the turn locks, for the tests of their order and their races.
type Turns struct{ *turnLocks }

// NewTurns returns turn locks with room for so many waiters of one key.
func NewTurns(waiters int) Turns { return Turns{newTurnLocks(waiters, time.Now)} }

// Frame is an invocation, as far as turn locks know it.
type Frame struct{ *frame }

// Root returns the client's own invocation of the seq-th request.
func Root(seq uint64) Frame { return Frame{&frame{tree: &tree{seq: seq}}} }

// Child returns an invocation that f makes.
func (f Frame) Child() Frame { return Frame{&frame{tree: f.tree, parent: f.frame}} }

// DescendsFrom reports whether other is f's parent, or that one's, and so on.
func (f Frame) DescendsFrom(other Frame) bool { return f.descendsFrom(other.frame) }

// Acquire takes the turn of a key.
func (t Turns) Acquire(ctx context.Context, k carrel.MemoryKey, f Frame, reject bool) (release func(), err error) {
	return t.acquire(ctx, k, f.frame, reject, nil)
}

// Below runs an invocation below the one that holds the turn of a key, while
// that one runs: what a tool of it would invoke.
func (v *Invoker) Below(ctx context.Context, k carrel.MemoryKey, at carrel.Address, args Args) (Result, error) {
	v.turns.mu.Lock()
	holder := v.turns.keys[k].holder()
	v.turns.mu.Unlock()
	return v.invoke(ctx, &frame{tree: holder.tree, parent: holder, depth: holder.depth + 1, address: at}, args)
}

// Held returns how many keys are held.
func (t Turns) Held() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.keys)
}

// Holds returns how many turns an invocation itself holds.
func (t Turns) Holds(f Frame) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return f.held
}

// HeldTurns returns how many keys' turns are held or waited for.
func (v *Invoker) HeldTurns() int { return Turns{v.turns}.Held() }
