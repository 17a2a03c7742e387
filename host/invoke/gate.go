package invoke

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
)

// gate bounds how many requests run at once and lets the host drain.
type gate struct {
	most, perTenant int

	mu      sync.Mutex // guards what follows
	closed  bool
	running int
	tenants map[carrel.TenantID]int
	idle    chan struct{} // closed when closed and nothing runs

	stop   context.Context //nolint:containedctx // it stands for the host's life, not for a call
	cancel context.CancelCauseFunc
}

func newGate(most, perTenant int) *gate {
	g := &gate{most: most, perTenant: perTenant, tenants: map[carrel.TenantID]int{}, idle: make(chan struct{})}
	g.stop, g.cancel = context.WithCancelCause(context.Background())
	return g
}

// retryAfter is what a request that found no room is told to wait.
const retryAfter = time.Second

// enter admits a request. The context that it returns also ends when the host
// stops; the caller calls leave once. Errors: draining, overloaded,
// quota_exceeded.
func (g *gate) enter(ctx context.Context, t carrel.TenantID) (inner context.Context, leave func(), err error) {
	const op = "invoke.enter"
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.closed:
		return nil, nil, draining()
	case g.running >= g.most:
		return nil, nil, &carrel.Error{
			Op: op, Code: abi.Overloaded, Limit: "invocations", Wait: retryAfter,
			Msg: fmt.Sprintf("%d requests run already; the host's operator can raise `limits.invocations`", g.most),
		}
	case g.tenants[t] >= g.perTenant:
		return nil, nil, &carrel.Error{
			Op: op, Code: abi.QuotaExceeded, Limit: "concurrentInvocations", Wait: retryAfter,
			Msg: fmt.Sprintf("%d requests of this tenant run already; the host's operator can raise `limits.concurrentInvocations`", g.perTenant),
		}
	}
	g.running++
	g.tenants[t]++
	inner, cancel := context.WithCancelCause(ctx)
	unhook := context.AfterFunc(g.stop, func() { cancel(context.Cause(g.stop)) })
	return inner, func() {
		unhook()
		cancel(context.Canceled)
		g.leave(t)
	}, nil
}

func (g *gate) leave(t carrel.TenantID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running--
	if g.tenants[t]--; g.tenants[t] == 0 {
		delete(g.tenants, t)
	}
	if g.closed && g.running == 0 {
		close(g.idle)
	}
}

// close refuses new requests from now on.
func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return
	}
	g.closed = true
	if g.running == 0 {
		close(g.idle)
	}
}

// drain closes the gate, waits for requests to end until ctx does, then
// cancels the rest and waits for them.
func (g *gate) drain(ctx context.Context) {
	g.close()
	select {
	case <-g.idle:
	case <-ctx.Done():
		g.cancel(draining())
		<-g.idle
	}
}

func draining() error {
	return &carrel.Error{
		Op: "invoke.enter", Code: abi.Draining, Wait: retryAfter,
		Msg: "this host is shutting down; nothing of the request was stored",
	}
}
