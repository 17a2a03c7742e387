package sandbox

import (
	"context"
	"fmt"
	"time"

	"github.com/tetratelabs/wazero"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
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
	// LimitCause says why a call ended that took longer than Limit. nil is
	// context.DeadlineExceeded.
	LimitCause error
}

// Result is what a call left, also when it failed.
type Result struct {
	Output []byte        // what output_write appended; the caller's
	Log    []LogLine     // bounded by Config.LogBytes and one stack; the last line says if some were dropped
	Guest  time.Duration // time on a CPU slot, host calls not counted
}

// Call runs an export in a fresh instance: _initialize and carrel_wake, if
// the module exports them, then the export. Nothing the guest did outlives
// the call but the Result. ctx and Limit end the guest: a call without either
// may run for ever.
//
// Its error is not_found for an export that cannot be called, guest_failed
// with the GuestCode that the guest set or without one, guest_trap for a trap
// or proc_exit (the stack is in Result.Log), draining after Close, internal
// for a panic of the Host, or one that wraps ctx's end
// or that of Limit, each with its cause.
func (p *Plugin) Call(ctx context.Context, c Call) (Result, error) {
	end, err := p.begin()
	if err != nil {
		return Result{}, err
	}
	defer end()
	if !p.program.exports[c.Export] {
		return Result{}, carrel.Fail("sandbox.Call", abi.NotFound,
			fmt.Sprintf("the module exports no function %q of the signature () -> i32", c.Export))
	}
	var steps []string
	if p.program.has[abi.WakeExport] {
		steps = append(steps, abi.WakeExport)
	}
	r := p.sandbox.call(c)
	err = p.sandbox.execute(ctx, c.Limit, c.LimitCause, p.program, r, append(steps, c.Export))
	return Result{Output: r.output, Log: r.log.finish(), Guest: r.onCPU}, err
}

// execute waits for a CPU slot and runs the guest on it. limit bounds the
// guest's time, this wait not counted; 0 is no limit but ctx.
func (s *Sandbox) execute(ctx context.Context, limit time.Duration, cause error, p *program, r *run, steps []string) error {
	if err := r.takeSlot(ctx); err != nil {
		return ended(ctx, "wait for a CPU slot", err)
	}
	defer r.giveSlot()
	if limit > 0 {
		limited, cancel := context.WithTimeoutCause(ctx, limit, cause)
		defer cancel()
		ctx = limited
	}
	return r.steps(ctx, p, steps)
}

// steps runs _initialize and then the steps in a fresh instance, and stops at
// the first failure. Afterwards nothing of the instance is left.
func (r *run) steps(ctx context.Context, p *program, steps []string) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &carrel.Error{Op: "sandbox.Call", Code: abi.Internal, Err: fmt.Errorf("engine panicked: %v", v)}
		}
	}()
	guest := context.WithValue(ctx, runKey{}, r)
	// An instance without a name can exist any number of times.
	instance, err := p.runtime.InstantiateModule(guest, p.compiled, wazero.NewModuleConfig().WithName("").WithStartFunctions())
	if err != nil {
		return r.failed(ctx, "the start function or a segment", err)
	}
	defer func() { _ = instance.Close(context.WithoutCancel(ctx)) }() // it has no files, so nothing of it can fail
	if p.has[abi.InitializeExport] {
		if _, err := instance.ExportedFunction(abi.InitializeExport).Call(guest); err != nil {
			return r.failed(ctx, abi.InitializeExport, err)
		}
		if err := r.verdict(abi.InitializeExport, 0); err != nil {
			return err
		}
	}
	for _, step := range steps {
		results, err := instance.ExportedFunction(step).Call(guest)
		if err != nil {
			return r.failed(ctx, step, err)
		}
		if err := r.verdict(step, int32(uint32(results[0]))); err != nil {
			return err
		}
	}
	return nil
}

// verdict is what a function means that returned.
func (r *run) verdict(export string, code int32) error {
	switch {
	case r.guestError != nil:
		e := carrel.Fail("sandbox.Call", abi.GuestFailed, r.guestError.message)
		e.GuestCode = r.guestError.code
		return e
	case code != 0:
		return carrel.Fail("sandbox.Call", abi.GuestFailed,
			fmt.Sprintf("the export %q returned %d and said no more with error_set", export, code))
	default:
		return nil
	}
}
