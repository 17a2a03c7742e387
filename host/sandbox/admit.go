package sandbox

import (
	"context"
	"fmt"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox/module"
)

// Candidate is a module that asks to be admitted.
type Candidate struct {
	Module []byte // must not change until Admit returns

	// Share is whose it is, a tenant's for example: admissions of different
	// shares take turns, for a place to compile and for a CPU slot. For that
	// slot they take turns with the share's calls, too.
	Share string

	// Plan says what the plugin's calls will begin with, once the manifest is
	// known. nil: calls begin with the zero Setup. Its error ends the
	// admission and is returned as it is.
	Plan func(Report) (Setup, error)

	// Stage is told each stage when it begins, from the goroutine of Admit.
	// It must not block. nil: nobody is told.
	Stage func(Stage)
}

// Stage is a part of an admission.
type Stage string

// The stages in their order. What a module does not need is left out.
const (
	StageLint       Stage = "linting"      // the bytes are read and judged
	StageQueue      Stage = "queued"       // for a place to compile: others' compilations run
	StageCompile    Stage = "compiling"    // machine code is made
	StageInitialise Stage = "initialising" // the guest runs for the first time
	StageWarm       Stage = "warming"      // the guest runs its warm-up
)

// Setup is what the calls of a plugin begin with, besides its code.
type Setup struct {
	MemoryMiB int     // of memory for each call; 0 = abi.DefaultMemoryMiB, at most abi.MaxMemoryMiB
	Warmup    *Warmup // nil: none
	Share     string  // whose turn Open takes, as Candidate.Share; calls do not depend on it
}

// Warmup is a call that is made once, so that every other begins in the state
// that it left. Host calls answer ENOSYS in it, and its output is dropped.
type Warmup struct {
	Export string
	Input  []byte
}

// Admit decides on an uploaded module. One with
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
func (s *Sandbox) Admit(ctx context.Context, candidate Candidate) (report Report, err error) {
	ctx, leave, err := s.enter(ctx)
	if err != nil {
		return Report{}, err
	}
	defer leave()
	stage := candidate.Stage
	if stage == nil {
		stage = func(Stage) {}
	}
	stage(StageLint)
	m, err := s.read(candidate.Module)
	if err != nil {
		return Report{}, err
	}
	section, declared := m.Custom(abi.ManifestSection)
	if declared {
		report.Manifest = append([]byte{}, section...)
	}
	if !m.HasCode() {
		report = PromptReport(report.Manifest)
		_, err = candidate.plan(report)
		return report, err
	}
	c, rewritten, err := s.compile(ctx, queue{s.admitting, candidate.Share, stage}, m)
	if err != nil {
		return report, err
	}
	defer func() { err = also(err, s.keep(ctx, c)) }()
	report.compiled(c, rewritten)

	var steps []string
	if !declared && c.has[abi.DescribeExport] {
		steps = append(steps, abi.DescribeExport)
	}
	stage(StageInitialise)
	r := s.admission(candidate.Share)
	err = s.rehearse(ctx, c, rewritten, r, steps, &report)
	report.Log = r.log.finish()
	if err == nil && len(steps) > 0 {
		report.Manifest, report.Described = r.output, true
	}
	if err == nil {
		_, err = candidate.plan(report)
	}
	return report, err
}

// plan asks what the plugin's calls begin with.
func (c Candidate) plan(r Report) (Setup, error) {
	if c.Plan == nil {
		return Setup{}, nil
	}
	return c.Plan(r)
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

// rehearse runs guest code at admission, under its own deadline, and reports
// on its initialisation.
func (s *Sandbox) rehearse(ctx context.Context, c *code, w *module.Rewritten, r *run, steps []string, report *Report) error {
	err := s.execute(ctx, s.cfg.AdmitTimeout, nil, r, func(ctx context.Context) error {
		in, err := s.loaded(ctx, c, w, abi.MaxMemoryMiB<<20)
		if err != nil {
			return r.failedToStart(ctx, err)
		}
		defer in.close(ctx)
		start := time.Now()
		if err := r.within(ctx, c, w, in, nil, true); err != nil {
			return err
		}
		report.Fuel, report.InitialiseFor = r.fuel, time.Since(start)
		s.measured(in, report)
		return r.within(ctx, c, w, in, steps, false)
	})
	if carrel.CodeOf(err) == abi.Timeout && ctx.Err() == nil {
		return carrel.FailLimit("sandbox.Admit", abi.LimitExceeded, "sandbox.admitTimeout", fmt.Sprintf(
			"_initialize and carrel_describe did not end within %v (limit sandbox.admitTimeout)", s.cfg.AdmitTimeout))
	}
	return err
}
