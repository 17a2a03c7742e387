// Package scope keeps the registry of scope instances: what is open, what was
// touched in it, and what ends when it closes. It is the only part of the host
// that evicts histories.
package scope

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/memory"
	"github.com/carrelhost/carrel/store"
)

// Store is what the registry needs of a store.
type Store interface {
	store.Scopes
	store.Histories
	store.Sessions
	store.Evictions
	store.Upkeep
	ActivePlugins(ctx context.Context, afterTenant carrel.TenantID, after carrel.PluginName, limit int) ([]store.Plugin, error)
}

// Config configures a Registry. Store, Node, Secret and Log are required.
type Config struct {
	Store  Store
	Node   string   // this process run; no two runs share one
	Secret [32]byte // the store's host secret
	Log    *slog.Logger

	// CloseApplications closes application scopes when the host stops, as CDI
	// does, instead of keeping them until their plugin is deactivated.
	CloseApplications bool
	// Sessions bounds HTTP sessions; all of it is required where there are any.
	Sessions SessionLimits
	// SweepEvery is how often sessions whose time has passed are closed; they
	// are never visible after it, swept or not. It is also how long a scope
	// that nobody will close is left to whoever is about to. 0 = 30 s.
	SweepEvery time.Duration
	// HistoryIdleTTL is how long a history that an application scope touched
	// lives without being used; 0 = until that scope closes.
	HistoryIdleTTL time.Duration
	// ScrubEvery is how often Run takes what was deleted off the disk, counted
	// from the last time, also by a process before; 0 = never.
	ScrubEvery time.Duration
	// EvictionsKept is how long records of evictions are kept; 0 = 7 days.
	EvictionsKept time.Duration
	// EvictTimeout bounds one attempt to close a scope; 0 = 10 s.
	EvictTimeout time.Duration
	// RetryEvery is how often evictions that failed are tried again; 0 = 1 s.
	RetryEvery time.Duration

	Now   func() time.Time // nil = time.Now
	NewID func() string    // nil = random UUIDs
}

// Registry opens and closes scope instances. It is safe for concurrent use.
type Registry struct {
	cfg Config

	mu       sync.Mutex // guards what follows, but for wake
	pending  map[carrel.ScopeID]carrel.EvictionReason
	requests map[carrel.ScopeID]struct{} // that may be in the store and are not closed yet
	spilled  bool                        // request scopes are left to close that pending had no room for
	lost     bool                        // a scope may have closed without a report of what ended with it
	inUse    map[carrel.SessionID]int    // invocations in flight, by HTTP session
	wake     chan struct{}               // holds one token when pending may have grown
	watchers []Watcher                   // copied when it grows

	expiry expiry
	counts counts
	gate   gate
	// scrubbing has room for one token: who holds it scrubs.
	scrubbing chan struct{}
}

const (
	defaultEvictTimeout = 10 * time.Second
	defaultRetryEvery   = time.Second
	defaultSweepEvery   = 30 * time.Second
	defaultRecordsKept  = 7 * 24 * time.Hour
	listPage            = 500

	// maxPending bounds the closed scopes that are remembered one by one.
	// While the store takes no writes every request adds one, and only
	// requests do: all other scopes were written when they opened.
	maxPending = 1000
)

