package scope

import (
	"context"
	"fmt"
	"sync"
)

// gate has turns wait for a scrub before their writes begin, and with that
// before the time that a write has begins: the store takes none meanwhile,
// for as long as its size says, and nothing is wrong.
//
// Any number of writes pass while nobody scrubs. A scrub that comes lets no
// more pass and waits for those that have, so that it is not starved; when it
// ends all that wait pass, before another scrub can come, so that they are not
// either.
//
// Who has a pass may wait only for others that have one, or that need none:
// the order is turn, pass, then the pass of expiries, Request.mu and the rest.
type gate struct {
	mu      sync.Mutex    // guards what follows, and is held for no wait
	passed  int           // writes under way
	waiting int           // writes that will pass when opened is closed
	opened  chan struct{} // nil while the gate is open
	empty   chan struct{} // not nil: closed by the last write to leave
}

// passing marks contexts of those who have a pass.
type passing struct{}

// Pass waits while a scrub runs, or is about to, until ctx ends. Whoever is
// about to write to the store within a time of its own passes before that
// time begins, and calls leave once when the write has ended. With passed, a
// context derived from ctx, what is done inside does not wait again; it is good
// until leave. Without a scrub it does not look whether ctx has ended. The
// error is the context's, and says that nothing was done.
func (r *Registry) Pass(ctx context.Context) (passed context.Context, leave func(), err error) {
	if ctx.Value(passing{}) != nil {
		return ctx, func() {}, nil
	}
	if err := r.gate.enter(ctx); err != nil {
		return nil, nil, fmt.Errorf("wait for a scrub to end: %w", err)
	}
	return context.WithValue(ctx, passing{}, true), r.gate.leave, nil
}

func (g *gate) enter(ctx context.Context) error {
	g.mu.Lock()
	opened := g.opened
	if opened == nil {
		g.passed++
		g.mu.Unlock()
		return nil
	}
	g.waiting++
	g.mu.Unlock()
	select {
	case <-opened:
		return nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-opened: // it has passed in this very moment
		g.left()
	default:
		g.waiting--
	}
	return ctx.Err()
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.left()
}

// left takes one off those that have passed; mu is held.
func (g *gate) left() {
	g.passed--
	if g.passed == 0 && g.empty != nil {
		close(g.empty)
		g.empty = nil
	}
}

// hold closes the gate until open and waits until nobody is inside. One at a
// time may. The error is the context's; the gate is open then.
func (g *gate) hold(ctx context.Context) (open func(), err error) {
	g.mu.Lock()
	g.opened = make(chan struct{})
	empty := make(chan struct{})
	if g.passed == 0 {
		close(empty)
	} else {
		g.empty = empty
	}
	g.mu.Unlock()
	select {
	case <-empty:
		return g.open, nil
	case <-ctx.Done():
		g.open()
		return nil, fmt.Errorf("wait for writes to end: %w", ctx.Err())
	}
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.passed += g.waiting
	g.waiting, g.empty = 0, nil
	close(g.opened)
	g.opened = nil
}
