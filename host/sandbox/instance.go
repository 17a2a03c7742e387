package sandbox

import (
	"context"
	"fmt"
	"math"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox/image"
	"github.com/carrelhost/carrel/host/sandbox/module"
)

// instance is code with state of its own. It has one user at a time and is
// closed only when no guest runs in it: its memory goes with it.
type instance struct {
	module    api.Module
	slot      *image.Slot // nil without memory
	memory    api.Memory  // as the guest's pointers mean it; nil without an export of it
	pages     uint32      // of its memory at first
	fuel      api.MutableGlobal
	depth     api.MutableGlobal
	globals   []api.MutableGlobal
	functions map[string]*function // that were called
	stacks    int64                // bytes of their stacks
	results   [1]uint64            // of the function that was called last
	fixed     int64                // bytes that the engine keeps for it, whatever it runs
	counted   int64                // what it keeps, as it is in sum
	sum       *idleMemory
}

// bytes returns what the instance keeps while no guest runs in it, after its
// memory was made as new.
func (in *instance) bytes() int64 {
	n := in.fixed + in.stacks + int64(len(in.functions))*functionBytes
	if in.slot != nil {
		n += int64(in.slot.Private())
	}
	return n
}

// linear lends a slot to the engine, up to a plugin's own limit.
type linear struct {
	slot *image.Slot
	most uint64 // bytes
}

// Reallocate implements experimental.LinearMemory: memory.grow fails beyond
// the limit, and where the system has no room, which the slot remembers.
func (l linear) Reallocate(size uint64) []byte {
	if size > l.most || size > math.MaxInt {
		return nil
	}
	return l.slot.Bytes(int(size))
}

// Free implements experimental.LinearMemory. The slot is the instance's.
func (l linear) Free() {}

// newInstance instantiates code on a new slot of an image (nil without a
// memory), which may grow to most bytes. Nothing of the guest runs in this,
// and globals have their first values. The caller closes the instance. The
// error is image.ErrNoRoom, or a fault of the host or the engine.
func newInstance(ctx context.Context, c *code, im *image.Image, least uint32, most int, globals []module.Global) (in *instance, err error) {
	in = &instance{functions: map[string]*function{}, fixed: c.instanceBytes}
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("engine panicked: %v", v)
		}
		if err != nil {
			in.close(ctx)
			in = nil
		}
	}()
	if im != nil {
		if in.slot, err = im.Slot(); err != nil {
			return in, err
		}
		memory := linear{in.slot, uint64(most)}
		if memory.Reallocate(uint64(least)*PageBytes) == nil {
			return in, fmt.Errorf("its first %d pages: %w", least, in.slot.Lack())
		}
		ctx = experimental.WithMemoryAllocator(ctx, experimental.MemoryAllocatorFunc(
			func(uint64, uint64) experimental.LinearMemory { return memory }))
	}
	// An instance without a name can exist any number of times.
	in.module, err = c.runtime.InstantiateModule(ctx, c.compiled, wazero.NewModuleConfig().WithName("").WithStartFunctions())
	if err != nil {
		return in, err
	}
	if im != nil {
		in.pages = in.module.Memory().Size() / PageBytes
	}
	in.memory = in.module.ExportedMemory(abi.MemoryExport)
	for _, g := range globals {
		set, err := in.global(g.Export)
		if err != nil {
			return in, err
		}
		in.globals = append(in.globals, set)
	}
	if in.fuel, err = in.global(module.FuelExport); err != nil {
		return in, err
	}
	in.depth, err = in.global(module.DepthExport)
	return in, err
}

// starved is the error of a guest that ended with err, nil included, and was
// refused memory that its plugin may have: overloaded. What such a guest made
// of it depends on the machine, so it is no result, and no fault of the guest.
// Any other guest's error stays as it is.
func (in *instance) starved(err error) error {
	if in.slot == nil || in.slot.Lack() == nil {
		return err
	}
	lack := fmt.Errorf("memory.grow was refused: %w", in.slot.Lack())
	if err != nil {
		lack = fmt.Errorf("%w: and then: %w", lack, err)
	}
	return noRoom(lack)
}

func (in *instance) global(export string) (api.MutableGlobal, error) {
	g, ok := in.module.ExportedGlobal(export).(api.MutableGlobal)
	if !ok {
		return nil, fmt.Errorf("the rewritten module does not export the mutable global %s", export)
	}
	return g, nil
}

// call runs an exported function and returns its i32, 0 without one.
func (in *instance) call(ctx context.Context, export string) (int32, error) {
	f := in.functions[export]
	if f == nil {
		f = newFunction(in.module.ExportedFunction(export))
		in.functions[export] = f
	}
	in.results[0] = 0
	err := f.CallWithStack(ctx, in.results[:])
	in.called(export, f)
	if err != nil {
		return 0, err
	}
	return int32(uint32(in.results[0])), nil
}

// close gives the instance and its memory back. The engine's error is of
// files, and there are none; a slot that cannot be unmapped stays with its
// image, whose Close tells.
func (in *instance) close(ctx context.Context) {
	if in.module != nil {
		_ = in.module.Close(context.WithoutCancel(ctx))
	}
	if in.slot != nil {
		_ = in.slot.Close()
	}
	if in.counted != 0 {
		in.sum.bytes.Add(-in.counted)
		in.counted = 0
	}
}
