package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox"
	corpus "github.com/carrelhost/carrel/host/sandbox/hostile"
	"github.com/carrelhost/carrel/host/sandbox/module"
)

// What a guest may do between two visits to its host.
const (
	visitFuel  = 100_000               // that each visit grants
	visitUses  = 60 * time.Millisecond // of computing
	visitBytes = 1 << 20               // of memory that it writes
	visits     = 300                   // after which it has shown enough
	visitStep  = 4096                  // bytes of memory of which one is looked at
	visitSees  = 8 << 20               // bytes of memory that are looked at; what is copied there is behind it
)

var errSeen = errors.New("it came often enough")

// visitor is a host that looks at a guest each time that it comes.
type visitor struct {
	last  time.Duration // what had been computed at the last visit
	count int
	looks bool // at its memory
}

// see says what the guest did too long.
func (v *visitor) see(m api.Module) error {
	now := used()
	took := now - v.last
	v.count++
	if v.looks {
		memory := m.Memory()
		if most := uint64(sandbox.RewriteOptions().MaxPages) * sandbox.PageBytes; uint64(memory.Size()) > most {
			return fmt.Errorf("it has %d bytes of memory, of %d", memory.Size(), most)
		}
		b, _ := memory.Read(0, min(memory.Size(), visitSees))
		wrote := 0
		for at := 0; at < len(b); at += visitStep {
			if b[at] != 0 {
				b[at] = 0
				wrote += visitStep
			}
		}
		if v.count > 1 && wrote > visitBytes+2*visitStep {
			return fmt.Errorf("it wrote %d bytes between two visits", wrote)
		}
	}
	if took > visitUses {
		return fmt.Errorf("it computed for %v between two visits", took)
	}
	if v.count >= visits {
		return errSeen
	}
	v.last = used()
	return nil
}

// visited runs an attack in an engine, with a host that sees how often it
// comes there.
func visited(a corpus.Attack) error {
	w, err := inspect(a.Plugin())
	if err != nil {
		return err
	}
	ctx := context.Background()
	r := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigCompiler())
	v := &visitor{looks: w.MaxPages > 0}
	host := r.NewHostModuleBuilder(module.HostModule)
	host.NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(func(_ context.Context, m api.Module, stack []uint64) {
		if err := v.see(m); err != nil {
			panic(err)
		}
		stack[0] = visitFuel
	}), nil, []api.ValueType{api.ValueTypeI64}).Export(module.YieldImport)
	host.NewFunctionBuilder().WithFunc(func() { panic(errSeen) }).Export(module.OverflowImport)
	if _, err := host.Instantiate(ctx); err != nil {
		return err
	}
	for name, list := range map[string][]abi.Func{abi.Module: abi.Imports(), abi.WASIModule: abi.WASIImports()} {
		b := r.NewHostModuleBuilder(name)
		for _, f := range list {
			b.NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(func(_ context.Context, _ api.Module, stack []uint64) {
				clear(stack)
			}), types(f.Params), types(f.Results)).Export(f.Name)
		}
		if _, err := b.Instantiate(ctx); err != nil {
			return err
		}
	}
	g, err := r.InstantiateWithConfig(ctx, w.Code, wazero.NewModuleConfig().WithStartFunctions())
	if err != nil {
		return err
	}
	if v.looks {
		b, _ := g.Memory().Read(0, g.Memory().Size())
		for at := visitSees; at < len(b); at++ {
			b[at] = 1
		}
	}
	runtime.LockOSThread()
	v.last = used()
	_, err = g.ExportedFunction(a.Method).Call(ctx)
	switch {
	case errors.Is(err, errSeen):
		return nil
	case err == nil:
		return errors.New("it ended by itself")
	default:
		return err
	}
}

func types(list []abi.ValType) []api.ValueType {
	out := make([]api.ValueType, len(list))
	for i, t := range list {
		out[i] = api.ValueType(t)
	}
	return out
}

// tablesStayAsTheyAre runs what was let pass, as far as to its first call.
func tablesStayAsTheyAre(m corpus.Module) error {
	w, err := inspect(m.Bytes())
	if err != nil {
		return refusedAs(m, err)
	}
	ctx := context.Background()
	r := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigCompiler())
	host := r.NewHostModuleBuilder(module.HostModule)
	host.NewFunctionBuilder().WithFunc(func() int64 { return visitFuel }).Export(module.YieldImport)
	host.NewFunctionBuilder().WithFunc(func() {}).Export(module.OverflowImport)
	if _, err := host.Instantiate(ctx); err != nil {
		return err
	}
	g, err := r.Instantiate(ctx, w.Code)
	if err != nil {
		return err
	}
	before, err := g.ExportedFunction(corpus.Run).Call(ctx)
	if err != nil {
		return err
	}
	if int32(uint32(before[0])) != -1 {
		return errors.New("the table grew")
	}
	return nil
}