// New returns a registry. Recover must run before anything is served.
func New(cfg Config) (*Registry, error) {
	var errs []error
	if cfg.Store == nil {
		errs = append(errs, errors.New("scope: Config.Store is nil"))
	}
	if cfg.Node == "" {
		errs = append(errs, errors.New("scope: Config.Node is empty"))
	}
	if cfg.Log == nil {
		errs = append(errs, errors.New("scope: Config.Log is nil"))
	}
	if cfg.EvictTimeout == 0 {
		cfg.EvictTimeout = defaultEvictTimeout
	}
	if cfg.RetryEvery == 0 {
		cfg.RetryEvery = defaultRetryEvery
	}
	if cfg.SweepEvery == 0 {
		cfg.SweepEvery = defaultSweepEvery
	}
	if cfg.EvictionsKept == 0 {
		cfg.EvictionsKept = defaultRecordsKept
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.NewID == nil {
		cfg.NewID = uuid.NewString
	}
	return &Registry{
		cfg:      cfg,
		pending:  map[carrel.ScopeID]carrel.EvictionReason{},
		requests: map[carrel.ScopeID]struct{}{},
		inUse:    map[carrel.SessionID]int{},
		wake:     make(chan struct{}, 1),
		expiry:   expiry{pass: make(chan struct{}, 1)},
		counts:   counts{evictions: map[carrel.EvictionReason]int64{}},

		scrubbing: make(chan struct{}, 1),
	}, errors.Join(errs...)
}

// Handle returns the opaque name of a memory key.
func (r *Registry) Handle(k carrel.MemoryKey) carrel.Handle {
	return memory.Handle(r.cfg.Secret, k)
}

// NewApplication returns a fresh application scope instance for a plugin. It
// is open once the store has it.
func (r *Registry) NewApplication(t carrel.TenantID, p carrel.PluginName) store.ScopeInstance {
	return store.ScopeInstance{
		ID: carrel.ScopeID(r.cfg.NewID()), Tenant: t, Scope: carrel.ScopeApplication,
		Plugin: p, Node: r.cfg.Node, OpenedAt: r.cfg.Now(),
	}
}

// Closed is what the close of a scope did.
type Closed struct {
	Evicted []carrel.Eviction
	// Pending says that the eviction failed and will be tried again until it
	// succeeds, also after a restart.
	Pending bool
}

// CloseApplication closes an application scope whose plugin no longer claims
// it. It does not fail: what cannot be evicted now is evicted later.
func (r *Registry) CloseApplication(ctx context.Context, id carrel.ScopeID, why carrel.EvictionReason) Closed {
	if id == "" {
		return Closed{}
	}
	return r.close(ctx, id, why)
}

// Delete ends one history by hand, whatever runs on it. Its errors are those
// of Histories.
func (r *Registry) Delete(ctx context.Context, k carrel.MemoryKey) (carrel.Eviction, error) {
	e, err := r.Histories().DeleteHistory(ctx, k, store.Deletion{Reason: carrel.ReasonDeleted, At: r.cfg.Now()})
	if err != nil {
		if inDoubt(err) {
			r.tellCut(r.Handle(k)) // it may be gone
		}
		return carrel.Eviction{}, fmt.Errorf("delete history: %w", err)
	}
	r.tellEvicted("", []carrel.Eviction{e})
	return e, nil
}

// close closes a scope even if ctx has ended: a client that went away must
// not keep its histories alive. What it cannot close is pending, as is what
// would have to wait for a scrub longer than ctx does.
func (r *Registry) close(ctx context.Context, id carrel.ScopeID, why carrel.EvictionReason) Closed {
	evicted, err := r.evict(ctx, id, why)
	if err == nil {
		return Closed{Evicted: evicted}
	}
	r.cfg.Log.Error("scope not closed; it will be tried again", "scope", id, "err", err)
	r.postpone(id, why)
	return Closed{Pending: true}
}

// evict is one attempt to close a scope. Its errors are the store's, and the
// context's while a scrub runs.
func (r *Registry) evict(ctx context.Context, id carrel.ScopeID, why carrel.EvictionReason) ([]carrel.Eviction, error) {
	ctx, leave, err := r.Pass(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.cfg.EvictTimeout)
	defer cancel()
	evicted, err := r.cfg.Store.CloseScope(ctx, id, why, r.cfg.Now())
	r.tellEvicted(id, evicted)
	if inDoubt(err) {
		// The next attempt may find it closed, and has no report then.
		r.mu.Lock()
		r.lost = true
		r.mu.Unlock()
		r.rouse()
	}
	return evicted, err
}

// postpone leaves the close of a scope to Run.
func (r *Registry) postpone(id carrel.ScopeID, why carrel.EvictionReason) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, request := r.requests[id]; request && len(r.pending) >= maxPending {
		r.spilled = true
	} else {
		r.pending[id] = why
	}
	r.rouse()
}

// rouse has Run look at what is left to do.
func (r *Registry) rouse() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// closeUnused leaves to Run the close of a scope that may have opened although
// whoever opened it got an error. Nothing was touched in it: where pending has
// no room it stays open, and empty, until the next start.
func (r *Registry) closeUnused(id carrel.ScopeID) {
	if r.Pending() < maxPending {
		r.postpone(id, carrel.ReasonScopeClosed)
	}
}

// inDoubt reports whether a failed write may have been done, or may still be:
// a store's errors of known meaning say that it was not.
func inDoubt(err error) bool {
	switch carrel.CodeOf(err) {
	case abi.Internal, abi.Canceled, abi.Timeout:
		return true
	default:
		return false
	}
}

// enter notes a request scope before its first write, and exit that its close
// is done or postponed.
func (r *Registry) enter(id carrel.ScopeID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests[id] = struct{}{}
}

func (r *Registry) exit(id carrel.ScopeID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.requests, id)
}
