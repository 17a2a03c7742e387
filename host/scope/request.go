package scope

import (
	"context"
	"strings"
	"sync"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/store"
)

// Request is the scope instance of one request. All invocations under the
// request, however deep, share it. It is safe for concurrent use; whoever
// began it closes it.
type Request struct {
	r  *Registry
	in store.ScopeInstance

	// mu is held for reading during every write in this scope and for writing
	// by Close, so that no write follows the close. Whoever takes it has passed
	// the registry's gate, lest a scrub wait for a write that waits for a close
	// that waits for the scrub.
	mu     sync.RWMutex
	closed bool

	touchMu sync.Mutex // guards what follows
	touched bool       // the store has, or may have, this instance
	shared  bool       // a service of a longer scope used a key of this request's own kind
}

// Begin opens the scope of a request. Nothing is stored until it touches.
func (r *Registry) Begin(t carrel.TenantID, id carrel.RequestID) *Request {
	return &Request{r: r, in: store.ScopeInstance{
		ID: carrel.ScopeID(id), Tenant: t, Scope: carrel.ScopeRequest,
		Node: r.cfg.Node, OpenedAt: r.cfg.Now(),
	}}
}

// ID returns the id of the request.
func (q *Request) ID() carrel.RequestID { return carrel.RequestID(q.in.ID) }

// Use is an invocation's use of a memory key, on behalf of one service.
type Use struct {
	Key     carrel.MemoryKey
	Plugin  carrel.PluginName
	Service carrel.Scope // the service's scope
	// Application is the plugin's application scope as of the start of the
	// invocation, and Session the ambient session, or nil; used if Service
	// says so.
	Application store.ScopeInstance
	Session     *Session
	By          store.Toucher
}

// Touch records durably, before the model is called, that this scope or the
// application's uses the key. A key of this very request's has no history that
// anyone else could have written, so its touch is left to the commit, which
// makes that history. Errors: scope_closed, and those of Histories.
func (q *Request) Touch(ctx context.Context, u Use) error {
	if u.Service == carrel.ScopeRequest && q.ownsAlone(u.Key) {
		return nil
	}
	ctx, leave, err := q.r.Pass(ctx)
	if err != nil {
		return err
	}
	defer leave()
	// First, for a touch must not be of a history that an expired session ends.
	if err := q.r.settle(ctx, u.Key.Tenant); err != nil {
		return err
	}
	return q.write(u, func(t store.Touch) error {
		t.Cutoff = q.r.cutoff()
		done, err := q.r.cfg.Store.Touch(ctx, t)
		q.r.tellReplaced(q.in.ID, t, done.Replaced, err)
		return err
	})
}

// ownsAlone reports whether only this scope can have touched a key.
func (q *Request) ownsAlone(k carrel.MemoryKey) bool {
	if k.Kind != carrel.KindRequest || !strings.HasPrefix(string(k.ID), string(q.in.ID)+"#") {
		return false
	}
	q.touchMu.Lock()
	defer q.touchMu.Unlock()
	return !q.shared
}

// Commit changes the history that c was built upon, and touches if that is
// still due. Touch and At of c are the registry's to fill in. Errors:
// scope_closed if the history ended meanwhile or the scope did, and those of
// Histories.
func (q *Request) Commit(ctx context.Context, u Use, c store.Commit) (done store.Committed, err error) {
	ctx, leave, err := q.r.Pass(ctx)
	if err != nil {
		return store.Committed{}, err
	}
	defer leave()
	err = q.write(u, func(t store.Touch) error {
		c.Touch, c.At = t, t.At
		done, err = q.r.commit(ctx, q.in.ID, c)
		return err
	})
	if carrel.CodeOf(err) == abi.ScopeClosed {
		q.r.counts.dropped()
	}
	return done, err
}

// write runs one write of this scope, unless it is closed.
func (q *Request) write(u Use, do func(store.Touch) error) error {
	q.mu.RLock()
	defer q.mu.RUnlock()
	if q.closed {
		return carrel.Fail("scope.Request", abi.ScopeClosed, "the request has ended")
	}
	t := store.Touch{
		Scope: q.in, Key: u.Key, Handle: q.r.Handle(u.Key),
		Plugin: u.Plugin, By: u.By, At: q.r.cfg.Now(),
	}
	q.touchMu.Lock() // before the write: one whose outcome is unknown counts
	if u.Service == carrel.ScopeRequest && !q.touched {
		q.touched = true
		q.r.enter(q.in.ID)
	}
	q.shared = q.shared || u.Service != carrel.ScopeRequest && u.Key.Kind == carrel.KindRequest
	q.touchMu.Unlock()
	switch u.Service {
	case carrel.ScopeRequest:
	case carrel.ScopeApplication:
		t.Scope = u.Application
	case carrel.ScopeSession:
		if u.Session == nil {
			return carrel.Fail("scope.Request", abi.NoSession, "this needs a session, and there is none")
		}
		t.Scope = u.Session.in
	}
	q.r.tellTouching(q.ID(), t.Handle)
	return do(t)
}

// Reads says that the request reads a history. Reading touches nothing, but
// what the request answers may now repeat what the history says: whoever keeps
// the answer is told.
func (q *Request) Reads(k carrel.MemoryKey) { q.r.tellTouching(q.ID(), q.r.Handle(k)) }

// Close ends the scope: it waits for writes under way, then evicts every
// history touched in it, also if ctx has ended, unless a scrub runs: then that
// is pending. A second Close does nothing.
func (q *Request) Close(ctx context.Context) Closed {
	if passed, leave, err := q.r.Pass(ctx); err == nil {
		ctx = passed
		defer leave()
	} // else ctx has ended, and evict does not wait either
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return Closed{}
	}
	q.closed = true
	if !q.touched {
		return Closed{}
	}
	// After the close, so that nobody else evicts what this one reports.
	defer q.r.exit(q.in.ID)
	return q.r.close(ctx, q.in.ID, carrel.ReasonScopeClosed)
}
