package sandbox

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tetratelabs/wazero/api"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox/image"
	"github.com/carrelhost/carrel/host/sandbox/module"
	"github.com/carrelhost/carrel/host/sandbox/slots"
)

// Programs returns how many compiled modules the open plugins of a sandbox
// use together.
func Programs(s *Sandbox) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.programs)
}

// OnSlots returns how many guests of a share have a CPU slot, and how many
// wait for one.
func OnSlots(s *Sandbox, share string) (held, waiting int) { return s.slots.Of(share) }

// OccupySlot takes a CPU slot that no guest has.
func OccupySlot(t testing.TB, s *Sandbox, share string) (release func()) {
	t.Helper()
	if err := s.slots.Acquire(t.Context(), share, nil); err != nil {
		t.Fatal(err)
	}
	return func() { s.slots.Release(share) }
}

// Admissions and Openings are the places of compilations.
func Admissions(s *Sandbox) *slots.Pool { return s.admitting }
func Openings(s *Sandbox) *slots.Pool   { return s.opening }

// OccupyAdmissions takes every place for the compilation of uploads.
func OccupyAdmissions(s *Sandbox) (release func()) {
	share := func(i int) string { return fmt.Sprintf("occupied %d", i) }
	for i := range admissionsAtOnce {
		if err := s.admitting.Acquire(context.Background(), share(i), nil); err != nil {
			panic(err)
		}
	}
	return func() {
		for i := range admissionsAtOnce {
			s.admitting.Release(share(i))
		}
	}
}

// LimitsChildren is whether this system bounds a process that compiles, beyond
// the time that it may take.
const LimitsChildren = limitsChildren

// Use makes a sandbox keep the memory of guests by a method from now on: of
// those that are opened, and of those that are initialised. Nothing may run.
func Use(t testing.TB, s *Sandbox, how image.Method) {
	t.Helper()
	blank, err := image.New(nil, abi.MaxMemoryMiB<<20, how)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.blank.Close(); err != nil {
		t.Fatal(err)
	}
	s.memory, s.blank = how, blank
}

