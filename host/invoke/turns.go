package invoke

import (
	"container/list"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
)

// turnLocks gives each memory key one turn at a time.
//
// Waiters are served in order of arrival. The lock is re-entrant for a
// descendant of the invocation that holds it, and for nobody else of its
// request: siblings queue. There is no deadlock, by wait-die: an invocation
// whose lineage holds a lock waits only for a request that started later than
// its own, and dies (memory_busy) otherwise, at once or when the lock passes
// to such a request.
type turnLocks struct {
	most int // waiters for one key
	now  func() time.Time

	mu    sync.Mutex // guards what follows, and frame.held
	keys  map[carrel.MemoryKey]*turnLock
	stats Stats
}

// Stats count the waits for turns since the start.
type Stats struct {
	Waits   int64         // calls that had to wait
	Waited  time.Duration // all of those together that wait no longer
	Waiting int           // that wait now
}

// Stats returns the counts as of now.
func (v *Invoker) Stats() Stats { return v.turns.counts() }

// turnLock is the lock of one key that is held.
type turnLock struct {
	holders []*frame   // the innermost last; each descends from the one before
	waiters *list.List // of *waiter, in order of arrival
}

type waiter struct {
	frame *frame
	since time.Time
	done  chan error // has room for one: nil = the lock is ours
}

func newTurnLocks(most int, now func() time.Time) *turnLocks {
	return &turnLocks{most: most, now: now, keys: map[carrel.MemoryKey]*turnLock{}}
}

// acquire takes the turn of a key for an invocation, waiting until ctx ends.
// queued, if not nil, is called once the invocation has its place: the turn,
// or a place in the queue. The caller calls release once, before the
// invocation's parent releases anything. Errors: memory_busy if reject is set
// and the turn is taken, if too many wait, or to prevent a deadlock; else the
// context's.
func (l *turnLocks) acquire(ctx context.Context, k carrel.MemoryKey, f *frame, reject bool, queued func()) (release func(), err error) {
	w, err := l.enter(k, f, reject)
	if queued != nil {
		queued()
	}
	if err != nil {
		return nil, err
	}
	release = func() { l.leave(k, f) }
	if w == nil {
		return release, nil
	}
	select {
	case err := <-w.done:
		if err != nil {
			return nil, err
		}
		return release, nil
	case <-ctx.Done():
	}
	if !l.abandon(k, w) && <-w.done == nil { // it was passed to us in this very moment
		release()
	}
	return nil, fmt.Errorf("wait for the turn: %w", ctx.Err())
}

// enter takes the lock and returns nil, or queues.
func (l *turnLocks) enter(k carrel.MemoryKey, f *frame, reject bool) (*waiter, error) {
	const op = "invoke.turn"
	l.mu.Lock()
	defer l.mu.Unlock()
	lock, taken := l.keys[k]
	if !taken {
		l.keys[k] = &turnLock{holders: []*frame{f}, waiters: list.New()}
		f.held++
		return nil, nil //nolint:nilnil // nobody has to wait
	}
	if f.descendsFrom(lock.holder()) {
		lock.holders = append(lock.holders, f)
		f.held++
		return nil, nil //nolint:nilnil // nobody has to wait
	}
	switch {
	case reject:
		return nil, carrel.Fail(op, abi.MemoryBusy, "another turn of this memory id is running, and the call asked not to wait for it")
	case lock.waiters.Len() >= l.most:
		return nil, carrel.FailLimit(op, abi.MemoryBusy, "turnWaiters", fmt.Sprintf(
			"%d calls wait for the turn of this memory id already; the host's operator can raise `limits.turnWaiters`", l.most))
	case !f.mayWaitFor(lock.holder()):
		return nil, wouldDeadlock()
	}
	w := &waiter{frame: f, since: l.now(), done: make(chan error, 1)}
	lock.waiters.PushBack(w)
	l.stats.Waits++
	l.stats.Waiting++
	return w, nil
}

// remove takes a waiter out of the queue of a lock; mu is held.
func (l *turnLocks) remove(lock *turnLock, e *list.Element) *waiter {
	w := lock.waiters.Remove(e).(*waiter) //nolint:forcetypeassert // only such are put in
	l.stats.Waiting--
	l.stats.Waited += max(0, l.now().Sub(w.since))
	return w
}

// counts returns the counts as of now.
func (l *turnLocks) counts() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stats
}

func wouldDeadlock() error {
	return carrel.Fail("invoke.turn", abi.MemoryBusy,
		"the request holds the turn of one memory id and needs that of another, which an earlier request has; try again")
}

func (l *turnLock) holder() *frame { return l.holders[len(l.holders)-1] }

// abandon takes a waiter out of the queue, and reports whether it was there.
func (l *turnLocks) abandon(k carrel.MemoryKey, w *waiter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	lock := l.keys[k]
	if lock == nil {
		return false
	}
	for e := lock.waiters.Front(); e != nil; e = e.Next() {
		if e.Value == w {
			l.remove(lock, e)
			return true
		}
	}
	return false
}

// leave gives up the innermost hold, which is f's, and passes the lock on: to
// a waiter that descends from the holder that is left, else, if none is, to
// the first.
func (l *turnLocks) leave(k carrel.MemoryKey, f *frame) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lock := l.keys[k]
	f.held--
	lock.holders = lock.holders[:len(lock.holders)-1]
	next := lock.next()
	if next == nil {
		if len(lock.holders) == 0 {
			delete(l.keys, k)
		}
		return
	}
	w := l.remove(lock, next)
	lock.holders = append(lock.holders, w.frame)
	w.frame.held++
	w.done <- nil
	l.die(lock)
}

func (l *turnLock) next() *list.Element {
	if len(l.holders) == 0 {
		return l.waiters.Front()
	}
	for e := l.waiters.Front(); e != nil; e = e.Next() {
		if e.Value.(*waiter).frame.descendsFrom(l.holder()) { //nolint:forcetypeassert // only such are put in
			return e
		}
	}
	return nil
}

// die ends the waiters of a lock that may not wait for its new holder.
func (l *turnLocks) die(lock *turnLock) {
	var next *list.Element
	for e := lock.waiters.Front(); e != nil; e = next {
		next = e.Next()
		w := e.Value.(*waiter) //nolint:forcetypeassert // only such are put in
		if !w.frame.mayWaitFor(lock.holder()) {
			l.remove(lock, e)
			w.done <- wouldDeadlock()
		}
	}
}
