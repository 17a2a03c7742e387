package sandbox

import (
	"context"
	"crypto/sha256"
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

// code is the compiled code of modules that differ in their data at most. It
// is read-only and serves any number of instances; it must outlive them.
//
// Each has an engine runtime of its own. A runtime remembers every function
// type it has seen for as long as it lives, so one that all uploads shared
// would grow with each of them.
type code struct {
	digest     [sha256.Size]byte
	runtime    wazero.Runtime
	compiled   wazero.CompiledModule
	compileFor time.Duration
	exports    map[string]bool // what Plugin.Call may name
	list       []string        // exports, sorted
	imports    []string
	has        map[string]bool // the exports that the host calls by itself
	refs       int             // guarded by Sandbox.mu
}

const (
	// stackBytes is what the guest's frames may take of the engine's stack. A
	// frame counts as about a kilobyte at least, so it is room for some ten
	// thousand Go functions that call each other; the engine's stack, which
	// is memory of the heap, is then less than twice as long.
	guestStackBytes = 24 << 20
	tableElements   = 65_536
	maxPages        = abi.MaxMemoryMiB << 20 / PageBytes
)

// rewriteOptions are the same for every module: options change the code, and
// equal code is compiled once. What a plugin may have less of is bounded when
// it runs.
func rewriteOptions() module.Options {
	return module.Options{StackBytes: guestStackBytes, TableMax: tableElements, MaxPages: maxPages}
}

// engineConfig is the one place that configures the engine.
func (s *Sandbox) engineConfig() wazero.RuntimeConfig {
	return wazero.NewRuntimeConfigCompiler().
		WithCoreFeatures(api.CoreFeaturesV2).
		WithMemoryLimitPages(maxPages).
		WithCompilationCache(s.cache).
		// Debug sections are an outsider's bytes, and their parser is not
		// made for hostile ones.
		WithDebugInfoEnabled(false)
}

// compile rewrites a module that passed Lint and returns its code with one
// reference more, which the caller gives back with release. It waits for one
// of places and cannot be stopped once it has one.
func (s *Sandbox) compile(ctx context.Context, places chan struct{}, m *module.Module) (*code, *module.Rewritten, error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, ended(ctx, "compile", err)
	}
	select {
	case places <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, ended(ctx, "wait for a compilation to end", ctx.Err())
	}
	defer func() { <-places }()
	ctx = context.WithoutCancel(ctx)
	rewritten, err := module.Rewrite(m, rewriteOptions())
	if err != nil {
		return nil, nil, err
	}
	digest := sha256.Sum256(rewritten.Code)
	if c := s.codeOf(digest, nil); c != nil {
		return c, rewritten, nil
	}
	mine, err := s.newCode(ctx, digest, rewritten.Code)
	if err != nil {
		return nil, nil, err
	}
	// Somebody else may have compiled the same meanwhile: theirs is kept.
	c := s.codeOf(digest, mine)
	if c != mine {
		err = mine.close(ctx)
	}
	if err != nil {
		return nil, nil, also(err, s.release(ctx, c))
	}
	return c, rewritten, nil
}

// codeOf returns the code of a digest with one reference more, fresh if there
// is none yet.
func (s *Sandbox) codeOf(digest [sha256.Size]byte, fresh *code) *code {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.codes[digest]
	if c == nil && fresh != nil {
		c = fresh
		s.codes[digest] = c
	}
	if c != nil {
		c.refs++
	}
	return c
}

// release gives a reference back, and the code with the last one.
func (s *Sandbox) release(ctx context.Context, c *code) error {
	s.mu.Lock()
	c.refs--
	last := c.refs == 0
	if last {
		delete(s.codes, c.digest)
	}
	s.mu.Unlock()
	if !last {
		return nil
	}
	return c.close(context.WithoutCancel(ctx))
}

func (s *Sandbox) newCode(ctx context.Context, digest [sha256.Size]byte, wasm []byte) (*code, error) {
	c := &code{
		digest:  digest,
		runtime: wazero.NewRuntimeWithConfig(ctx, s.engineConfig()),
		exports: map[string]bool{},
		has:     map[string]bool{},
	}
	err := s.link(ctx, c.runtime)
	if err == nil {
		start := time.Now()
		err = c.compileModule(ctx, wasm)
		c.compileFor = time.Since(start)
	}
	if err == nil {
		err = c.readExports()
	}
	if err != nil {
		return nil, also(err, c.close(ctx))
	}
	return c, nil
}

func (c *code) compileModule(ctx context.Context, wasm []byte) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = &carrel.Error{Op: "sandbox.compile", Code: abi.InvalidModule,
				Msg: "the engine cannot compile this module", Err: fmt.Errorf("engine panicked: %v", r)}
		}
	}()
	if c.compiled, err = c.runtime.CompileModule(ctx, wasm); err != nil {
		return &carrel.Error{Op: "sandbox.compile", Code: abi.InvalidModule,
			Msg: "the module is not valid: " + module.Printable(err.Error(), 500), Err: err}
	}
	return nil
}

// close releases the code. No instance of it may be alive.
func (c *code) close(ctx context.Context) error {
	var err error
	if c.compiled != nil {
		err = c.compiled.Close(ctx)
	}
	return also(err, c.runtime.Close(ctx))
}

// readExports sorts out what can be called and judges what the host calls.
func (c *code) readExports() error {
	for _, f := range c.compiled.ImportedFunctions() {
		if mod, name, _ := f.Import(); mod != module.HostModule {
			c.imports = append(c.imports, mod+"."+name)
		}
	}
	functions := c.compiled.ExportedFunctions()
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
		c.has[name] = true
	}
	if _, command := functions["_start"]; command && !c.has[abi.InitializeExport] {
		return carrel.Fail("sandbox.compile", abi.InvalidModule,
			"this is a command (it exports _start): build a reactor, which exports _initialize and its functions, "+
				"for example with -buildmode=c-shared in Go or -mexec-model=reactor in clang")
	}
	for name, f := range functions {
		if !c.has[name] && len(f.ParamTypes()) == 0 && slices.Equal(f.ResultTypes(), []api.ValueType{api.ValueTypeI32}) {
			c.exports[name] = true
			c.list = append(c.list, name)
		}
	}
	slices.Sort(c.list)
	return nil
}
