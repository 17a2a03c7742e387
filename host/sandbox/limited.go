package sandbox

import (
	"context"
	"sync"
	"time"
)

// limited is the context of what runs on a CPU slot: its caller's, with a
// deadline of its own. A guest that computes is ended by looking at the time,
// and most end before anybody waits for their end: the timer that this takes
// is made for those who do.
type limited struct {
	context.Context //nolint:containedctx // it is one itself: the caller's

	deadline time.Time    // zero: none of its own
	cause    func() error // of the end at the deadline; nil is context.DeadlineExceeded

	mu     sync.Mutex         // guards what follows
	over   bool               // release was called
	timed  context.Context    //nolint:containedctx // see wait
	cancel context.CancelFunc // of timed, which is nil as long as nobody waits
}

// limit returns a context that ends after a time, 0 = never, or when ctx does.
// The caller releases it.
func limit(ctx context.Context, most time.Duration, cause func() error) *limited {
	l := &limited{Context: ctx, cause: cause}
	if most > 0 {
		l.deadline = time.Now().Add(most)
	}
	return l
}

// Deadline implements context.Context.
func (l *limited) Deadline() (time.Time, bool) {
	outer, ok := l.Context.Deadline()
	if l.deadline.IsZero() || ok && outer.Before(l.deadline) {
		return outer, ok
	}
	return l.deadline, true
}

// Done implements context.Context.
func (l *limited) Done() <-chan struct{} { return l.wait().Done() }

// Err implements context.Context.
func (l *limited) Err() error {
	l.mu.Lock()
	looks := l.timed == nil && !l.over
	l.mu.Unlock()
	if looks && l.Context.Err() == nil && (l.deadline.IsZero() || time.Now().Before(l.deadline)) {
		return nil
	}
	return l.wait().Err()
}

// Value implements context.Context. Once somebody waits, it also is where
// package context finds the cause and what to end with this one.
func (l *limited) Value(key any) any {
	l.mu.Lock()
	timed := l.timed
	l.mu.Unlock()
	if timed != nil {
		return timed.Value(key)
	}
	return l.Context.Value(key)
}

// wait returns the context that can be waited for.
func (l *limited) wait() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timed != nil {
		return l.timed
	}
	if l.deadline.IsZero() {
		l.timed, l.cancel = context.WithCancel(l.Context)
	} else {
		var cause error
		if l.cause != nil {
			cause = l.cause()
		}
		l.timed, l.cancel = context.WithDeadlineCause(l.Context, l.deadline, cause)
	}
	if l.over {
		l.cancel()
	}
	return l.timed
}

// release ends it, if it has not ended.
func (l *limited) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
	if l.cancel != nil {
		l.cancel()
	}
}
