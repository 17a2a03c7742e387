package sandbox

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
)

// slots bounds how many of something go on at once, and divides them fairly:
// those that wait are served one share after the other, within a share in the
// order of their coming.
//
// One share never holds the last slot, unless there is only one: who has a
// slot passes it on only every now and then, and others need not wait for it.
type slots struct {
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

func newSlots(n int) *slots {
	return &slots{free: n, most: max(n-1, 1), held: map[string]int{}, waiting: map[string][]*waiter{}}
}

// acquire waits for a slot; its error is the context's. The caller releases
// it under the same share.
func (s *slots) acquire(ctx context.Context, share string) error {
	return s.acquireTold(ctx, share, func() {})
}

// acquireTold is acquire, and calls waits before it waits, if it has to.
func (s *slots) acquireTold(ctx context.Context, share string, waits func()) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	if s.free > 0 && s.held[share] < s.most { // nobody who waits may have it
		s.take(share)
		s.mu.Unlock()
		return nil
	}
	w := s.enqueue(share)
	s.mu.Unlock()
	waits()
	return s.await(ctx, share, w)
}

// wanted reports whether anybody waits. It takes no lock.
func (s *slots) wanted() bool { return s.waiters.Load() > 0 }

// pass gives up the caller's slot and waits for another one, behind those who
// wait already. With an error, which is the context's, the caller has none.
func (s *slots) pass(ctx context.Context, share string) error {
	s.mu.Lock()
	w := s.enqueue(share)
	s.giveBack(share)
	s.mu.Unlock()
	return s.await(ctx, share, w)
}

// await waits until w is served.
func (s *slots) await(ctx context.Context, share string, w *waiter) error {
	select {
	case <-w.ready:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.waiting[share], w); i >= 0 {
		s.leave(share, i)
	} else { // it came at the same moment
		s.giveBack(share)
	}
	return ctx.Err()
}

func (s *slots) release(share string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.giveBack(share)
}

// enqueue needs mu, as all below do.
func (s *slots) enqueue(share string) *waiter {
	w := &waiter{ready: make(chan struct{})}
	if len(s.waiting[share]) == 0 {
		s.turns = append(s.turns, share)
	}
	s.waiting[share] = append(s.waiting[share], w)
	s.waiters.Add(1)
	return w
}

func (s *slots) giveBack(share string) {
	s.free++
	if s.held[share]--; s.held[share] == 0 {
		delete(s.held, share)
	}
	s.hand()
}

// hand gives free slots to the shares whose turn it is and that may have more.
func (s *slots) hand() {
	for s.free > 0 {
		i := slices.IndexFunc(s.turns, func(share string) bool { return s.held[share] < s.most })
		if i < 0 {
			return
		}
		share := s.turns[i]
		w := s.waiting[share][0]
		s.leave(share, 0)
		if i := slices.Index(s.turns, share); i >= 0 { // its others wait for the next round
			s.turns = append(slices.Delete(s.turns, i, i+1), share)
		}
		s.take(share)
		close(w.ready)
	}
}

// take counts a slot that somebody gets.
func (s *slots) take(share string) {
	s.free--
	s.held[share]++
}

// leave takes a waiter out of its queue.
func (s *slots) leave(share string, i int) {
	s.waiters.Add(-1)
	rest := slices.Delete(s.waiting[share], i, i+1)
	if len(rest) > 0 {
		s.waiting[share] = rest
		return
	}
	delete(s.waiting, share)
	turn := slices.Index(s.turns, share)
	s.turns = slices.Delete(s.turns, turn, turn+1)
}
