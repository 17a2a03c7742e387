package sandbox

import (
	"context"
	"sync"

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
	calls  sync.WaitGroup // what Close waits for: Add under mu while not closed, or by what counts already
	gone   chan struct{}  // closed when Close has released everything
	err    error          // of the release; read after gone
}

// Open makes an admitted module ready for calls that begin with the setup. If
// the state that admission made is in no cache, it runs the module's
// initialisation, within Config.AdmitTimeout, and its warm-up, likewise. What
// does not end in time is left out of this plugin only, and the log says so:
// its calls begin without the warm-up, or initialise the module themselves.
// Plugins of equal bytes and setup share their compiled code and the image that
// it left, but no memory that can be written. The bytes must not change until
// Open returns. The caller closes the plugin.
//
// Its error is what module.Read and Lint say, invalid_module for a module
// without code or one that the engine refuses, limit_exceeded with the limit
// memoryMiB if it cannot even start with that, draining after
// Sandbox.Close, overloaded if the system has no memory for the guest, or the
// context's while it waits for its turn. A module whose initialisation fails
// opens, and each call of it tells why.
func (s *Sandbox) Open(ctx context.Context, wasm []byte, setup Setup) (*Plugin, error) {
	ctx, leave, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	m, err := s.read(wasm)
	if err != nil {
		return nil, err
	}
	if !m.HasCode() {
		return nil, carrel.Fail("sandbox.Open", abi.InvalidModule, "the module has no code: there is nothing to run in it")
	}
	if setup, err = setup.complete(m); err != nil {
		return nil, err
	}
	p, err := s.share(ctx, m, wasm, setup)
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
func (s *Sandbox) share(ctx context.Context, m *module.Module, wasm []byte, setup Setup) (*program, error) {
	key := keyOf(wasm, setup)
	if p := s.existing(key, nil); p != nil {
		return p, nil
	}
	c, rewritten, err := s.compile(ctx, queue{s.opening, setup.Share, func(Stage) {}}, m)
	if err != nil {
		return nil, err
	}
	path, _ := howItRuns(c, rewritten)
	mine, err := s.newProgram(ctx, &recipe{key: key, code: c, rewritten: rewritten, path: path, warmup: setup.Warmup, share: setup.Share})
	if err != nil {
		return nil, err
	}
	return s.join(ctx, mine)
}

// join takes over a new program, and returns it with one reference, or else
// the one of the same key that somebody made before.
func (s *Sandbox) join(ctx context.Context, mine *program) (*program, error) {
	p := s.existing(mine.key, mine)
	if p != mine {
		if err := s.closeProgram(ctx, mine); err != nil {
			return nil, also(err, s.leave(ctx, p))
		}
	}
	return p, nil
}

// existing returns the program of a key with one reference more: fresh if
// there is none yet. Others find it then, unless it is for one opening only.
func (s *Sandbox) existing(key programKey, fresh *program) *program {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.programs[key]
	if p == nil && fresh != nil {
		p = fresh
		if !p.late {
			s.programs[key] = p
		}
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
		p.closeIdle()
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
	s.mu.Unlock()
	return s.leave(context.Background(), p.program)
}

// leave gives a reference back, and the program with the last one.
func (s *Sandbox) leave(ctx context.Context, p *program) error {
	s.mu.Lock()
	p.refs--
	last := p.refs == 0
	if last && s.programs[p.key] == p {
		delete(s.programs, p.key)
	}
	s.mu.Unlock()
	if !last {
		return nil
	}
	return s.closeProgram(ctx, p)
}
