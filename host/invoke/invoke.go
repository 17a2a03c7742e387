// Package invoke runs one invocation of one service method, from its start to
// the commit of its turn, and the request that it is part of to the close of
// its scope. Every protocol edge goes through it.
package invoke

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
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
}

// Config configures an Invoker. All fields but NewID are required.
type Config struct {
	Catalog   *plugins.Catalog
	Scopes    *scope.Registry
	Histories store.Histories
	Models    model.Set
	Limits    Limits
	Log       *slog.Logger
	NewID     func() string // nil = time-ordered UUIDs
}

func (c Config) validate() error {
	var errs []error
	if c.Catalog == nil || c.Scopes == nil || c.Histories == nil || c.Models == nil || c.Log == nil {
		errs = append(errs, errors.New("invoke: Config needs Catalog, Scopes, Histories, Models and Log"))
	}
	if c.Limits.Timeout <= 0 || c.Limits.CommitTimeout <= 0 {
		errs = append(errs, errors.New("invoke: Limits.Timeout and Limits.CommitTimeout must be positive"))
	}
	if c.Limits.Invocations <= 0 || c.Limits.PerTenant <= 0 || c.Limits.TurnWaiters <= 0 {
		errs = append(errs, errors.New("invoke: Limits.Invocations, PerTenant and TurnWaiters must be positive"))
	}
	return errors.Join(errs...)
}

// Invoker runs invocations. It is safe for concurrent use.
type Invoker struct {
	cfg   Config
	turns *turnLocks
	gate  *gate
}

// New returns an invoker.
func New(cfg Config) (*Invoker, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if cfg.NewID == nil {
		cfg.NewID = func() string { return uuid.Must(uuid.NewV7()).String() }
	}
	return &Invoker{
		cfg:   cfg,
		turns: newTurnLocks(cfg.Limits.TurnWaiters),
		gate:  newGate(cfg.Limits.Invocations, cfg.Limits.PerTenant),
	}, nil
}

// Call is what a client asks for.
type Call struct {
	Request carrel.RequestID // unique and random; default memory ids are made of it
	Caller  carrel.Caller
	Address carrel.Address
	Args    map[string]any // the params object, numbers as json.Number
	// ArgsBytes is the size of the params object's JSON.
	ArgsBytes int
	// Header returns a request header's values; nil if there are none.
	Header func(name string) []string
	// RejectBusy refuses (memory_busy) instead of waiting for the turn.
	RejectBusy bool
	// Timeout is the caller's own; 0 = Limits.Timeout.
	Timeout time.Duration
}

// Result is what an invocation came to.
type Result struct {
	ID           string // of the invocation
	Output       string
	MemoryID     carrel.MemoryID
	Model        string
	FinishReason model.FinishReason
	Usage        carrel.Usage
}

// Run handles one outermost request: it opens a request scope, invokes, and
// closes the scope again, whatever happened. When it returns, the turn is
// durable (nil error) or never was, and what the request's scope touched is
// gone, or Closed says that it is pending.
//
// Errors, besides those of the pipeline: forbidden if the caller's role may
// not invoke, draining, overloaded, quota_exceeded, limit_exceeded for a
// Timeout above the limit.
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
	ctx, leave, err := v.gate.enter(ctx, c.Caller.Tenant)
	if err != nil {
		return Result{}, scope.Closed{}, err
	}
	defer leave()
	ctx, cancel := context.WithTimeoutCause(ctx, c.Timeout, carrel.FailLimit(op, abi.Timeout, "timeout",
		fmt.Sprintf("the request did not end within %v; nothing of it was stored", c.Timeout)))
	defer cancel()

	q := &request{Request: v.cfg.Scopes.Begin(c.Caller.Tenant, c.Request)}
	// Deferred, so that a panic, which the edge survives, leaves no history
	// behind until the next start.
	defer func() { closed = q.end(ctx) }()
	if result, err = v.invoke(ctx, q, c); err != nil {
		return Result{}, closed, ended(ctx, err)
	}
	return result, closed, nil
}

// request is one outermost request: its scope, and the turn that it holds
// until the scope has closed.
type request struct {
	*scope.Request
	release func() // the turn's; nil as long as none was taken
}

// end closes the scope and then lets the turn go: whoever gets it next must
// not build upon a history that is about to be evicted.
func (q *request) end(ctx context.Context) scope.Closed {
	if q.release != nil {
		defer q.release()
	}
	return q.Close(ctx)
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

// invoke finds the method and runs it inside the request's scope.
func (v *Invoker) invoke(ctx context.Context, q *request, c Call) (Result, error) {
	running, err := v.cfg.Catalog.Running(ctx, c.Caller.Tenant, c.Address.Plugin, c.Address.Version)
	if err != nil {
		return Result{}, err
	}
	m, ok := running.Method(c.Address.Service, c.Address.Method)
	if !ok {
		return Result{}, carrel.FailNotFound("invoke.invoke")
	}
	return v.chat(ctx, q, running, m, c)
}

// Drain refuses new requests from now on, waits for those that run until ctx
// ends, then cancels them (draining) and waits for them to end.
func (v *Invoker) Drain(ctx context.Context) { v.gate.drain(ctx) }

// StopAccepting refuses new requests from now on (draining).
func (v *Invoker) StopAccepting() { v.gate.close() }
