// Package sandbox runs untrusted WebAssembly within limits. Each call gets a
// fresh instance: nothing that a guest writes outlives it. Callers know
// nothing of the engine; this is the only package that imports it.
package sandbox

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tetratelabs/wazero"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
)

// Memory limits of a plugin.
const (
	PageBytes        = 64 << 10
	DefaultMemoryMiB = 32
	MaxMemoryMiB     = 64
)

// Sandbox admits and runs modules. All methods are safe for concurrent use.
// Two sandboxes in one process share nothing.
type Sandbox struct {
	cfg       Config
	start     time.Time // zero of the guests' monotonic clock
	cache     wazero.CompilationCache
	slots     slots // guests on a CPU
	compiling slots

	mu       sync.Mutex
	closed   bool
	programs map[programKey]*program
	plugins  map[*Plugin]struct{}
	latest   *program       // that Admit made; no instance of it is alive
	admitted sync.WaitGroup // admissions and openings that run; Add under mu
}

// compilesAtOnce bounds what the engine compiles at one time: a compilation
// takes a core and hundreds of megabytes and cannot be stopped.
const compilesAtOnce = 2

// New returns a Sandbox. The caller closes it. Its error joins every fault of
// the configuration.
func New(ctx context.Context, cfg Config) (*Sandbox, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return &Sandbox{
		cfg:       cfg,
		start:     cfg.Now(),
		cache:     wazero.NewCompilationCache(),
		slots:     make(slots, cfg.Slots),
		compiling: make(slots, compilesAtOnce),
		programs:  map[programKey]*program{},
		plugins:   map[*Plugin]struct{}{},
	}, nil
}

// Close closes every plugin that is still open, which waits for its calls,
// and releases all compiled code. It is idempotent; what is called on the
// sandbox afterwards fails with draining.
func (s *Sandbox) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.admitted.Wait()
	s.mu.Lock()
	open := make([]*Plugin, 0, len(s.plugins))
	for p := range s.plugins {
		open = append(open, p)
	}
	latest := s.latest
	s.latest = nil
	s.mu.Unlock()
	var err error
	if latest != nil {
		err = latest.close(context.Background())
	}
	for _, p := range open {
		err = errors.Join(err, p.Close())
	}
	return errors.Join(err, s.cache.Close(context.Background()))
}

// enter counts an admission or an opening until leave, so that Close waits
// for it.
func (s *Sandbox) enter() (leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, carrel.Fail("sandbox", abi.Draining, "the sandbox is closed")
	}
	s.admitted.Add(1)
	return s.admitted.Done, nil
}
