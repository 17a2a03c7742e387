// Package invoke runs one invocation of one service method, from its start to
// the commit of its turn, and the request that it is part of to the close of
// its scope. Every protocol edge goes through it.
package invoke

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/idempotency"
	"github.com/carrelhost/carrel/host/model"
	"github.com/carrelhost/carrel/host/scope"
	"github.com/carrelhost/carrel/plugins"
	"github.com/carrelhost/carrel/store"
)

// Limits bound what runs and what waits.
type Limits struct {
	Timeout       time.Duration // one request, and the most that a caller may ask for
	Invocations   int           // requests that run at once, of all tenants
	PerTenant     int           // requests that run at once, of one tenant
	TurnWaiters   int           // requests that wait for the turn of one memory id
	CommitTimeout time.Duration // one commit, which nothing else cuts short

	MessagesPerHistory int64 // past it whole turns are deleted, the oldest first
	WindowBytes        int64 // of a history, that are sent to the model at most
}

// Config configures an Invoker. Fields without a default are required.
type Config struct {
	Catalog   *plugins.Catalog
	Scopes    *scope.Registry
	Histories store.Histories
	Grants    store.Grants
	Models    model.Set
	Repeats   *idempotency.Keeper
	Limits    Limits
	Log       *slog.Logger
	PluginLog *plugins.Log
	Now       func() time.Time // nil = time.Now
	NewID     func() string    // nil = time-ordered UUIDs
}

func (c Config) validate() error {
	var errs []error
	if c.Catalog == nil || c.Scopes == nil || c.Histories == nil || c.Grants == nil || c.Models == nil || c.Repeats == nil || c.Log == nil || c.PluginLog == nil {
		errs = append(errs, errors.New("invoke: Config needs Catalog, Scopes, Histories, Grants, Models, Repeats, Log and PluginLog"))
	}
	if c.Limits.Timeout <= 0 || c.Limits.CommitTimeout <= 0 {
		errs = append(errs, errors.New("invoke: Limits.Timeout and Limits.CommitTimeout must be positive"))
	}
	if c.Limits.Invocations <= 0 || c.Limits.PerTenant <= 0 || c.Limits.TurnWaiters <= 0 {
		errs = append(errs, errors.New("invoke: Limits.Invocations, PerTenant and TurnWaiters must be positive"))
	}
	if c.Limits.MessagesPerHistory <= 0 || c.Limits.WindowBytes <= 0 {
		errs = append(errs, errors.New("invoke: Limits.MessagesPerHistory and WindowBytes must be positive"))
	}
	return errors.Join(errs...)
}

// Invoker runs invocations. It is safe for concurrent use.
type Invoker struct {
	cfg   Config
	turns *turnLocks
	gate  *gate
	seq   atomic.Uint64 // of the request that started last
}

// New returns an invoker.
func New(cfg Config) (*Invoker, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.NewID == nil {
		cfg.NewID = func() string { return uuid.Must(uuid.NewV7()).String() }
	}
	return &Invoker{
		cfg:   cfg,
		turns: newTurnLocks(cfg.Limits.TurnWaiters, cfg.Now),
		gate:  newGate(cfg.Limits.Invocations, cfg.Limits.PerTenant),
	}, nil
}

// Args is a params object.
type Args struct {
	Value map[string]any // numbers as json.Number
	JSON  []byte         // the same, as it was sent
}

// Call is what a client asks for.
type Call struct {
	Request carrel.RequestID // unique and random; default memory ids are made of it
	Caller  carrel.Caller
	Address carrel.Address
	Args    Args
	// Session is the HTTP session that the call is made in, or "".
	Session carrel.SessionID
	// Socket is the WebSocket's own session, or nil. Session comes before it.
	Socket *scope.Session
	// Header returns a request header's values; nil if there are none.
	Header func(name string) []string
	// IdempotencyKey makes repeating the call safe: "" = it is not.
	IdempotencyKey string
	// Replaying, if not nil, is called when the answer of an earlier call with
	// the key is about to be given, before Stream is told of anything.
	Replaying func()
	// RejectBusy refuses (memory_busy) instead of waiting for the turn.
	RejectBusy bool
	// Timeout is the caller's own; 0 = Limits.Timeout.
	Timeout time.Duration
	// Stream, if not nil, is told what happens while it does.
	Stream Stream
	// Queued, if not nil, is called once the call has its place among the
	// turns of its memory id, or will not need one. Calls that are started one
	// after the other's Queued are served in that order.
	Queued func()
}

// Stream is told what happens in an invocation while it does, from the
// goroutine of Run. An error of it ends the invocation; what was sent is no
// stored turn.
type Stream interface {
	// Started says that everything that can refuse the call has passed. What
	// fails from here on is a failure of something that began.
	Started(invocation string) error
	// Delta passes on a piece of the answer's text, as the model sends it.
	Delta(text string) error
}

// Result is what an invocation came to.
type Result struct {
	ID           string // of the invocation
	Output       any    // string, or json.RawMessage for a handler whose output is no text
	MemoryID     carrel.MemoryID
	Model        string
	FinishReason model.FinishReason
	Usage        Usage
	Trimmed      int64 // messages that were deleted because the history is at its limit
	Replayed     bool  // it is the stored answer of an earlier call with this idempotency key
}

// Usage is what an invocation used, those under it included.
type Usage struct {
	carrel.Usage
	Guest time.Duration // on a CPU
	Fuel  int64         // units of guest code's work
}

func (u *Usage) add(o Usage) {
	u.InputTokens += o.InputTokens
	u.OutputTokens += o.OutputTokens
	u.Guest += o.Guest
	u.Fuel += o.Fuel
}

