package sandbox

import (
	"context"
	"fmt"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
)

// Report is what admission found out about a module.
type Report struct {
	Path       string        // how calls run: PathPlain, or PathPrompt
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
	PathPlain  = "plain"  // a new instance for each call
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
// that fails, limit_exceeded with the limit sandbox.admitTimeout for guest
// code that does not end, draining after Close, or the context's. The Report
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
	report.Path = PathPlain
	p, err := s.compile(ctx, s.admitting, wasm, abi.MaxMemoryMiB)
	if err != nil {
		return report, err
	}
	defer func() { err = also(err, s.keep(ctx, p)) }()
	report.CompileFor, report.Exports, report.Imports = p.compileFor, p.list, p.imports

	var steps []string
	if !declared && p.has[abi.DescribeExport] {
		steps = append(steps, abi.DescribeExport)
	}
	r := s.admission()
	err = s.rehearse(ctx, p, r, steps)
	report.Log = r.log.finish()
	if err == nil && len(steps) > 0 {
		report.Manifest, report.Described = r.output, true
	}
	return report, err
}

// keep holds on to the program of the latest admission, and lets go of the
// one before it: what was admitted is mostly opened next, and its machine code
// is then still there.
func (s *Sandbox) keep(ctx context.Context, p *program) error {
	s.mu.Lock()
	before := s.latest
	if s.closed { // nobody will open it any more
		before = p
	} else {
		s.latest = p
	}
	s.mu.Unlock()
	if before == nil {
		return nil
	}
	return before.close(context.WithoutCancel(ctx))
}

// rehearse runs guest code at admission, under its own deadline.
func (s *Sandbox) rehearse(ctx context.Context, p *program, r *run, steps []string) error {
	err := s.execute(ctx, s.cfg.AdmitTimeout, nil, p, r, steps)
	if carrel.CodeOf(err) == abi.Timeout && ctx.Err() == nil {
		return carrel.FailLimit("sandbox.Admit", abi.LimitExceeded, "sandbox.admitTimeout", fmt.Sprintf(
			"_initialize and carrel_describe did not end within %v (limit sandbox.admitTimeout)", s.cfg.AdmitTimeout))
	}
	return err
}
