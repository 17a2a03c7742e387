package sandbox

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox/image"
	"github.com/carrelhost/carrel/host/sandbox/module"
)

// recipe is what a program is made of.
type recipe struct {
	key       programKey
	code      *code
	rewritten *module.Rewritten
	path      string  // one that howItRuns allows, or a slower one
	warmup    *Warmup // nil: none
	share     string  // whose CPU slot it takes

	admitting bool        // the guest runs whatever is known of it, and must not fail
	stage     func(Stage) // nil: nobody is told
	report    *Report     // of an admission, else nil
	discarded error       // why the warm-up is not in the program
	warmLog   []LogLine   // what it wrote, for the report

	spent time.Duration // on initialisations and carrel_describe, of Config.AdmitTimeout
}

// begins tells that a stage begins.
func (k *recipe) begins(stage Stage) {
	if k.stage != nil {
		k.stage(stage)
	}
}

// logs reports what a guest wrote, once, and returns it.
func (k *recipe) logs(r *run) []LogLine {
	if k.report == nil {
		return nil
	}
	lines := r.log.finish()
	k.report.Log = append(k.report.Log, lines...)
	return lines
}

// guestMade reports whether code of the guest makes the state that calls begin
// with. If not, it is the module's data, and nothing is gained by keeping it.
func (k *recipe) guestMade() bool {
	return k.warmup != nil || k.rewritten.Start || k.code.has[abi.InitializeExport]
}

// notOnThisPath says why a warm-up has no place to leave its state in.
func notOnThisPath(path string, why []string) error {
	begins := "each call begins with what the module's data says"
	if path == PathPlain {
		begins = "each call initialises the module anew"
	}
	return carrel.Fail("sandbox.warm", abi.InvalidModule, fmt.Sprintf(
		"there is no place for a warm-up's state: %s, since an instance of this module cannot be set back to a state that it had (%s)", begins, strings.Join(why, "; ")))
}

// bake initialises the module, warms it up and keeps in the program what it
// became. On PathPlain it shows only that the initialisation does not fail. A
// warm-up that fails is discarded, and the module is initialised once more.
// That is the same each time; how long a warm-up takes is not, so one that
// does not end in time refuses an admission, and what an opening makes without
// it is not kept. The error is that of the initialisation, of an admission's
// warm-up that did not end, or the host's own: that of a warm-up, too, which
// the next time may go well.
func (s *Sandbox) bake(ctx context.Context, k *recipe, p *program) error {
	described := k.report != nil && k.report.Described // then its log has the initialisation already
	if !described {
		k.begins(StageInitialise)
	}
	initialised, warmed := false, false
	r := s.admission(k.share)
	err := s.rehearse(ctx, k, p.memoryBytes(), r, func(in *instance) error {
		if k.warmup == nil {
			return s.become(k, p, in, r, false)
		}
		if initialised = true; !described {
			k.logs(r)
		}
		k.begins(StageWarm)
		w := s.admission(k.share)
		k.discarded = s.warm(ctx, k, in, r, w)
		k.warmLog = k.logs(w)
		switch {
		case k.discarded == nil:
			warmed = true
			return s.become(k, p, in, r, true)
		case ofGuest(k.discarded):
		case outOfTime(k.discarded) && !k.admitting:
			s.goesOn(p, k.discarded)
		default:
			return k.discarded
		}
		return nil
	})
	if !initialised && (err != nil || !described) {
		k.logs(r)
	}
	switch {
	case err == nil && (warmed || k.warmup == nil):
		return nil
	case ctx.Err() != nil:
		return ended(ctx, "initialise", ctx.Err())
	case err == nil:
		again := s.admission(k.share)
		return s.rehearse(ctx, k, p.memoryBytes(), again, func(in *instance) error { return s.become(k, p, in, again, false) })
	case !k.admitting:
		return err
	}
	lacks, unknown := s.lacksMemory(ctx, k, err)
	switch {
	case unknown != nil:
		return unknown
	case lacks:
		return carrel.FailLimit("sandbox.Admit", abi.LimitExceeded, "memoryMiB", fmt.Sprintf(
			"the module's initialisation needs more than the %d MiB of memory that this plugin has (limit memoryMiB): raise limits.memoryMiB in the manifest",
			k.key.memoryMiB))
	}
	return err
}

// lacksMemory finds out whether an initialisation that failed succeeds with
// all the memory that a plugin can have. Its error is overloaded if the system
// has not so much.
func (s *Sandbox) lacksMemory(ctx context.Context, k *recipe, err error) (bool, error) {
	if code := carrel.CodeOf(err); code != abi.GuestTrap && code != abi.GuestFailed || k.key.memoryMiB == abi.MaxMemoryMiB {
		return false, nil
	}
	err = s.rehearse(ctx, k, abi.MaxMemoryMiB<<20, s.admission(k.share), nil)
	if errors.Is(err, image.ErrNoRoom) {
		return false, err
	}
	return err == nil, nil
}

