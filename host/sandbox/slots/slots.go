// Package slots bounds how many of something go on at once, and divides the
// places fairly among shares, such as tenants.
package slots

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
)

// Pool is a number of slots. Those that wait for one are served one share after
// the other, within a share in the order of their coming. All methods are safe
// for concurrent use.
//
// One share never holds the last slot, unless there is only one: who has a
// slot passes it on only every now and then, and others need not wait for it.
type Pool struct {
	mu      sync.Mutex
	free    int
	most    int // that one share may hold
	held    map[string]int
	waiting map[string][]*waiter
	turns   []string // the shares that have waiters, the next one first

	waiters atomic.Int64 // how many there are in waiting; written under mu
}

// waiter is one that waits. ready is closed with the slot already counted as
// its own.
type waiter struct{ ready chan struct{} }

// New returns a pool of n slots, which is at least 1, all of them free.
func New(n int) *Pool {
	return &Pool{free: n, most: max(n-1, 1), held: map[string]int{}, waiting: map[string][]*waiter{}}
}

// Acquire waits for a slot, and calls waits before it does, if it has to; nil
// calls nothing. Its error is the context's. The caller releases the slot under
// the same share.
func (p *Pool) Acquire(ctx context.Context, share string, waits func()) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	p.mu.Lock()
	if p.free > 0 && p.held[share] < p.most { // nobody who waits may have it
		p.take(share)
		p.mu.Unlock()
		return nil
	}
	w := p.enqueue(share)
	p.mu.Unlock()
	if waits != nil {
		waits()
	}
	return p.await(ctx, share, w)
}

// Wanted reports whether anybody waits. It takes no lock.
func (p *Pool) Wanted() bool { return p.waiters.Load() > 0 }

// Pass gives up the caller's slot and waits for another one, behind those who
// wait already. With an error, which is the context's, the caller has none.
func (p *Pool) Pass(ctx context.Context, share string) error {
	p.mu.Lock()
	w := p.enqueue(share)
	p.giveBack(share)
	p.mu.Unlock()
	return p.await(ctx, share, w)
}

// await waits until w is served.
func (p *Pool) await(ctx context.Context, share string, w *waiter) error {
	select {
	case <-w.ready:
		// Whoever passed the slot on made this goroutine the next of its
		// thread's. Guests that pass one to each other would keep the thread
		// for as long as they are many, and nothing else of the host's would
		// have it.
		runtime.Gosched()
		return nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.waiting[share], w); i >= 0 {
		p.leave(share, i)
	} else { // it came at the same moment
		p.giveBack(share)
	}
	return ctx.Err()
}

// Release gives a slot back, which whoever waits has at once.
func (p *Pool) Release(share string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.giveBack(share)
}

// Of returns how many slots a share has, and how many of it wait.
func (p *Pool) Of(share string) (held, waiting int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.held[share], len(p.waiting[share])
}

// enqueue needs mu, as all below do.
func (p *Pool) enqueue(share string) *waiter {
	w := &waiter{ready: make(chan struct{})}
	if len(p.waiting[share]) == 0 {
		p.turns = append(p.turns, share)
	}
	p.waiting[share] = append(p.waiting[share], w)
	p.waiters.Add(1)
	return w
}

func (p *Pool) giveBack(share string) {
	p.free++
	if p.held[share]--; p.held[share] == 0 {
		delete(p.held, share)
	}
	p.hand()
}

// hand gives free slots to the shares whose turn it is and that may have more.
func (p *Pool) hand() {
	for p.free > 0 {
		i := slices.IndexFunc(p.turns, func(share string) bool { return p.held[share] < p.most })
		if i < 0 {
			return
		}
		share := p.turns[i]
		w := p.waiting[share][0]
		p.leave(share, 0)
		if i := slices.Index(p.turns, share); i >= 0 { // its others wait for the next round
			p.turns = append(slices.Delete(p.turns, i, i+1), share)
		}
		p.take(share)
		close(w.ready)
	}
}

// take counts a slot that somebody gets.
func (p *Pool) take(share string) {
	p.free--
	p.held[share]++
}

// leave takes a waiter out of its queue.
func (p *Pool) leave(share string, i int) {
	p.waiters.Add(-1)
	rest := slices.Delete(p.waiting[share], i, i+1)
	if len(rest) > 0 {
		p.waiting[share] = rest
		return
	}
	delete(p.waiting, share)
	turn := slices.Index(p.turns, share)
	p.turns = slices.Delete(p.turns, turn, turn+1)
}
