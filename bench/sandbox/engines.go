package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	extism "github.com/extism/go-sdk"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox"
)

// callTimeout is the deadline of calls that come nowhere near it. A host sets
// one for each call, so the sandbox has it here too.
const callTimeout = time.Minute

// sandboxed is a module in the host's sandbox.
type sandboxed struct {
	sandbox *sandbox.Sandbox
	plugin  *sandbox.Plugin
	report  sandbox.Report
}

// openSandboxed admits and opens a module, as a host does. warmup is nil
// without one.
func openSandboxed(ctx context.Context, wasm []byte, warmup *sandbox.Warmup) (s sandboxed, err error) {
	setup := sandbox.Setup{Warmup: warmup}
	if s.sandbox, err = sandbox.New(ctx, sandbox.Config{}); err != nil {
		return s, err
	}
	s.report, err = s.sandbox.Admit(ctx, sandbox.Candidate{
		Module: wasm, Plan: func(sandbox.Report) (sandbox.Setup, error) { return setup, nil },
	})
	if err == nil && warmup != nil && !s.report.Warmup.Kept {
		err = fmt.Errorf("the warm-up was left out: %w", s.report.Warmup.Err)
	}
	if err == nil {
		s.plugin, err = s.sandbox.Open(ctx, wasm, setup)
	}
	if err != nil {
		return s, errors.Join(err, s.sandbox.Close())
	}
	return s, nil
}

func (s sandboxed) call(ctx context.Context, export string, input []byte) ([]byte, error) {
	r, err := s.plugin.Call(ctx, sandbox.Call{Export: export, Input: input, Share: "bench", Limit: callTimeout})
	return r.Output, err
}

func (s sandboxed) close() error { return s.sandbox.Close() }

// exchange is what one call of a plain instance reads and writes.
type exchange struct{ input, output []byte }

// plain is a module in the engine as it comes.
type plain struct {
	runtime  wazero.Runtime
	compiled wazero.CompiledModule
	io       *exchange // of the call that runs; there is one at a time
	live     api.Module
}

// openPlain compiles a module. stoppable has the engine look at the context
// wherever it can.
func openPlain(ctx context.Context, wasm []byte, stoppable bool) (p plain, err error) {
	cfg := wazero.NewRuntimeConfigCompiler().WithCloseOnContextDone(stoppable).
		WithMemoryLimitPages(abi.DefaultMemoryMiB << 20 / sandbox.PageBytes)
	p = plain{runtime: wazero.NewRuntimeWithConfig(ctx, cfg), io: new(exchange)}
	if err = p.link(ctx); err == nil {
		if p.compiled, err = p.runtime.CompileModule(ctx, wasm); err == nil {
			p.live, err = p.instance(ctx)
		}
	}
	if err != nil {
		return p, errors.Join(err, p.close(ctx))
	}
	return p, nil
}

// link provides what the Go guest imports: WASI, and of carrel/v1 its input
// and its output.
func (p plain) link(ctx context.Context) error {
	if _, err := wasi_snapshot_preview1.Instantiate(ctx, p.runtime); err != nil {
		return err
	}
	i32 := api.ValueTypeI32
	_, err := p.runtime.NewHostModuleBuilder(abi.Module).
		NewFunctionBuilder().WithGoFunction(api.GoFunc(func(_ context.Context, stack []uint64) {
		stack[0] = uint64(len(p.io.input))
	}), nil, []api.ValueType{i32}).Export("input_len").
		NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(func(_ context.Context, m api.Module, stack []uint64) {
		from := min(int(uint32(stack[1])), len(p.io.input))
		part := p.io.input[from:min(len(p.io.input), from+int(uint32(stack[2])))]
		if !m.Memory().Write(uint32(stack[0]), part) {
			panic("input_read out of bounds")
		}
		stack[0] = uint64(len(part))
	}), []api.ValueType{i32, i32, i32}, []api.ValueType{i32}).Export("input_read").
		NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(func(_ context.Context, m api.Module, stack []uint64) {
		part, ok := m.Memory().Read(uint32(stack[0]), uint32(stack[1]))
		if !ok {
			panic("output_write out of bounds")
		}
		p.io.output = append(p.io.output, part...)
		stack[0] = uint64(len(part))
	}), []api.ValueType{i32, i32}, []api.ValueType{i32}).Export("output_write").
		Instantiate(ctx)
	return err
}

func (p plain) instance(ctx context.Context) (api.Module, error) {
	return p.runtime.InstantiateModule(ctx, p.compiled, wazero.NewModuleConfig().WithName("").WithStartFunctions(abi.InitializeExport))
}

// caller returns the live instance's export, which is looked up once.
func (p plain) caller(export string) func(context.Context, []byte) ([]byte, error) {
	f := p.live.ExportedFunction(export)
	return func(ctx context.Context, input []byte) ([]byte, error) { return p.use(ctx, f, input) }
}

// fresh calls the export of an instance that is made for this.
func (p plain) fresh(ctx context.Context, export string, input []byte) (_ []byte, err error) {
	m, err := p.instance(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.Close(context.WithoutCancel(ctx))) }()
	return p.use(ctx, m.ExportedFunction(export), input)
}

func (p plain) use(ctx context.Context, f api.Function, input []byte) ([]byte, error) {
	*p.io = exchange{input: input}
	results, err := f.Call(ctx)
	if err != nil {
		return nil, err
	}
	if results[0] != 0 {
		return nil, fmt.Errorf("the guest returned %d", int32(results[0]))
	}
	return p.io.output, nil
}

func (p plain) close(ctx context.Context) error { return p.runtime.Close(ctx) }

// pdk is a module in Extism's SDK.
type pdk struct{ compiled *extism.CompiledPlugin }

// openPDK compiles a module. A timeout, in milliseconds, makes its calls
// stoppable; 0 does not.
func openPDK(ctx context.Context, wasm []byte, timeout uint64) (pdk, error) {
	compiled, err := extism.NewCompiledPlugin(ctx, extism.Manifest{
		Wasm: []extism.Wasm{extism.WasmData{Data: wasm}}, Timeout: timeout,
	}, extism.PluginConfig{EnableWasi: true}, nil)
	return pdk{compiled}, err
}

func (p pdk) instance(ctx context.Context) (*extism.Plugin, error) {
	return p.compiled.Instance(ctx, extism.PluginInstanceConfig{})
}

func (p pdk) fresh(ctx context.Context, input []byte) (_ []byte, err error) {
	m, err := p.instance(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.CloseWithContext(ctx)) }()
	return useExtism(ctx, m, input)
}

func useExtism(ctx context.Context, m *extism.Plugin, input []byte) ([]byte, error) {
	code, out, err := m.CallWithContext(ctx, total, input)
	if err == nil && code != 0 {
		err = fmt.Errorf("the guest returned %d", code)
	}
	return out, err
}

func (p pdk) close(ctx context.Context) error { return p.compiled.Close(ctx) }