// OpenOn opens a module that runs on a path, with a program of its own.
func OpenOn(t testing.TB, s *Sandbox, wasm []byte, memoryMiB int, path string) *Plugin {
	t.Helper()
	c, w := compiled(t, s, wasm)
	key := keyOf([]byte(path+string(wasm)), Setup{MemoryMiB: memoryMiB})
	p, err := s.newProgram(t.Context(), &recipe{key: key, code: c, rewritten: w, path: path})
	if err != nil {
		t.Fatal(err)
	}
	p.refs = 1
	plugin := &Plugin{sandbox: s, program: p, gone: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.programs[key] = p
	s.plugins[plugin] = struct{}{}
	return plugin
}

func compiled(t testing.TB, s *Sandbox, wasm []byte) (*code, *module.Rewritten) {
	t.Helper()
	m, err := s.read(wasm)
	if err != nil {
		t.Fatal(err)
	}
	c, w, err := s.compile(t.Context(), queue{s.opening, "", func(Stage) {}}, m)
	if err != nil {
		t.Fatal(err)
	}
	return c, w
}

// CompileUnlinted compiles what Lint never saw, as if it had let it pass.
func CompileUnlinted(t testing.TB, s *Sandbox, wasm []byte) error {
	t.Helper()
	m, err := module.Read(wasm, s.cfg.Module)
	if err != nil {
		t.Fatal(err)
	}
	c, _, err := s.compile(t.Context(), queue{s.opening, "", func(Stage) {}}, m)
	if c != nil {
		t.Error("there is code")
	}
	return err
}

// Path returns how a plugin's calls run.
func Path(p *Plugin) string { return p.program.path }

// Idle returns how many instances of a plugin wait, and how many of them gave
// their memory back.
func Idle(p *Plugin) (instances, trimmed int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, i := range p.idle {
		if i.trimmed {
			trimmed++
		}
	}
	return len(p.idle), trimmed
}

// State is all that a guest can change.
type State struct {
	Memory  []byte
	Globals []uint64
}

func (in *instance) state() State {
	var s State
	if in.slot != nil {
		m := in.module.Memory()
		b, _ := m.Read(0, m.Size())
		s.Memory = append(s.Memory, b...)
	}
	for _, g := range in.globals {
		s.Globals = append(s.Globals, g.Get())
	}
	return s
}

// Fresh returns the state of a new instance that never saw an image, after
// its initialisation.
func Fresh(t testing.TB, s *Sandbox, wasm []byte, memoryMiB int) State {
	t.Helper()
	c, w := compiled(t, s, wasm)
	defer func() {
		if err := s.release(context.Background(), c); err != nil {
			t.Error(err)
		}
	}()
	in, err := s.loaded(t.Context(), c, w, memoryMiB<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer in.close(context.Background())
	if err := s.admission("").within(t.Context(), c, w, in, nil, true); err != nil {
		t.Fatal(err)
	}
	return in.state()
}

// Next returns the state in which the next call of a plugin begins.
func Next(t testing.TB, p *Plugin) State {
	t.Helper()
	in, err := p.take(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if p.program.values == nil {
		defer in.close(context.Background())
		if err := p.sandbox.admission("").within(t.Context(), p.program.code, p.program.rewritten, in, nil, true); err != nil {
			t.Fatal(err)
		}
		return in.state()
	}
	state := in.state()
	if p.program.path != PathReset || !p.keep(in) {
		in.close(context.Background())
	}
	return state
}

// Warmed returns the state of a new instance that never saw an image, after
// its initialisation and its warm-up.
func Warmed(t testing.TB, s *Sandbox, wasm []byte, setup Setup) State {
	t.Helper()
	c, w := compiled(t, s, wasm)
	defer func() {
		if err := s.release(context.Background(), c); err != nil {
			t.Error(err)
		}
	}()
	in, err := s.loaded(t.Context(), c, w, setup.MemoryMiB<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer in.close(context.Background())
	r := s.admission("")
	if err := r.within(t.Context(), c, w, in, nil, true); err != nil {
		t.Fatal(err)
	}
	warm := s.admission("")
	warm.clock, warm.input = r.clock, setup.Warmup.Input
	if err := warm.within(t.Context(), c, w, in, []string{setup.Warmup.Export}, false); err != nil {
		t.Fatal(err)
	}
	return in.state()
}

// Passed returns what a plugin's monotonic clock showed last at its admission.
func Passed(p *Plugin) int64 { return p.program.passed }

// SameProgram is whether two plugins share one.
func SameProgram(a, b *Plugin) bool { return a.program == b.program }

// HalfBaked initialises a module whose image cannot be made, for no want of
// room, and returns what that ends with and whether the program has got
// anything of it.
func HalfBaked(t testing.TB, s *Sandbox, wasm []byte) (got bool, err error) {
	t.Helper()
	c, w := compiled(t, s, wasm)
	p := &program{key: keyOf(wasm, Setup{MemoryMiB: abi.DefaultMemoryMiB}), code: c, rewritten: w}
	mended := Unmappable(s)
	err = s.bake(t.Context(), &recipe{key: p.key, code: c, rewritten: w, path: PathReset}, p)
	mended()
	got = p.path != "" || p.image != nil || p.pages != 0 || p.values != nil || p.passed != 0 || p.warmed
	return got, errors.Join(err, s.closeProgram(t.Context(), p))
}

// Rehearse initialises a module for an upload that spent so much time on that,
// and returns how much it is then, and how much of it the module itself took.
func Rehearse(t testing.TB, s *Sandbox, wasm []byte, before time.Duration) (spent, took time.Duration, err error) {
	t.Helper()
	c, w := compiled(t, s, wasm)
	var r Report
	k := &recipe{code: c, rewritten: w, spent: before, report: &r}
	err = s.rehearse(t.Context(), k, abi.MaxMemoryMiB<<20, s.admission(""), nil)
	return k.spent, r.InitialiseFor, errors.Join(err, s.release(t.Context(), c))
}

// CloseBlank has no instance be made any more that is to be initialised. None
// may be alive.
func CloseBlank(t testing.TB, s *Sandbox) {
	t.Helper()
	if err := s.blank.Close(); err != nil {
		t.Fatal(err)
	}
}

// Unmappable has no memory of guests be made until mended is called. Nothing
// may run.
func Unmappable(s *Sandbox) (mended func()) {
	how := s.memory
	s.memory = image.Method(-1)
	return func() { s.memory = how }
}

// Restore compiles a module, and returns what reads its program's snapshot,
// once.
func Restore(t testing.TB, s *Sandbox, wasm []byte, setup Setup) (restored func() error) {
	t.Helper()
	c, w := compiled(t, s, wasm)
	p := &program{key: keyOf(wasm, setup), code: c, rewritten: w}
	k := &recipe{key: p.key, code: c, rewritten: w, path: PathReset, warmup: setup.Warmup, share: setup.Share}
	ctx := t.Context()
	return func() error {
		there, err := s.restoreSnapshot(ctx, k, p)
		if !there {
			err = errors.Join(err, errors.New("there is no snapshot"))
		}
		return errors.Join(err, s.closeProgram(ctx, p))
	}
}

// StackOf returns the bytes of the engine's stack for a function.
func StackOf(f api.Function) (bytes int64, found bool) {
	n := newFunction(f)
	return n.stack(), n.field >= 0
}
