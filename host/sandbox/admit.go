package sandbox

import (
	"context"
	"fmt"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox/module"
)

// Report is what admission found out about a module.
type Report struct {
	Path       string        // how calls run: one of the constants below
	Manifest   []byte        // the section's, else what carrel_describe wrote, else nil
	Described  bool          // the manifest came from carrel_describe
	Exports    []string      // functions that can be called: () -> i32, sorted, host names not among them
	Imports    []string      // "module.name", in the module's order
	CompileFor time.Duration // how long the engine compiled
	Log        []LogLine     // what _initialize and carrel_describe logged, also if they failed
}

// The values of Report.Path.
const (
	PathPrompt = "prompt" // there is no code: nothing of the module ever executes
	PathReset  = "reset"  // an instance is restored after each call
	PathImage  = "image"  // a new instance with the initialised state for each call
	PathPlain  = "plain"  // a new instance for each call, which initialises itself
)

// Has reports whether the module exports a function that can be called.
func (r Report) Has(export string) bool {
	for _, e := range r.Exports {
		if e == export {
			return true
		}
	}
	return false
}

// Admit decides on uploaded bytes, which must not change until it returns. A module with
// code is compiled and initialised once, with abi.MaxMemoryMiB of memory; one
// without the manifest section is asked with carrel_describe. What the guest
// code does in admission depends on its bytes only: clock and randomness are
// the same each time, and host calls answer ENOSYS.
//
// Its error is what module.Read and Lint say, invalid_module for what the
// engine or this contract refuses, guest_trap or guest_failed for guest code
// that fails, fuel_exhausted or limit_exceeded with the limit
// sandbox.admitTimeout for guest code that does not end, draining after Close, or the context's. The Report
// holds what was found out until then.
func (s *Sandbox) Admit(ctx context.Context, wasm []byte) (report Report, err error) {
	ctx, leave, err := s.enter(ctx)
	if err != nil {
		return Report{}, err
	}
	defer leave()
	m, err := s.read(wasm)
	if err != nil {
		return Report{}, err
	}
	report.Path = PathPrompt
	section, declared := m.Custom(abi.ManifestSection)
	if declared {
		report.Manifest = append([]byte{}, section...)
	}
	if !m.HasCode() {
		return report, nil
	}
	c, rewritten, err := s.compile(ctx, s.admitting, m)
	if err != nil {
		return report, err
	}
	defer func() { err = also(err, s.keep(ctx, c)) }()
	report.Path = howItRuns(c, rewritten)
	report.CompileFor, report.Exports, report.Imports = c.compileFor, c.list, c.imports

	var steps []string
	if !declared && c.has[abi.DescribeExport] {
		steps = append(steps, abi.DescribeExport)
	}
	r := s.admission()
	err = s.rehearse(ctx, c, rewritten, r, steps)
	report.Log = r.log.finish()
	if err == nil && len(steps) > 0 {
		report.Manifest, report.Described = r.output, true
	}
	return report, err
}

// keep takes over the reference to the code of the latest admission, and lets
// go of the one before it: what was admitted is mostly opened next, and its
// machine code is then still there.
func (s *Sandbox) keep(ctx context.Context, c *code) error {
	s.mu.Lock()
	before := s.latest
	if s.closed { // nobody will open it any more
		before = c
	} else {
		s.latest = c
	}
	s.mu.Unlock()
	if before == nil {
		return nil
	}
	return s.release(ctx, before)
}

// rehearse runs guest code at admission, under its own deadline.
func (s *Sandbox) rehearse(ctx context.Context, c *code, w *module.Rewritten, r *run, steps []string) error {
	err := s.execute(ctx, s.cfg.AdmitTimeout, nil, r, func(ctx context.Context) error {
		in, err := s.loaded(ctx, c, w, abi.MaxMemoryMiB<<20)
		if err != nil {
			return r.failedToStart(ctx, err)
		}
		defer in.close(ctx)
		return r.within(ctx, c, w, in, steps, true)
	})
	if carrel.CodeOf(err) == abi.Timeout && ctx.Err() == nil {
		return carrel.FailLimit("sandbox.Admit", abi.LimitExceeded, "sandbox.admitTimeout", fmt.Sprintf(
			"_initialize and carrel_describe did not end within %v (limit sandbox.admitTimeout)", s.cfg.AdmitTimeout))
	}
	return err
}
