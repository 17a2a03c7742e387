package sandbox

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox/module"
)

// programKey names a program: equal bytes with equal memory run as one.
type programKey struct {
	digest    [sha256.Size]byte
	memoryMiB int
}

// program is a compiled module. It is read-only and serves any number of
// instances; it must outlive them.
//
// Each has an engine runtime of its own. A runtime remembers every function
// type it has seen for as long as it lives, so one that all uploads shared
// would grow with each of them. Machine code is shared through the cache:
// equal bytes with another memory size are compiled once.
type program struct {
	key        programKey
	runtime    wazero.Runtime
	compiled   wazero.CompiledModule
	compileFor time.Duration
	exports    map[string]bool // what Plugin.Call may name
	list       []string        // exports, sorted
	imports    []string
	has        map[string]bool // the exports that the host calls by itself
	refs       int             // plugins that use it; guarded by Sandbox.mu
}

// engineConfig is the one place that configures the engine.
func (s *Sandbox) engineConfig(memoryMiB int) wazero.RuntimeConfig {
	return wazero.NewRuntimeConfigCompiler().
		WithCoreFeatures(api.CoreFeaturesV2).
		WithMemoryLimitPages(uint32(memoryMiB) << 20 / PageBytes).
		WithCompilationCache(s.cache).
		WithCloseOnContextDone(true).
		// Debug sections are an outsider's bytes, and their parser is not
		// made for hostile ones.
		WithDebugInfoEnabled(false)
}

// compile makes a program of a module that passed Lint. It waits for one of
// places and cannot be stopped once it has one. The caller
// closes the program.
func (s *Sandbox) compile(ctx context.Context, places chan struct{}, wasm []byte, memoryMiB int) (*program, error) {
	if err := ctx.Err(); err != nil {
		return nil, ended(ctx, "compile", err)
	}
	select {
	case places <- struct{}{}:
	case <-ctx.Done():
		return nil, ended(ctx, "wait for a compilation to end", ctx.Err())
	}
	defer func() { <-places }()
	ctx = context.WithoutCancel(ctx)
	p := &program{
		key:     programKey{sha256.Sum256(wasm), memoryMiB},
		runtime: wazero.NewRuntimeWithConfig(ctx, s.engineConfig(memoryMiB)),
		exports: map[string]bool{},
		has:     map[string]bool{},
	}
	err := s.link(ctx, p.runtime)
	if err == nil {
		start := time.Now()
		err = p.compileModule(ctx, wasm)
		p.compileFor = time.Since(start)
	}
	if err == nil {
		err = p.readExports()
	}
	if err != nil {
		return nil, also(err, p.close(ctx))
	}
	return p, nil
}

func (p *program) compileModule(ctx context.Context, wasm []byte) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = &carrel.Error{Op: "sandbox.compile", Code: abi.InvalidModule,
				Msg: "the engine cannot compile this module", Err: fmt.Errorf("engine panicked: %v", r)}
		}
	}()
	if p.compiled, err = p.runtime.CompileModule(ctx, wasm); err != nil {
		return &carrel.Error{Op: "sandbox.compile", Code: abi.InvalidModule,
			Msg: "the module is not valid: " + module.Printable(err.Error(), 500), Err: err}
	}
	return nil
}

// close releases the program. No instance of it may be alive.
func (p *program) close(ctx context.Context) error {
	var err error
	if p.compiled != nil {
		err = p.compiled.Close(ctx)
	}
	return also(err, p.runtime.Close(ctx))
}

// also adds a failure to close to an error, which stays as it is without one:
// callers look at its type.
func also(err, closing error) error {
	switch {
	case closing == nil:
		return err
	case err == nil:
		return fmt.Errorf("sandbox: close a program: %w", closing)
	default:
		return errors.Join(err, closing)
	}
}

// readExports sorts out what can be called and judges what the host calls.
func (p *program) readExports() error {
	for _, f := range p.compiled.ImportedFunctions() {
		mod, name, _ := f.Import()
		p.imports = append(p.imports, mod+"."+name)
	}
	functions := p.compiled.ExportedFunctions()
	for name, want := range map[string][]api.ValueType{
		abi.InitializeExport: nil,
		abi.WakeExport:       {api.ValueTypeI32},
		abi.DescribeExport:   {api.ValueTypeI32},
	} {
		f, ok := functions[name]
		if !ok {
			continue
		}
		if len(f.ParamTypes()) != 0 || !slices.Equal(f.ResultTypes(), want) {
			return carrel.Fail("sandbox.compile", abi.InvalidModule, fmt.Sprintf(
				"the export %s has another signature than %s", name, "() -> ("+strings.Repeat("i32", len(want))+")"))
		}
		p.has[name] = true
	}
	if _, command := functions["_start"]; command && !p.has[abi.InitializeExport] {
		return carrel.Fail("sandbox.compile", abi.InvalidModule,
			"this is a command (it exports _start): build a reactor, which exports _initialize and its functions, "+
				"for example with -buildmode=c-shared in Go or -mexec-model=reactor in clang")
	}
	for name, f := range functions {
		if !p.has[name] && len(f.ParamTypes()) == 0 && slices.Equal(f.ResultTypes(), []api.ValueType{api.ValueTypeI32}) {
			p.exports[name] = true
			p.list = append(p.list, name)
		}
	}
	slices.Sort(p.list)
	return nil
}