// ofGuest reports whether an error is the guest's own: with it, the same bytes
// end the same way each time, on every machine.
func ofGuest(err error) bool {
	switch carrel.CodeOf(err) {
	case abi.GuestTrap, abi.GuestFailed, abi.FuelExhausted, abi.NotFound:
		return true
	default:
		return false
	}
}

// rehearse initialises an instance with so much memory and lends it to then,
// if that is not nil, until it returns. All of a recipe's have AdmitTimeout
// together.
func (s *Sandbox) rehearse(ctx context.Context, k *recipe, most int, r *run, then func(*instance) error, steps ...string) error {
	var in *instance
	defer func() {
		if in != nil {
			in.close(ctx)
		}
	}()
	left := max(s.cfg.AdmitTimeout-k.spent, 1) // 0 would be no limit
	err := s.execute(ctx, left, nil, r, func(ctx context.Context) (err error) {
		begun := time.Now()
		defer func() { k.spent += time.Since(begun) }()
		if in, err = s.loaded(ctx, k.code, k.rewritten, most); err != nil {
			return failedToStart(err)
		}
		start := time.Now()
		if err := r.within(ctx, k.code, k.rewritten, in, nil, true); err != nil {
			return err
		}
		if k.report != nil {
			k.report.Fuel, k.report.InitialiseFor = r.fuel, time.Since(start)
		}
		return r.within(ctx, k.code, k.rewritten, in, steps, false)
	})
	if err != nil {
		return s.overdue(ctx, err, "_initialize and carrel_describe, as often as an upload runs them, did not end", "do less in them")
	}
	if then == nil {
		return nil
	}
	return then(in)
}

// warm runs the warm-up as w in an instance that r initialised. The clock goes
// on, and all else of the host begins anew. What the guest wrote as its output
// or its error is dropped.
func (s *Sandbox) warm(ctx context.Context, k *recipe, in *instance, r, w *run) error {
	export := k.warmup.Export
	if !k.code.exports[export] {
		return carrel.Fail("sandbox.warm", abi.NotFound, fmt.Sprintf("the module exports no function %q of the signature () -> i32", export))
	}
	w.clock, w.input, w.outputBytes, w.warming = r.clock, k.warmup.Input, s.cfg.OutputBytes, true
	err := s.execute(ctx, s.cfg.AdmitTimeout, nil, w, func(ctx context.Context) error {
		return w.within(ctx, k.code, k.rewritten, in, []string{export}, false)
	})
	return s.overdue(ctx, err, "the warm-up did not end", "do less in the warm-up, or upload again when the host is less busy")
}

// goesOn notes that an opening lacks the time for what the admission had time
// for.
func (s *Sandbox) goesOn(p *program, err error) {
	p.late = true
	s.cfg.Log.Warn("a plugin's calls begin without what had no time now, until it is opened again", "module", hex.EncodeToString(p.key.digest[:]), "err", err)
}

// overdue names the limit where an admission's own deadline ended a guest, and
// the remedy.
func (s *Sandbox) overdue(ctx context.Context, err error, what, remedy string) error {
	if carrel.CodeOf(err) != abi.Timeout || ctx.Err() != nil {
		return err
	}
	return carrel.FailLimit("sandbox.Admit", abi.LimitExceeded, limitAdmitTimeout, fmt.Sprintf(
		"%s within %v (limit %s): %s", what, s.cfg.AdmitTimeout, limitAdmitTimeout, remedy))
}

const limitAdmitTimeout = "sandbox.admitTimeout"

// outOfTime reports whether an admission's own deadline ended a guest: how much
// it does until then depends on the machine, and on what else that does.
func outOfTime(err error) bool {
	failure, ok := errors.AsType[*carrel.Error](err)
	return ok && failure.Limit == limitAdmitTimeout
}

// become makes what an instance is the beginning of the program, after its
// warm-up or without.
func (s *Sandbox) become(k *recipe, p *program, in *instance, r *run, warmed bool) (err error) {
	if k.path == PathPlain {
		return nil
	}
	b := beginning{path: k.path, values: make([]uint64, len(in.globals)), warmed: warmed}
	for i, g := range in.globals {
		b.values[i] = g.Get()
	}
	var memory []byte
	if in.slot != nil {
		size := in.module.Memory().Size()
		memory = in.slot.Bytes(int(size))
		if b.image, err = image.New(memory, p.memoryBytes(), s.memory); err != nil {
			return err
		}
		b.pages = size / PageBytes
	}
	if c, ok := r.clock.(*stubClock); ok {
		b.passed = c.passed
	}
	p.beginning = b
	if k.report != nil {
		s.measured(in, k.report)
	}
	s.storeSnapshot(k, p, memory)
	return nil
}
