package sandbox_test

import (
	"context"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox"
	"github.com/carrelhost/carrel/host/sandbox/wasmtest"
)

// smallGuest does nothing, as a guest of C or AssemblyScript would.
func smallGuest() []byte {
	m := wasmtest.New()
	m.Memory(4)
	m.Global(0)
	m.Data(1000, make([]byte, 10_000))
	m.Method("noop").Const(0)
	return m.Bytes()
}

const benchInput = `{"id":"A-1","items":[{"sku":"apple","n":3},{"sku":"pear","n":2.5}],"note":"grüß","ok":true,"none":null}`

// BenchmarkCall is a call with fresh state on each path, beside what the
// engine does with the module as it is: a live instance, whose state no call
// renews, and a new one for each call.
func BenchmarkCall(b *testing.B) {
	for _, guest := range []struct {
		name, export string
		wasm         func(testing.TB) []byte
	}{
		{"small no-op", "noop", func(testing.TB) []byte { return smallGuest() }},
		{"Go no-op", "noop", goModule},
		{"Go JSON", "json", goModule},
	} {
		b.Run(guest.name, func(b *testing.B) {
			wasm := guest.wasm(b)
			b.Run("engine, live", func(b *testing.B) {
				e := newEngine(b, wasm)
				f := e.instance(b).ExportedFunction(guest.export)
				for b.Loop() {
					e.call(b, f)
				}
			})
			b.Run("engine, new", func(b *testing.B) {
				e := newEngine(b, wasm)
				b.ReportAllocs()
				for b.Loop() {
					m := e.instance(b)
					e.call(b, m.ExportedFunction(guest.export))
					if err := m.Close(b.Context()); err != nil {
						b.Fatal(err)
					}
				}
			})
			for _, path := range everyPath {
				b.Run(path, func(b *testing.B) {
					s := newSandbox(b, sandbox.Config{})
					p := sandbox.OpenOn(b, s, wasm, abi.DefaultMemoryMiB, path)
					input := []byte(benchInput)
					b.ReportAllocs()
					for b.Loop() {
						if _, err := p.Call(b.Context(), sandbox.Call{Export: guest.export, Input: input}); err != nil {
							b.Fatal(err)
						}
					}
				})
			}
		})
	}
}

// engine is a plain one, with the imports that the guests of the benchmark
// use.
type engine struct {
	runtime  wazero.Runtime
	compiled wazero.CompiledModule
}

func newEngine(b *testing.B, wasm []byte) *engine {
	b.Helper()
	ctx := context.Background()
	e := &engine{runtime: wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigCompiler())}
	b.Cleanup(func() {
		if err := e.runtime.Close(ctx); err != nil {
			b.Error(err)
		}
	})
	if _, err := wasi_snapshot_preview1.Instantiate(ctx, e.runtime); err != nil {
		b.Fatal(err)
	}
	host := e.runtime.NewHostModuleBuilder(abi.Module)
	i32 := api.ValueTypeI32
	for name, f := range map[string]struct {
		params, results []api.ValueType
		do              func(m api.Module, stack []uint64)
	}{
		"input_len": {nil, []api.ValueType{i32}, func(_ api.Module, stack []uint64) { stack[0] = uint64(len(benchInput)) }},
		"input_read": {[]api.ValueType{i32, i32, i32}, []api.ValueType{i32}, func(m api.Module, stack []uint64) {
			n := min(len(benchInput), int(uint32(stack[2])))
			m.Memory().Write(uint32(stack[0]), []byte(benchInput)[:n])
			stack[0] = uint64(n)
		}},
		"output_write": {[]api.ValueType{i32, i32}, []api.ValueType{i32}, func(_ api.Module, stack []uint64) { stack[0] = 0 }},
	} {
		host.NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(func(_ context.Context, m api.Module, stack []uint64) {
			f.do(m, stack)
		}), f.params, f.results).Export(name)
	}
	if _, err := host.Instantiate(ctx); err != nil {
		b.Fatal(err)
	}
	var err error
	if e.compiled, err = e.runtime.CompileModule(ctx, wasm); err != nil {
		b.Fatal(err)
	}
	return e
}

func (e *engine) instance(b *testing.B) api.Module {
	b.Helper()
	m, err := e.runtime.InstantiateModule(b.Context(), e.compiled, wazero.NewModuleConfig().WithName("").WithStartFunctions(abi.InitializeExport))
	if err != nil {
		b.Fatal(err)
	}
	return m
}

func (e *engine) call(b *testing.B, f api.Function) {
	b.Helper()
	if results, err := f.Call(b.Context()); err != nil || results[0] != 0 {
		b.Fatal(results, err)
	}
}
