package module_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox/module"
)

// engines are the two that must agree. Their memories grow as far as those of
// defaultOptions.
func engines() map[string]wazero.RuntimeConfig {
	return map[string]wazero.RuntimeConfig{
		"compiler":    wazero.NewRuntimeConfigCompiler().WithCoreFeatures(api.CoreFeaturesV2).WithMemoryLimitPages(1024),
		"interpreter": wazero.NewRuntimeConfigInterpreter().WithCoreFeatures(api.CoreFeaturesV2).WithMemoryLimitPages(1024),
	}
}

// defaultOptions are generous.
func defaultOptions() module.Options {
	return module.Options{StackBytes: 8 << 20, TableMax: 65536, MaxPages: 1024}
}

var (
	errOutOfFuel = errors.New("out of fuel")
	errOverflow  = errors.New("overflow of the stack")
)

// runner is an engine with everything that modules import.
type runner struct {
	runtime wazero.Runtime
	// yield answers the guest's; nil gives it a million units each time.
	yield  func(m api.Module) int64
	yields int
}

// newRunner returns a runner for guests of one test.
func newRunner(t testing.TB, config wazero.RuntimeConfig) *runner {
	t.Helper()
	ctx := t.Context()
	r := &runner{runtime: wazero.NewRuntimeWithConfig(ctx, config)}
	t.Cleanup(func() {
		if err := r.runtime.Close(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
	})
	host := r.runtime.NewHostModuleBuilder(module.HostModule)
	host.NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(func(_ context.Context, m api.Module, stack []uint64) {
		r.yields++
		stack[0] = 1_000_000
		if r.yield != nil {
			stack[0] = uint64(r.yield(m))
		}
	}), nil, []api.ValueType{api.ValueTypeI64}).Export(module.YieldImport)
	host.NewFunctionBuilder().WithFunc(func() { panic(errOverflow) }).Export(module.OverflowImport)
	if _, err := host.Instantiate(ctx); err != nil {
		t.Fatal(err)
	}
	carrelHost := r.runtime.NewHostModuleBuilder(abi.Module)
	for _, f := range abi.Imports() {
		carrelHost.NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(func(_ context.Context, _ api.Module, stack []uint64) {
			clear(stack)
		}), valueTypes(f.Params), valueTypes(f.Results)).Export(f.Name)
	}
	if _, err := carrelHost.Instantiate(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := wasi_snapshot_preview1.Instantiate(ctx, r.runtime); err != nil {
		t.Fatal(err)
	}
	return r
}

func valueTypes(types []abi.ValType) []api.ValueType {
	out := make([]api.ValueType, len(types))
	for i, t := range types {
		out[i] = api.ValueType(t)
	}
	return out
}

// original instantiates a module as it is.
func (r *runner) original(t testing.TB, b []byte) (api.Module, error) {
	t.Helper()
	return r.runtime.InstantiateWithConfig(t.Context(), b, wazero.NewModuleConfig().WithName("").WithStartFunctions())
}

// rewritten instantiates a module as a sandbox does.
func (r *runner) rewritten(t testing.TB, w *module.Rewritten) (api.Module, error) {
	t.Helper()
	m, err := r.original(t, w.Code)
	if err != nil {
		return nil, err
	}
	for _, s := range w.Data {
		if !m.Memory().Write(s.Offset, s.Bytes) {
			t.Fatalf("%d bytes at %d are beyond the memory", len(s.Bytes), s.Offset)
		}
	}
	if w.Start {
		_, err = m.ExportedFunction(module.StartExport).Call(t.Context())
	}
	return m, err
}

// rewrite reads, lints and rewrites.
func rewrite(b []byte, o module.Options) (*module.Rewritten, error) {
	m, err := module.Read(b, module.DefaultLimits())
	if err != nil {
		return nil, err
	}
	if err := module.Lint(m, module.DefaultLimits()); err != nil {
		return nil, err
	}
	return module.Rewrite(m, o)
}

func mustRewrite(t testing.TB, b []byte, o module.Options) *module.Rewritten {
	t.Helper()
	w, err := rewrite(b, o)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// trapKind is what a trap is about, without the stack.
func trapKind(err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, errOverflow):
		return "stack overflow"
	case errors.Is(err, errOutOfFuel):
		return "out of fuel"
	}
	text, _, _ := strings.Cut(err.Error(), "\n")
	if i := strings.LastIndex(text, "wasm error: "); i >= 0 {
		text = text[i+len("wasm error: "):]
	}
	return text
}

// timed runs a function and returns the nanoseconds.
func timed(t testing.TB, f api.Function) int64 {
	t.Helper()
	start := time.Now()
	if _, err := f.Call(t.Context()); err != nil {
		t.Fatal(err)
	}
	return time.Since(start).Nanoseconds()
}
