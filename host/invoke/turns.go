package invoke

import (
	"container/list"
	"context"
	"fmt"
	"sync"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
)

// turnLocks gives each memory key one turn at a time. Waiters are served in
// order of arrival.
type turnLocks struct {
	waiters int // most that may wait for one key

	mu   sync.Mutex                      // guards held
	held map[carrel.MemoryKey]*list.List // keys that are held, with who waits: chan struct{}
}

func newTurnLocks(waiters int) *turnLocks {
	return &turnLocks{waiters: waiters, held: map[carrel.MemoryKey]*list.List{}}
}

// acquire takes the turn of a key, waiting until ctx ends. The caller calls
// release once. Errors: memory_busy if reject is set and the turn is taken, or
// if too many wait; else the context's.
func (l *turnLocks) acquire(ctx context.Context, k carrel.MemoryKey, reject bool) (release func(), err error) {
	const op = "invoke.turn"
	l.mu.Lock()
	queue, taken := l.held[k]
	if !taken {
		l.held[k] = list.New()
		l.mu.Unlock()
		return func() { l.pass(k) }, nil
	}
	if reject {
		l.mu.Unlock()
		return nil, carrel.Fail(op, abi.MemoryBusy, "another turn of this memory id is running, and the call asked not to wait for it")
	}
	if queue.Len() >= l.waiters {
		l.mu.Unlock()
		return nil, carrel.FailLimit(op, abi.MemoryBusy, "turnWaiters", fmt.Sprintf(
			"%d calls wait for the turn of this memory id already; the host's operator can raise `limits.turnWaiters`", l.waiters))
	}
	turn := make(chan struct{})
	place := queue.PushBack(turn)
	l.mu.Unlock()

	select {
	case <-turn:
		return func() { l.pass(k) }, nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	select {
	case <-turn: // it was passed to us in this very moment
		l.mu.Unlock()
		l.pass(k)
	default:
		queue.Remove(place)
		l.mu.Unlock()
	}
	return nil, fmt.Errorf("wait for the turn: %w", ctx.Err())
}

// pass hands the key to the first waiter, or frees it.
func (l *turnLocks) pass(k carrel.MemoryKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	queue := l.held[k]
	first := queue.Front()
	if first == nil {
		delete(l.held, k)
		return
	}
	close(queue.Remove(first).(chan struct{})) //nolint:forcetypeassert // only such are put in
}
