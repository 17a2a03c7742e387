// Package sandbox runs untrusted WebAssembly within limits. Each call gets
// fresh state: nothing that a guest writes outlives it. Callers know nothing
// of the engine; this is the only package that imports it.
package sandbox

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tetratelabs/wazero"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox/cache"
	"github.com/carrelhost/carrel/host/sandbox/image"
	"github.com/carrelhost/carrel/host/sandbox/slots"
)

// PageBytes is the size of a page of linear memory.
const PageBytes = 64 << 10

// Sandbox admits and runs modules. All methods are safe for concurrent use.
// Two sandboxes in one process share nothing.
type Sandbox struct {
	cfg       Config
	cache     wazero.CompilationCache // of what is compiled in memory
	files     *codeCache              // nil without Config.CacheDir
	snapshots *cache.Cache            // nil without Config.SnapshotDir
	memory    image.Method
	memoryWhy string       // what the faster methods lack
	blank     *image.Image // of what is initialised: all zero
	slots     *slots.Pool  // guests on a CPU
	admitting *slots.Pool  // compilations of what is uploaded
	opening   *slots.Pool  // of what was admitted before: its compilation, or its code or snapshot being read
	idle      idleMemory   // of instances that wait

	mu       sync.Mutex
	closed   bool
	codes    map[[sha256.Size]byte]*code
	making   map[[sha256.Size]byte]chan struct{} // code that is being made
	programs map[programKey]*program
	plugins  map[*Plugin]struct{}
	latest   admitted
	entered  map[*entrance]struct{} // none is added once closed
}

// How many compilations of each kind run at one time: one takes a core and
// hundreds of megabytes. What is read of the caches counts as an opening. What
// was admitted before never waits for what is uploaded now. Of both, one share
// never has the last place: what others upload or call begins at once, however
// much of one share's waits.
const (
	admissionsAtOnce = 2
	openingsAtOnce   = 2
)

var errClosed = carrel.Fail("sandbox", abi.Draining, "the sandbox is closed")

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
	var files *codeCache
	if cfg.CacheDir != "" {
		if files, err = openCodeCache(ctx, cfg); err != nil {
			return nil, err
		}
	}
	var snapshots *cache.Cache
	if cfg.SnapshotDir != "" {
		if snapshots, err = openSnapshots(cfg); err != nil {
			return nil, err
		}
	}
	memory, why := image.Choose()
	blank, err := image.New(nil, abi.MaxMemoryMiB<<20, memory)
	if err != nil {
		return nil, fmt.Errorf("sandbox: %w", err)
	}
	return &Sandbox{
		idle:      idleMemory{most: cfg.IdleBytes},
		cfg:       cfg,
		cache:     wazero.NewCompilationCache(),
		files:     files,
		snapshots: snapshots,
		memory:    memory,
		memoryWhy: why,
		blank:     blank,
		slots:     slots.New(cfg.Slots),
		admitting: slots.New(admissionsAtOnce),
		opening:   slots.New(openingsAtOnce),
		entered:   map[*entrance]struct{}{},
		codes:     map[[sha256.Size]byte]*code{},
		making:    map[[sha256.Size]byte]chan struct{}{},
		programs:  map[programKey]*program{},
		plugins:   map[*Plugin]struct{}{},
	}, nil
}

// Close closes every plugin that is still open, which waits for its calls,
// and releases all compiled code. It is idempotent; what is called on the
// sandbox afterwards fails with draining, and so do the admissions and
// openings that wait, run guest code, or compile in a child process. A
// compilation in this process cannot be stopped: if one still runs after
// Config.CloseTimeout, Close returns an error, closes the plugins only, and
// leaves the rest to the end of the process.
func (s *Sandbox) Close() error {
	s.mu.Lock()
	s.closed = true
	entered := make([]*entrance, 0, len(s.entered))
	for e := range s.entered {
		e.end(errClosed)
		entered = append(entered, e)
	}
	s.mu.Unlock()
	late := s.await(entered)
	s.mu.Lock()
	latest := s.latest
	s.latest = admitted{}
	s.mu.Unlock()
	err := also(late, s.letGo(context.Background(), latest))
	for _, p := range s.everyPlugin() {
		err = errors.Join(err, p.Close())
	}
	s.idle.stop()
	if late != nil {
		return err // the compilation that runs uses the cache
	}
	return errors.Join(err, s.blank.Close(), s.cache.Close(context.Background()))
}

// Memory says how the memory of guests is restored after a call, and what
// this system lacks for each faster way and what to do about it: "" if it has
// the fastest. It never changes.
func (s *Sandbox) Memory() (by, lacks string) { return s.memory.String(), s.memoryWhy }

// await waits for admissions and openings to end, but only so long.
func (s *Sandbox) await(entered []*entrance) error {
	timer := time.NewTimer(s.cfg.CloseTimeout)
	defer timer.Stop()
	for _, e := range entered {
		select {
		case <-e.left:
		case <-timer.C:
			return fmt.Errorf("sandbox: a compilation still runs %v after Close began, and is left", s.cfg.CloseTimeout)
		}
	}
	return nil
}

// entrance is an admission or an opening that runs.
type entrance struct {
	end  context.CancelCauseFunc // ends its context
	left chan struct{}           // closed at its end
}

// enter counts an admission or an opening until leave, so that Close waits
// for it. The context that it returns ends when Close begins, too.
func (s *Sandbox) enter(ctx context.Context) (inner context.Context, leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil, errClosed
	}
	inner, end := context.WithCancelCause(ctx)
	e := &entrance{end, make(chan struct{})}
	s.entered[e] = struct{}{}
	return inner, func() {
		s.mu.Lock()
		delete(s.entered, e)
		s.mu.Unlock()
		end(nil)
		close(e.left)
	}, nil
}
