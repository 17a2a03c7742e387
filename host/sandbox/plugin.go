package sandbox

import (
	"context"
	"crypto/sha256"
	"fmt"
	"sync"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox/module"
)

// Plugin is an open module, ready for calls. All methods are safe for
// concurrent use; concurrent calls share no state.
type Plugin struct {
	sandbox *Sandbox
	program *program

	mu     sync.Mutex
	closed bool
	idle   []idler        // instances, the last one used last
	timer  *time.Timer    // of the next look at idle; nil when none is
	calls  sync.WaitGroup // Add under mu
	gone   chan struct{}  // closed when Close has released everything
	err    error          // of the release; read after gone
}

// Open makes an admitted module ready for calls that begin with the setup. It
// runs the
// module's initialisation, within Config.AdmitTimeout. Plugins of equal bytes
// and setup share their compiled code and the image that it left, but no
// memory that can be written. The bytes must not change until Open returns.
// The caller closes the plugin.
//
// Its error is what module.Read and Lint say, invalid_module for a module
// without code or one that the engine refuses, limit_exceeded with the limit
// sandbox.memory if it cannot even start in memoryMiB, draining after
// Sandbox.Close, overloaded if the system has no memory for the guest, or the
// context's while it waits for its turn. A module whose initialisation fails
// opens, and each call of it tells why.
func (s *Sandbox) Open(ctx context.Context, wasm []byte, setup Setup) (*Plugin, error) {
	const op = "sandbox.Open"
	ctx, leave, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	memoryMiB := setup.MemoryMiB
	if memoryMiB == 0 {
		memoryMiB = abi.DefaultMemoryMiB
	}
	if memoryMiB < 1 || memoryMiB > abi.MaxMemoryMiB {
		return nil, carrel.FailLimit(op, abi.LimitExceeded, "sandbox.memory",
			fmt.Sprintf("a plugin can have from 1 to %d MiB of memory, not %d (limit sandbox.memory)", abi.MaxMemoryMiB, memoryMiB))
	}
	m, err := s.read(wasm)
	if err != nil {
		return nil, err
	}
	if !m.HasCode() {
		return nil, carrel.Fail(op, abi.InvalidModule, "the module has no code: there is nothing to run in it")
	}
	if need := m.MemoryPages() * PageBytes; need > memoryMiB<<20 {
		return nil, carrel.FailLimit(op, abi.LimitExceeded, "sandbox.memory", fmt.Sprintf(
			"the module starts with %d pages of memory (%d MiB), this plugin has %d MiB (limit sandbox.memory): raise limits.memoryMiB in the manifest",
			m.MemoryPages(), (need+1<<20-1)>>20, memoryMiB))
	}
	p, err := s.share(ctx, m, wasm, memoryMiB, setup.Share)
	if err != nil {
		return nil, err
	}
	plugin := &Plugin{sandbox: s, program: p, gone: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.plugins[plugin] = struct{}{}
	return plugin, nil
}

// read is how every module enters the sandbox.
func (s *Sandbox) read(wasm []byte) (*module.Module, error) {
	m, err := module.Read(wasm, s.cfg.Module)
	if err != nil {
		return nil, err
	}
	return m, module.Lint(m, s.cfg.Module)
}

// share returns the program of these bytes with one reference more.
func (s *Sandbox) share(ctx context.Context, m *module.Module, wasm []byte, memoryMiB int, whose string) (*program, error) {
	key := programKey{sha256.Sum256(wasm), memoryMiB}
	if p := s.existing(key, nil); p != nil {
		return p, nil
	}
	c, rewritten, err := s.compile(ctx, queue{s.opening, whose, func(Stage) {}}, m)
	if err != nil {
		return nil, err
	}
	path, _ := howItRuns(c, rewritten)
	mine, err := s.newProgram(ctx, whose, key, c, rewritten, path)
	if err != nil {
		return nil, err
	}
	// Somebody else may have made the same meanwhile: theirs is kept.
	p := s.existing(key, mine)
	if p != mine {
		if err := s.closeProgram(ctx, mine); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// existing returns the program of a key with one reference more, fresh if
// there is none yet.
func (s *Sandbox) existing(key programKey, fresh *program) *program {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.programs[key]
	if p == nil && fresh != nil {
		p = fresh
		s.programs[key] = p
	}
	if p != nil {
		p.refs++
	}
	return p
}

// Exports returns the functions that can be called, sorted. The caller owns
// the result.
func (p *Plugin) Exports() []string { return append([]string(nil), p.program.code.list...) }

// begin counts a call until end, so that Close waits for it.
func (p *Plugin) begin() (end func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, carrel.Fail("sandbox.Call", abi.Draining, "the plugin is being replaced or removed; try again")
	}
	p.calls.Add(1)
	return p.calls.Done, nil
}

// Close waits for the calls that run, then gives up the plugin's share of its
// compiled code. It is idempotent, also concurrently: every call of it
// returns when everything is released. Calls that come later fail with
// draining. A call must not close its own plugin.
func (p *Plugin) Close() error {
	p.mu.Lock()
	first := !p.closed
	p.closed = true
	p.mu.Unlock()
	if first {
		p.calls.Wait()
		p.trim(0)
		p.err = p.sandbox.forget(p)
		close(p.gone)
	}
	<-p.gone
	return p.err
}

// forget drops a plugin and, with the last one, its program.
func (s *Sandbox) forget(p *Plugin) error {
	s.mu.Lock()
	delete(s.plugins, p)
	p.program.refs--
	last := p.program.refs == 0
	if last {
		delete(s.programs, p.program.key)
	}
	s.mu.Unlock()
	if !last {
		return nil
	}
	return s.closeProgram(context.Background(), p.program)
}
