package scope

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/store"
)

// expiry knows when the next session can be over, so that whoever reads a
// history need not ask the store. Only this process closes the store's
// sessions and only it enters them: what it notes here is all there is.
type expiry struct {
	// pass has room for one token: who holds it looks for what has expired.
	pass chan struct{}

	mu sync.Mutex // guards what follows
	// due is no later than the end of any session that was ever entered and
	// is not closed; zero until the store was asked. It may be too early.
	due time.Time
	// noted is the earliest end noted since the pass that is under way began,
	// which may have read the store before.
	noted time.Time
}

// farFuture is later than the end of any session, and exact in microseconds.
var farFuture = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// closeTogether is how many expired sessions are read and closed at a time:
// a store makes them durable together.
const closeTogether = 32

// note says that a session may end at t.
func (e *expiry) note(t time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.due, e.noted = earlier(e.due, t), earlier(e.noted, t)
}

func (e *expiry) reached(now time.Time) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return !now.Before(e.due)
}

func (e *expiry) begin() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.noted = farFuture
}

// finish ends a pass that found everything that ended before due.
func (e *expiry) finish(due time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.due = earlier(due, e.noted)
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// settle makes sure that no history of a tenant is there any more that an
// expired session touched, before somebody uses one. Between expiries it asks
// the store nothing. Errors: overloaded while such a session cannot be closed,
// for then nothing of the tenant may be shown, and the store's.
func (r *Registry) settle(ctx context.Context, t carrel.TenantID) error {
	if !r.expiry.reached(r.cfg.Now()) {
		return nil
	}
	ctx, leave, err := r.expiring(ctx)
	if err != nil {
		return err
	}
	defer leave()
	if !r.expiry.reached(r.cfg.Now()) { // whoever came before did it
		return nil
	}
	stuck, err := r.expire(ctx)
	if err != nil {
		return err
	}
	if _, is := stuck[t]; is {
		return carrel.Fail("scope.settle", abi.Overloaded,
			"the time of a session has passed and the store did not let it be closed; until then its histories, and with them the tenant's, are not shown")
	}
	return nil
}

// closeExpired closes what has expired, due or not.
func (r *Registry) closeExpired(ctx context.Context) error {
	ctx, leave, err := r.expiring(ctx)
	if err != nil {
		return err
	}
	defer leave()
	_, err = r.expire(ctx)
	return err
}

// expiring waits until nobody else closes expired sessions, and keeps others
// from it until leave. The error is the context's.
func (r *Registry) expiring(ctx context.Context) (within context.Context, leave func(), err error) {
	// First the gate: who has passed it may come to wait here.
	ctx, out, err := r.Pass(ctx)
	if err != nil {
		return nil, nil, err
	}
	select {
	case r.expiry.pass <- struct{}{}:
		return ctx, func() { <-r.expiry.pass; out() }, nil
	case <-ctx.Done():
		out()
		return nil, nil, fmt.Errorf("wait for expired sessions to close: %w", ctx.Err())
	}
}

// expire is one pass: it closes the sessions that have expired and learns when
// the next one can. It returns the tenants of those that it could not close.
func (r *Registry) expire(ctx context.Context) (stuck map[carrel.TenantID]struct{}, err error) {
	r.expiry.begin()
	tried := map[carrel.SessionID]struct{}{}
	for {
		now := r.observe()
		// Of those that are open and over, some are in use or wait for their
		// eviction already. At least one row is of another, if there is one.
		limit := len(now.inUse) + len(now.closing) + len(tried) + closeTogether
		rows, err := r.cfg.Store.ExpiredSessions(ctx, farFuture, limit)
		if err != nil {
			return nil, fmt.Errorf("list expired sessions: %w", err)
		}
		stuck = map[carrel.TenantID]struct{}{}
		due := farFuture
		var over []store.Session
		for _, s := range rows {
			_, again := tried[s.ID]
			switch end := now.end(s); {
			case now.at.Before(end):
				due = earlier(due, end)
			case again || now.isClosing(s): // is tried again by Run
				stuck[s.Tenant] = struct{}{}
			default:
				tried[s.ID] = struct{}{}
				over = append(over, s)
			}
		}
		if len(over) == 0 {
			if len(stuck) > 0 {
				due = time.Time{}
			}
			r.expiry.finish(due)
			return stuck, nil
		}
		var closes sync.WaitGroup
		for _, s := range over {
			closes.Go(func() { r.close(ctx, carrel.ScopeID(s.ID), carrel.ReasonExpired) })
		}
		closes.Wait()
	}
}
