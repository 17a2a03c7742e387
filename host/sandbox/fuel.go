package sandbox

import (
	"context"
	"fmt"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/carrelhost/carrel/host/sandbox/module"
)

const (
	// slice is how much fuel a guest gets at once, in units: so often it
	// comes to the host, where it can be stopped and where the garbage
	// collector does not wait for it. A unit is a nanosecond or less, and 40
	// where no cache has what it reads; some code is charged a quarter of its
	// units: at worst a slice takes some 20 ms.
	slice = 100_000
	// turn is how long a guest keeps its CPU slot while others wait for one.
	turn = 10 * time.Millisecond
)

// linkHost adds what rewritten code imports.
func linkHost(ctx context.Context, runtime wazero.Runtime) error {
	host := runtime.NewHostModuleBuilder(module.HostModule)
	host.NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(
		func(ctx context.Context, _ api.Module, stack []uint64) {
			stack[0] = uint64(runOf(ctx).refuel(ctx))
		}), nil, []api.ValueType{api.ValueTypeI64}).Export(module.YieldImport)
	host.NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(
		func(context.Context, api.Module, []uint64) {
			panic(&stop{overflow: true})
		}), nil, nil).Export(module.OverflowImport)
	if _, err := host.Instantiate(ctx); err != nil {
		return fmt.Errorf("sandbox: link %s: %w", module.HostModule, err)
	}
	return nil
}

// begin gives the first slice to an instance that is to run.
func (r *run) begin(in *instance) {
	r.instance, r.memory = in, in.memory
	in.depth.Set(0)
	r.grant()
}

// end counts the fuel that the instance used.
func (r *run) end() {
	if r.instance == nil {
		return
	}
	r.fuel = r.granted - int64(r.instance.fuel.Get())
	r.instance, r.memory = nil, nil
}

// grant sets the fuel of the instance to its next slice.
func (r *run) grant() int64 {
	next := min(slice, r.cfg.Fuel-r.fuel)
	r.granted = r.fuel + next
	r.instance.fuel.Set(uint64(next))
	return next
}

// refuel is where a guest comes that has used its slice, and it goes no
// further than here when its time is over, or all of its fuel.
func (r *run) refuel(ctx context.Context) int64 {
	r.fuel = r.granted - int64(r.instance.fuel.Get())
	now := time.Now()
	if deadline, ok := ctx.Deadline(); ok && !now.Before(deadline) {
		// It says so a moment later if guests keep every thread busy.
		<-ctx.Done()
	}
	if err := ctx.Err(); err != nil {
		panic(&stop{context: err})
	}
	if r.fuel >= r.cfg.Fuel {
		panic(&stop{exhausted: true})
	}
	if now.Sub(r.slotted) >= turn && r.slots.Wanted() {
		r.passSlot(ctx)
	}
	return r.grant()
}

// passSlot lets those who wait have the CPU slot, and waits for its next turn.
func (r *run) passSlot(ctx context.Context) {
	r.offSlot()
	if err := r.slots.Pass(ctx, r.share); err != nil {
		panic(&stop{context: err})
	}
	r.onSlot, r.slotted = true, time.Now()
	r.mark.Back()
}
