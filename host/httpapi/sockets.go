package httpapi

import (
	"context"
	"fmt"
	"sync"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
)

// sockets are the open WebSockets of a host. It is safe for concurrent use.
type sockets struct {
	most int // of one tenant

	mu      sync.Mutex // guards what follows
	closed  bool
	open    map[*socket]struct{}
	tenants map[carrel.TenantID]int
	empty   chan struct{} // closed when closed and none is open
}

func newSockets(most int) *sockets {
	return &sockets{most: most, open: map[*socket]struct{}{}, tenants: map[carrel.TenantID]int{}, empty: make(chan struct{})}
}

// add admits a socket; whoever adds it removes it. Errors: draining,
// quota_exceeded.
func (s *sockets) add(k *socket) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return carrel.Fail("httpapi.sockets", abi.Draining, "this host is shutting down")
	}
	if s.tenants[k.who.Tenant] >= s.most {
		return carrel.FailLimit("httpapi.sockets", abi.QuotaExceeded, "webSockets", fmt.Sprintf(
			"%d WebSockets of this tenant are open already; the host's operator can raise `limits.webSockets`", s.most))
	}
	s.open[k] = struct{}{}
	s.tenants[k.who.Tenant]++
	return nil
}

func (s *sockets) remove(k *socket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, k)
	if s.tenants[k.who.Tenant]--; s.tenants[k.who.Tenant] == 0 {
		delete(s.tenants, k.who.Tenant)
	}
	if s.closed && len(s.open) == 0 {
		close(s.empty)
	}
}

// refuse admits no more sockets.
func (s *sockets) refuse() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	if len(s.open) == 0 {
		close(s.empty)
	}
}

// drain closes every socket once nothing runs on it and its events are sent;
// when ctx ends, at once. It waits until they are gone, with their sessions.
func (s *sockets) drain(ctx context.Context) {
	s.refuse()
	s.mu.Lock()
	for k := range s.open {
		k.drain()
	}
	s.mu.Unlock()
	select {
	case <-s.empty:
		return
	case <-ctx.Done():
	}
	s.mu.Lock()
	for k := range s.open {
		k.cut()
	}
	s.mu.Unlock()
	<-s.empty
}
