package httpapi

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
)

// arrivals are the connections with a request whose body is not read whole. The
// server waits for that, also behind a handler that does not read it. It is safe
// for concurrent use.
type arrivals struct {
	mu    sync.Mutex                      // guards what follows, and the connections' read deadlines
	cut   bool                            // nothing more is to come
	conns map[net.Conn]context.CancelFunc // of what waits for room; nil: nothing does
}

func newArrivals() *arrivals { return &arrivals{conns: map[net.Conn]context.CancelFunc{}} }

var errCut = carrel.Fail("httpapi.body", abi.Draining, "this host is shutting down; send the request again when it is back")

// longAgo is a deadline that is over.
var longAgo = time.Unix(1, 0)

// begin bounds when a body is to be there; after the cut, it is not to come.
func (s *arrivals) begin(c net.Conn, x *exchange, at time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cut {
		at = longAgo
	}
	if c != nil {
		s.conns[c] = nil
	}
	return setReadDeadline(x, at)
}

// end takes the bound away from a body that is there: one that stays would end
// the request's context later.
func (s *arrivals) end(c net.Conn, x *exchange) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	return setReadDeadline(x, time.Time{})
}

// await lets the cut end what waits for room for a body.
func (s *arrivals) await(c net.Conn, cancel context.CancelFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.conns[c]; known {
		s.conns[c] = cancel
	}
	if s.cut {
		cancel()
	}
}

func (s *arrivals) forget(c net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
}

// failure is errCut after the cut, and else otherwise.
func (s *arrivals) failure(otherwise error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cut {
		return errCut
	}
	return otherwise
}

// connKey is the key of a connection in the contexts of its requests.
type connKey struct{}

func connOf(r *http.Request) net.Conn {
	c, _ := r.Context().Value(connKey{}).(net.Conn)
	return c
}

// ConnContext is what the server that serves the handlers needs as its
// ConnContext, for CutBodies.
func (a *API) ConnContext(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// ConnState is what that server needs as its ConnState.
func (a *API) ConnState(c net.Conn, s http.ConnState) {
	if s == http.StateIdle || s == http.StateClosed || s == http.StateHijacked {
		a.arrivals.forget(c)
	}
}

// CutBodies ends requests whose body is not there whole, now and from now on:
// draining, if anybody reads it. Their clients may never send the rest.
func (a *API) CutBodies() {
	s := a.arrivals
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cut = true
	for c, cancel := range s.conns {
		if cancel != nil {
			cancel()
		}
		if err := c.SetReadDeadline(longAgo); err != nil {
			a.cfg.Log.Debug("body not cut", "err", fmt.Errorf("set read deadline: %w", err))
		}
	}
}