// Run handles one outermost request: it opens a request scope, invokes, and
// closes the scope again, whatever happened. When it returns, the turn is
// durable (nil error) or never was, unless the store failed at its commit: such
// an error, timeout for commitTimeout or internal, says that the turn may be
// stored or not. What the request's scope touched is gone, or Closed says that
// it is pending. With an error the Result holds what was used until then, and
// nothing else.
//
// A call whose IdempotencyKey was used before gets the answer of then, and
// touches nothing; one that is being worked on is waited for.
//
// Errors, besides those of the pipeline: forbidden if the caller's role may
// not invoke, draining, overloaded, quota_exceeded, limit_exceeded for a
// Timeout above the limit; with an IdempotencyKey idempotency_mismatch,
// idempotency_interrupted and timeout.
func (v *Invoker) Run(ctx context.Context, c Call) (result Result, closed scope.Closed, err error) {
	const op = "invoke.Run"
	if !c.Caller.MayInvoke() {
		return Result{}, scope.Closed{}, carrel.Fail(op, abi.Forbidden,
			"this API key's role may not call methods; use one of role caller or owner")
	}
	if c.Timeout > v.cfg.Limits.Timeout {
		return Result{}, scope.Closed{}, carrel.FailLimit(op, abi.LimitExceeded, "timeout", fmt.Sprintf(
			"a request may take at most %v here; the host's operator can raise `limits.timeout`", v.cfg.Limits.Timeout))
	}
	if c.Timeout == 0 {
		c.Timeout = v.cfg.Limits.Timeout
	}
	limit := c.Timeout
	ctx, leave, err := v.gate.enter(ctx, c.Caller.Tenant, limit, func() error {
		return carrel.FailLimit(op, abi.Timeout, "timeout",
			fmt.Sprintf("the request did not end within %v; nothing of it was stored", limit))
	})
	if err != nil {
		return Result{}, scope.Closed{}, err
	}
	defer leave()

	t := &tree{seq: v.seq.Add(1), call: c, session: c.Socket}
	defer t.queued()
	outer := &frame{tree: t, depth: 1, address: c.Address}
	if c.IdempotencyKey != "" {
		earlier, settle, err := v.once(ctx, outer)
		if err != nil {
			return Result{}, scope.Closed{}, ended(ctx, err)
		}
		if earlier != nil {
			result, err = replay(c, *earlier)
			return result, scope.Closed{}, err
		}
		// After the scope's close, for whoever is next gets what it has left.
		// A result without an id is that of a panic, too.
		defer func() { settle(result.ID != "") }()
	}
	if c.Session != "" {
		var leaveSession func()
		if t.session, leaveSession, err = v.cfg.Scopes.Enter(ctx, c.Caller, c.Session); err != nil {
			return Result{}, scope.Closed{}, ended(ctx, err)
		}
		defer leaveSession()
	}
	t.scope = v.cfg.Scopes.Begin(c.Caller.Tenant, c.Request)
	// Deferred, so that a panic, which the edge survives, leaves no history
	// behind until the next start.
	defer func() { closed = t.end(ctx) }()
	if result, err = v.invoke(ctx, outer, c.Args); err != nil {
		return Result{Usage: outer.usage}, closed, ended(ctx, err)
	}
	return result, closed, nil
}

// ended gives an error that the end of ctx caused the code of that end. One
// that has a code already keeps it.
func ended(ctx context.Context, err error) error {
	if _, known := errors.AsType[*carrel.Error](err); known || ctx.Err() == nil ||
		!errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if cause, ok := errors.AsType[*carrel.Error](context.Cause(ctx)); ok {
		return &carrel.Error{
			Op: cause.Op, Code: cause.Code, Msg: cause.Msg, Limit: cause.Limit, Wait: cause.Wait, Err: err,
		}
	}
	return err
}

// invoke runs one invocation, at whatever depth, and fills in its frame, whose
// usage is also that of an invocation that fails.
func (v *Invoker) invoke(ctx context.Context, f *frame, args Args) (Result, error) {
	if f.method == nil { // else its claim has found it
		if err := v.find(ctx, f); err != nil {
			return Result{}, err
		}
		defer f.running.Release()
	}
	if f.method.Scope == carrel.ScopeSession && f.tree.session == nil {
		return Result{}, noSession()
	}
	f.id = v.cfg.NewID()
	if f.method.Spec.Kind == abi.KindHandler {
		return v.handler(ctx, f, args)
	}
	return v.chat(ctx, f, args)
}

// find fills in the method of an invocation, and what runs it, which the
// caller releases.
func (v *Invoker) find(ctx context.Context, f *frame) error {
	running, err := v.cfg.Catalog.Running(ctx, f.tree.call.Caller.Tenant, f.address.Plugin, f.address.Version)
	if f.outermost() && carrel.CodeOf(err) == abi.NotFound {
		return v.cfg.Catalog.Missing(ctx, f.tree.call.Caller.Tenant, f.address.Plugin)
	}
	if err != nil {
		return err
	}
	m, ok := running.Method(f.address.Service, f.address.Method)
	if !ok {
		defer running.Release()
		if !f.outermost() && f.parent.address.Plugin != f.address.Plugin { // what others have is not a guest's to know
			return carrel.FailNotFound("invoke.find")
		}
		return running.NoMethod(f.address.Service, f.address.Method)
	}
	f.running, f.method = running, m
	return nil
}

func noSession() error {
	return carrel.Fail("invoke.invoke", abi.NoSession,
		"the service is session-scoped: call it on a WebSocket, or with the header Carrel-Session")
}

// Drain refuses new requests from now on, waits for those that run until ctx
// ends, then cancels them (draining) and waits for them to end.
func (v *Invoker) Drain(ctx context.Context) { v.gate.drain(ctx) }

// StopAccepting refuses new requests from now on (draining).
func (v *Invoker) StopAccepting() { v.gate.close() }
