package host

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/net/netutil"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/httpapi"
)

// server is a listener and what serves it.
type server struct {
	listener net.Listener
	http     *http.Server
	edge     *httpapi.API
}

// listen opens a listener that accepts so many connections at once; the next
// ones wait.
func listen(ctx context.Context, address string, connections int) (net.Listener, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("%s: %w (another address: --listen 127.0.0.1:0 takes any free port)", address, err)
	}
	return netutil.LimitListener(l, connections), nil
}

func isLoopback(l net.Listener) bool {
	a, ok := l.Addr().(*net.TCPAddr)
	return ok && a.IP.IsLoopback()
}

// baseURL is how a client on this machine reaches a listener.
func baseURL(l net.Listener) string {
	a, ok := l.Addr().(*net.TCPAddr)
	if ok && a.IP.IsUnspecified() {
		return fmt.Sprintf("http://127.0.0.1:%d", a.Port)
	}
	return "http://" + l.Addr().String()
}

// Bounds of the HTTP servers that no request ever comes near.
const (
	readHeaderTimeout = 10 * time.Second
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 64 << 10
)

// httpServer has no write timeout: an invocation may take long, and has a
// deadline of its own.
func (h *Host) httpServer(edge *httpapi.API, handler http.Handler) *http.Server {
	return &http.Server{
		Handler: handler, ConnContext: edge.ConnContext, ConnState: edge.ConnState,
		ReadHeaderTimeout: readHeaderTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeaderBytes, ErrorLog: errorLog(h.log),
	}
}

// Run serves until ctx ends, then drains: it refuses new work, gives what runs
// Limits.DrainTimeout, cancels the rest, closes what the end of the process
// closes, and takes what was deleted off the disk, for as long as that takes.
// A host runs once. The error is the first reason to stop that is not ctx, and
// what could not be closed or scrubbed.
func (h *Host) Run(ctx context.Context) error {
	var background sync.WaitGroup
	sweep, stopSweep := context.WithCancel(context.WithoutCancel(ctx))
	background.Go(func() { h.scopes.Run(sweep) })
	background.Go(func() { h.repeats.Run(sweep) })

	failed := make(chan error, len(h.servers))
	for _, s := range h.servers {
		background.Go(func() {
			if err := s.http.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
				failed <- fmt.Errorf("serve %s: %w", s.listener.Addr(), err)
			}
		})
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	ctx = context.WithoutCancel(ctx)
	h.log.Info("draining", "atMost", h.cfg.Limits.DrainTimeout)
	h.drain(ctx)
	stopSweep()
	background.Wait()
	h.log.Info("drained; scrubbing")
	return errors.Join(err, h.scopes.Shutdown(ctx))
}

// drain ends what runs. Scopes of requests close with their requests.
func (h *Host) drain(ctx context.Context) {
	h.health.drain()
	h.invoker.StopAccepting()
	h.catalog.StopAccepting()
	h.edge.StopAccepting()
	grace, cancel := context.WithTimeout(ctx, h.cfg.Limits.DrainTimeout)
	defer cancel()
	// A client that never sends the rest of a body would hold up the end of its
	// server.
	servers := h.servers
	stop := context.AfterFunc(grace, func() {
		for _, s := range servers {
			s.edge.CutBodies()
		}
	})
	defer stop()
	h.invoker.Drain(grace)
	h.catalog.Drain(grace)
	// What is left is answers on their way; each has seconds.
	last, cancelLast := context.WithTimeout(ctx, h.cfg.Limits.CommitTimeout)
	defer cancelLast()
	h.edge.CloseSockets(last) // nothing else waits for them
	for _, s := range servers {
		if err := s.http.Shutdown(last); err != nil { // a client that neither sends nor reads
			h.log.Warn("connections cut", "listener", s.listener.Addr(), "err", errors.Join(err, s.http.Close()))
		}
	}
	h.edge.Close()
}

// health answers whether the host takes work. The check writes, so its answer
// is kept for a second: nobody makes the host write by asking often.
type health struct {
	check func(context.Context) error

	mu       sync.Mutex // guards what follows
	draining bool
	at       time.Time
	err      error
}

const healthFor = time.Second

// check asks the store whether it can write. While a scrub runs nobody can,
// and nothing is wrong: turns wait for it.
func (h *Host) check(ctx context.Context) error {
	ctx, leave, err := h.scopes.Pass(ctx)
	if err != nil {
		return nil // it says that a scrub runs
	}
	defer leave()
	return h.store.Check(ctx)
}

// warnOfScrubs says so if scrubs have become something that callers notice.
func (h *Host) warnOfScrubs(ctx context.Context) error {
	last, err := h.scopes.LastScrub(ctx)
	if err != nil {
		return err
	}
	if last.Took > h.cfg.Limits.CommitTimeout/2 && h.cfg.Memory.ScrubInterval > 0 {
		h.log.Warn("the last scrub took long, and turns wait for the next one as long; set memory.scrubInterval to 0s and scrub in quiet hours",
			"took", last.Took, "scrubInterval", h.cfg.Memory.ScrubInterval)
	}
	return nil
}

func (s *health) drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.draining = true
}

func (s *health) ready() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return carrel.Fail("host.ready", abi.Draining, "this host is shutting down")
	}
	if time.Since(s.at) < healthFor {
		return s.err
	}
	ctx, cancel := context.WithTimeout(context.Background(), healthFor)
	defer cancel()
	s.err = s.check(ctx)
	if s.err != nil && carrel.CodeOf(s.err) != abi.StorageFull {
		s.err = &carrel.Error{Op: "host.ready", Code: abi.Overloaded, Msg: "the store does not take writes", Err: s.err}
	}
	s.at = time.Now()
	return s.err
}
