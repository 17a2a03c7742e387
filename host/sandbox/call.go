package sandbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/lifetime"
	"github.com/carrelhost/carrel/host/sandbox/image"
	"github.com/carrelhost/carrel/host/sandbox/marker"
	"github.com/carrelhost/carrel/host/sandbox/module"
)

// Call is one call of a guest.
type Call struct {
	Export string
	Input  []byte // read-only while the call runs
	Host   Host   // nil answers every host call with ENOSYS

	// Share is whose CPU slots the guest uses, a tenant's for example. Shares
	// take turns, and one of them never holds every slot.
	Share string
	// Limit bounds the call from when it first has a slot; 0 is no limit but
	// that of the context.
	Limit time.Duration
	// LimitCause says why a call ended that took longer than Limit. It is
	// asked before that, or never, once at the most; nil is
	// context.DeadlineExceeded.
	LimitCause func() error
}

// Result is what a call left, also when it failed.
type Result struct {
	Output []byte        // what output_write appended; the caller's
	Log    []LogLine     // bounded by Config.LogBytes and one stack; the last line says if some were dropped
	Guest  time.Duration // time on a CPU slot, host calls not counted
	Fuel   int64         // units of work, also of _initialize and carrel_wake if they ran
}

// Call runs an export in the state that the module's initialisation left, and
// before it carrel_wake, if the module exports it. Nothing the guest did
// outlives the call but the Result. ctx, Limit and Config.Fuel end the guest,
// wherever it is.
//
// Its error is not_found for an export that cannot be called, guest_failed
// with the GuestCode that the guest set or without one, guest_trap for a trap
// or proc_exit (the stack is in Result.Log) or, with the limit sandbox.stack,
// for calls that go too deep, fuel_exhausted with the limit sandbox.fuel,
// overloaded if the system has no memory for the guest, also if that was refused
// to a memory.grow and the guest went on without it, draining after Close,
// internal for a panic of the Host, or one that wraps ctx's end or that of
// Limit, each with its cause.
func (p *Plugin) Call(ctx context.Context, c Call) (Result, error) {
	end, err := p.begin()
	if err != nil {
		return Result{}, err
	}
	defer end()
	if !p.program.code.exports[c.Export] {
		return Result{}, carrel.Fail("sandbox.Call", abi.NotFound,
			fmt.Sprintf("the module exports no function %q of the signature () -> i32", c.Export))
	}
	var steps []string
	if p.program.code.has[abi.WakeExport] {
		steps = append(steps, abi.WakeExport)
	}
	steps = append(steps, c.Export)
	r := p.sandbox.call(c, p.program.passed)
	err = p.sandbox.execute(ctx, c.Limit, c.LimitCause, r, func(ctx context.Context) error {
		in, err := p.take(ctx)
		if err != nil {
			return failedToStart(err)
		}
		err = r.within(ctx, p.program.code, p.program.rewritten, in, steps, p.program.values == nil)
		p.putBack(ctx, r, in, err)
		if errors.Is(err, image.ErrNoRoom) {
			p.sandbox.closeHalf() //nolint:contextcheck // what it closes is another call's
		}
		return err
	})
	return Result{Output: r.output, Log: r.log.finish(), Guest: r.onCPU, Fuel: r.fuel}, err
}

// execute waits for a CPU slot and runs a guest on it. most bounds the
// guest's time, this wait not counted; 0 is no limit but ctx.
func (s *Sandbox) execute(ctx context.Context, most time.Duration, cause func() error, r *run, guest func(context.Context) error) error {
	if err := r.takeSlot(ctx); err != nil {
		return ended(ctx, "wait for a CPU slot", err)
	}
	defer r.giveSlot()
	limited := lifetime.New(ctx, most, cause)
	defer limited.End(nil)
	return guest(limited) //nolint:contextcheck // it is ctx, with an end of its own
}

// within runs the steps in an instance, after its initialisation if that is
// still to come, and stops at the first failure. Whatever came of them, its
// error is overloaded if the system refused memory to the guest.
func (r *run) within(ctx context.Context, c *code, w *module.Rewritten, in *instance, steps []string, initialise bool) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &carrel.Error{Op: "sandbox.Call", Code: abi.Internal, Err: fmt.Errorf("engine panicked: %v", v)}
		}
	}()
	r.names = w.Names
	r.begin(in)
	defer r.end()
	ctx = context.WithValue(ctx, runKey{}, r)
	r.mark = r.cfg.Marks.Take(&w.Digest, r.share)
	defer r.unmark()
	err = marker.Under(ctx, r.mark.Number(), func(ctx context.Context) error {
		if initialise {
			if err := r.initialise(ctx, c, w, in); err != nil {
				return err
			}
		}
		for _, step := range steps {
			what := step
			if r.warming { // its author knows it by the method's name
				what = "the warm-up"
			}
			if err := r.step(ctx, in, step, what); err != nil {
				return err
			}
		}
		return nil
	})
	return in.starved(err)
}

// unmark ends the mark, also of a guest that ends while it is away.
func (r *run) unmark() {
	r.mark.Release()
	r.mark = marker.Mark{}
}

// initialise runs what a module runs before its first call. The guest is then
// in the state of admission, also at the beginning of a call: what comes of
// it is always the same.
func (r *run) initialise(ctx context.Context, c *code, w *module.Rewritten, in *instance) error {
	admitting, clock := r.admitting, r.clock
	stub, ok := clock.(*stubClock)
	if !ok {
		stub = newStubClock()
	}
	r.admitting, r.clock = true, stub
	if w.Start {
		if err := r.step(ctx, in, module.StartExport, "the start function"); err != nil {
			return err
		}
	}
	if c.has[abi.InitializeExport] {
		if err := r.step(ctx, in, abi.InitializeExport, abi.InitializeExport); err != nil {
			return err
		}
	}
	if c, ok := clock.(*realClock); ok {
		c.base = stub.passed
	}
	r.admitting, r.clock = admitting, clock
	return nil
}

// step calls one function, which what names.
func (r *run) step(ctx context.Context, in *instance, export, what string) error {
	code, err := in.call(ctx, export)
	if err != nil {
		return r.failed(ctx, what, err)
	}
	return r.verdict(what, code)
}

// verdict is what a function means that returned.
func (r *run) verdict(export string, code int32) error {
	switch {
	case r.guestError != nil:
		e := carrel.Fail("sandbox.Call", abi.GuestFailed, r.guestError.message)
		e.GuestCode = r.guestError.code
		return e
	case code != 0:
		return carrel.Fail("sandbox.Call", abi.GuestFailed, r.silent(export, code))
	default:
		return nil
	}
}

// silent says that a function failed which said no more. At admission there is
// no error_set, and nobody is told what a warm-up's error was.
func (r *run) silent(export string, code int32) string {
	switch {
	case r.warming:
		return fmt.Sprintf("%s failed (it returned %d)", export, code)
	case r.admitting:
		return fmt.Sprintf("the export %q returned %d, which is a failure", export, code)
	default:
		return fmt.Sprintf("the export %q returned %d and said no more with error_set", export, code)
	}
}
