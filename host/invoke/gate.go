package invoke

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/lifetime"
)

// gate bounds how many requests run at once and lets the host drain.
type gate struct {
	most, perTenant int

	mu      sync.Mutex // guards what follows
	closed  bool
	running map[*lifetime.Context]struct{}
	tenants map[carrel.TenantID]int
	idle    chan struct{} // closed when closed and nothing runs
}

func newGate(most, perTenant int) *gate {
	return &gate{
		most: most, perTenant: perTenant, idle: make(chan struct{}),
		running: map[*lifetime.Context]struct{}{}, tenants: map[carrel.TenantID]int{},
	}
}

// retryAfter is what a request that found no room is told to wait.
const retryAfter = time.Second

// enter admits a request that may take so long, else it ends because it is
// late. The context that it returns also ends when the host stops; the caller
// calls leave once. Errors: draining, overloaded, quota_exceeded.
func (g *gate) enter(ctx context.Context, t carrel.TenantID, most time.Duration, late func() error) (inner context.Context, leave func(), err error) {
	const op = "invoke.enter"
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.closed:
		return nil, nil, draining()
	case len(g.running) >= g.most:
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
	l := lifetime.New(ctx, most, late)
	g.running[l] = struct{}{}
	g.tenants[t]++
	return l, func() {
		l.End(nil)
		g.leave(t, l)
	}, nil
}

func (g *gate) leave(t carrel.TenantID, l *lifetime.Context) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.running, l)
	if g.tenants[t]--; g.tenants[t] == 0 {
		delete(g.tenants, t)
	}
	if g.closed && len(g.running) == 0 {
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
	if len(g.running) == 0 {
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

// cancel ends all that run.
func (g *gate) cancel(cause error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for l := range g.running {
		l.End(cause)
	}
}

func draining() error {
	return &carrel.Error{
		Op: "invoke.enter", Code: abi.Draining, Wait: retryAfter,
		Msg: "this host is shutting down; nothing of the request was stored",
	}
}
