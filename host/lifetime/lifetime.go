// Package lifetime has contexts that end at a time. Most work ends before
// anybody waits for its end: the timer that this takes, and the place among
// what ends with the parent, are made for those who do.
package lifetime

import (
	"context"
	"sync"
	"time"
)

// Context is a context that ends with its parent, at its deadline, or by End.
// It differs from those of package context in that whoever only looks whether
// it has ended, by Err, costs nothing. It is safe for concurrent use.
type Context struct {
	context.Context //nolint:containedctx // its parent; it is one itself

	deadline time.Time // zero: none of its own
	late     func() error

	mu     sync.Mutex      // guards what follows
	over   bool            // End was called
	why    error           // of End
	waited context.Context //nolint:containedctx // what is waited for; nil as long as nobody does
	cancel context.CancelCauseFunc
	stop   context.CancelFunc
}

// New returns a context that ends after a time at the latest; 0 is never. late
// says why it will have done so: it is asked when somebody first waits, mostly
// long before, once at the most, and may not use the context. nil is
// context.DeadlineExceeded. The caller calls End.
func New(parent context.Context, most time.Duration, late func() error) *Context {
	c := &Context{Context: parent, late: late}
	if most != 0 {
		c.deadline = time.Now().Add(most)
	}
	return c
}

// Deadline implements context.Context.
func (c *Context) Deadline() (time.Time, bool) {
	outer, ok := c.Context.Deadline()
	if c.deadline.IsZero() || ok && outer.Before(c.deadline) {
		return outer, ok
	}
	return c.deadline, true
}

// Done implements context.Context.
func (c *Context) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wait().Done()
}

// Err implements context.Context.
func (c *Context) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waited == nil && !c.over && c.Context.Err() == nil && !c.isLate() {
		return nil
	}
	return c.wait().Err()
}

// Value implements context.Context. Once somebody waits, it also is where
// package context finds the cause, and what ends with this one. context.Cause
// asks Err before, which waits for what has ended.
func (c *Context) Value(key any) any {
	c.mu.Lock()
	waited := c.waited
	c.mu.Unlock()
	if waited != nil {
		return waited.Value(key)
	}
	return c.Context.Value(key)
}

// End ends it, unless it has ended. A nil cause is context.Canceled.
func (c *Context) End(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return
	}
	if c.waited == nil && (c.Context.Err() != nil || c.isLate()) {
		c.wait() // it has ended already, and not by this
	}
	c.over, c.why = true, cause
	if c.waited != nil {
		c.cancel(cause)
		c.stop()
	}
}

func (c *Context) isLate() bool { return !c.deadline.IsZero() && !time.Now().Before(c.deadline) }

// wait returns the context that can be waited for. It needs mu.
func (c *Context) wait() context.Context {
	if c.waited != nil {
		return c.waited
	}
	if c.over { // by End, before its parent ended or its time was over
		c.waited, c.cancel = context.WithCancelCause(context.WithoutCancel(c.Context))
		c.cancel(c.why)
		return c.waited
	}
	c.waited, c.cancel = context.WithCancelCause(c.Context)
	c.stop = func() {}
	if !c.deadline.IsZero() {
		var cause error
		if c.late != nil {
			cause = c.late()
		}
		c.waited, c.stop = context.WithDeadlineCause(c.waited, c.deadline, cause)
	}
	return c.waited
}
