package sandbox

import (
	"context"
	"fmt"

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

// complete fills in the default and judges the rest. m is the module that is
// to run with it. Its error is limit_exceeded with the limit memoryMiB.
func (u Setup) complete(m *module.Module) (Setup, error) {
	const op = "sandbox.Setup"
	if u.MemoryMiB == 0 {
		u.MemoryMiB = abi.DefaultMemoryMiB
	}
	if u.MemoryMiB < 1 || u.MemoryMiB > abi.MaxMemoryMiB {
		return u, carrel.FailLimit(op, abi.LimitExceeded, "memoryMiB",
			fmt.Sprintf("a plugin can have from 1 to %d MiB of memory, not %d (limit memoryMiB): change limits.memoryMiB in the manifest", abi.MaxMemoryMiB, u.MemoryMiB))
	}
	if need := m.MemoryPages() * PageBytes; need > u.MemoryMiB<<20 {
		return u, carrel.FailLimit(op, abi.LimitExceeded, "memoryMiB", fmt.Sprintf(
			"the module starts with %d pages of memory (%d MiB), this plugin has %d MiB (limit memoryMiB): raise limits.memoryMiB in the manifest, to %d at most, or build the module with less",
			m.MemoryPages(), (need+1<<20-1)>>20, u.MemoryMiB, abi.MaxMemoryMiB))
	}
	return u, nil
}

// Admit decides on an uploaded module. One with code is compiled and
// initialised once, with the memory that its Plan asks for, and warmed up. One
// without the manifest section is asked with carrel_describe, for which it has
// abi.MaxMemoryMiB. What the guest code does in admission depends on its bytes
// only: clock and randomness are the same each time, and host calls answer
// ENOSYS. A warm-up that fails is no error: the Report says so, and calls
// begin without it. One that does not end in time is: how far it comes depends
// on the machine. What an Open with this Setup needs is kept.
//
// Its error is what module.Read and Lint say, invalid_module for what the
// engine or this contract refuses, that of Plan, guest_trap or guest_failed
// for guest code that fails, fuel_exhausted or limit_exceeded with the limit
// sandbox.admitTimeout for guest code that does not end in time, limit_exceeded with
// the limit memoryMiB if the Setup has too little, overloaded if the
// system has no memory for the guest, draining after Close, or the context's.
// The Report holds what was found out until then.
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
	report.CustomBytes = m.CustomBytes()
	section, declared := m.Custom(abi.ManifestSection)
	if declared {
		report.Manifest = append([]byte{}, section...)
	}
	if !m.HasCode() {
		report.Path, report.Why = PathPrompt, []string{"the module has no code"}
		_, err = candidate.plan(report)
		return report, err
	}
	c, rewritten, err := s.compile(ctx, queue{s.admitting, candidate.Share, stage}, m)
	if err != nil {
		return report, err
	}
	report.compiled(c, rewritten)
	k := &recipe{code: c, rewritten: rewritten, path: report.Path, share: candidate.Share, admitting: true, stage: stage, report: &report}
	if !declared && c.has[abi.DescribeExport] {
		if err := s.describe(ctx, k); err != nil {
			return report, also(err, s.keep(ctx, admitted{code: c}))
		}
	}
	setup, err := candidate.plan(report)
	if err == nil {
		setup, err = setup.complete(m)
	}
	if err != nil {
		return report, also(err, s.keep(ctx, admitted{code: c}))
	}
	k.key, k.warmup = keyOf(candidate.Module, setup), setup.Warmup
	p, err := s.newProgram(ctx, k)
	if err != nil {
		return report, err
	}
	if setup.Warmup != nil {
		report.Warmup = &Warming{Kept: p.warmed, Err: k.discarded, Log: k.warmLog}
	}
	if p, err = s.join(ctx, p); err != nil {
		return report, err
	}
	return report, s.keep(ctx, admitted{program: p})
}

// plan asks what the plugin's calls begin with.
func (c Candidate) plan(r Report) (Setup, error) {
	if c.Plan == nil {
		return Setup{}, nil
	}
	return c.Plan(r)
}

// describe asks a module for its manifest.
func (s *Sandbox) describe(ctx context.Context, k *recipe) error {
	k.begins(StageInitialise)
	r := s.admission(k.share)
	err := s.rehearse(ctx, k, abi.MaxMemoryMiB<<20, r, nil, abi.DescribeExport)
	k.report.Log = r.log.finish()
	if err != nil {
		return err
	}
	k.report.Manifest, k.report.Described = r.output, true
	return nil
}

// admitted is what the latest admission made: the program, or the code of one
// that was refused later.
type admitted struct {
	program *program
	code    *code
}

// keep takes over the reference to what the latest admission made, and lets
// go of what the one before it made: what was admitted is mostly opened next,
// and its machine code and its image are then still there.
func (s *Sandbox) keep(ctx context.Context, latest admitted) error {
	s.mu.Lock()
	before := s.latest
	if s.closed { // nobody will open it any more
		before = latest
	} else {
		s.latest = latest
	}
	s.mu.Unlock()
	return s.letGo(ctx, before)
}

// letGo gives a reference back.
func (s *Sandbox) letGo(ctx context.Context, a admitted) error {
	switch {
	case a.program != nil:
		return s.leave(ctx, a.program)
	case a.code != nil:
		return s.release(ctx, a.code)
	default:
		return nil
	}
}
