package sandbox

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox/image"
	"github.com/carrelhost/carrel/host/sandbox/module"
	"github.com/carrelhost/carrel/host/sandbox/slots"
)

// code is the compiled code of modules that differ in their data at most. It
// is read-only and serves any number of instances; it must outlive them.
//
// Each has an engine runtime of its own. A runtime remembers every function
// type it has seen for as long as it lives, so one that all uploads shared
// would grow with each of them.
type code struct {
	digest       [sha256.Size]byte
	cache        wazero.CompilationCache // nil: the sandbox's
	runtime      wazero.Runtime
	compiled     wazero.CompiledModule
	compileFor   time.Duration
	machineBytes int64           // on disk; 0 if it is not there
	exports      map[string]bool // what Plugin.Call may name
	list         []string        // exports, sorted
	imports      []string
	has          map[string]bool // the exports that the host calls by itself
	refs         int             // guarded by Sandbox.mu

	bytes         int64 // of memory that it takes
	instanceBytes int64 // that the engine keeps for each instance
}

const (
	// guestStackBytes is what the guest's frames may take of the engine's stack.
	// A frame counts as a kilobyte or two mostly, so it is room for some eight
	// thousand Go functions that call each other; the engine's stack, which
	// is memory of the heap, is then less than twice as long.
	guestStackBytes = 16 << 20
	tableElements   = 65_536
	maxPages        = abi.MaxMemoryMiB << 20 / PageBytes
)

// rewriteOptions are the same for every module: options change the code, and
// equal code is compiled once. What a plugin may have less of is bounded when
// it runs.
func rewriteOptions() module.Options {
	return module.Options{StackBytes: guestStackBytes, TableMax: tableElements, MaxPages: maxPages}
}

// engineConfig is the one place that configures the engine, of this process
// and of those that compile for it. See cacheFormat when you change it.
func engineConfig(cache wazero.CompilationCache) wazero.RuntimeConfig {
	return wazero.NewRuntimeConfigCompiler().
		WithCoreFeatures(api.CoreFeaturesV2).
		WithMemoryLimitPages(maxPages).
		WithCompilationCache(cache).
		// Debug sections are an outsider's bytes, and their parser is not
		// made for hostile ones.
		WithDebugInfoEnabled(false)
}

// compile rewrites a module that passed Lint and returns its code with one
// reference more, which the caller gives back with release. It waits in q for
// a place, and for whoever compiles the same already. Its error is that of
// newCode.
func (s *Sandbox) compile(ctx context.Context, q queue, m *module.Module) (*code, *module.Rewritten, error) {
	leave, err := q.enter(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer func() { leave() }()
	q.stage(StageCompile)
	rewritten, err := rewrite(m)
	if err != nil {
		return nil, nil, err
	}
	digest := sha256.Sum256(rewritten.Code)
	for {
		c, others := s.claim(digest)
		if c != nil {
			return c, rewritten, nil
		}
		if others == nil {
			break
		}
		leave() // other modules need the place
		leave = func() {}
		q.stage = func(Stage) {} // it is compiled meanwhile
		select {
		case <-others:
		case <-ctx.Done():
		}
		if leave, err = q.enter(ctx); err != nil {
			leave = func() {}
			return nil, nil, err
		}
	}
	var c *code
	defer func() { s.claimed(digest, c) }()
	if c, err = s.newCode(ctx, digest, rewritten.Code); err == nil {
		c.weigh(m, rewritten)
	}
	return c, rewritten, err
}

// rewrite is module.Rewrite of a module that passed Lint. Rewrite believes Lint
// and decodes without bounds of its own; where Lint has a fault, the module is
// refused and the process lives.
func rewrite(m *module.Module) (out *module.Rewritten, err error) {
	defer func() {
		if r := recover(); r != nil {
			out, err = nil, &carrel.Error{Op: "sandbox.compile", Code: abi.InvalidModule,
				Msg: "the host cannot add its checks to this module", Err: fmt.Errorf("rewrite panicked: %v", r)}
		}
	}()
	return module.Rewrite(m, rewriteOptions())
}

// queue is where a compilation waits for a place. Shares take turns.
type queue struct {
	places *slots.Pool
	share  string
	stage  func(Stage) // told StageQueue if there is no place at once
}

// enter takes a place, once it is the share's turn, until leave.
func (q queue) enter(ctx context.Context) (leave func(), err error) {
	if err := q.places.Acquire(ctx, q.share, func() { q.stage(StageQueue) }); err != nil {
		return nil, ended(ctx, "wait for a compilation to end", err)
	}
	return func() { q.places.Release(q.share) }, nil
}

// claim returns the code of a digest with one reference more, or what is
// closed when whoever makes it has ended. With neither the caller makes it and
// says so with claimed, however that ends.
func (s *Sandbox) claim(digest [sha256.Size]byte) (c *code, others <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.codes[digest]; c != nil {
		c.refs++
		return c, nil
	}
	if others := s.making[digest]; others != nil {
		return nil, others
	}
	s.making[digest] = make(chan struct{})
	return nil, nil
}

// claimed ends a claim with the code, which gets its first reference, or with
// nil.
func (s *Sandbox) claimed(digest [sha256.Size]byte, c *code) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c != nil {
		c.refs = 1
		s.codes[digest] = c
	}
	close(s.making[digest])
	delete(s.making, digest)
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

// newCode returns the code of rewritten bytes: from the cache, else compiled
// in a child process, which ends with the context, else in this one, where it
// cannot be stopped. Its error is invalid_module for what the engine refuses,
// limit_exceeded with the limits of a child, overloaded, or the context's.
func (s *Sandbox) newCode(ctx context.Context, digest [sha256.Size]byte, wasm []byte) (c *code, err error) {
	start := time.Now()
	if s.files == nil {
		c, err = s.assemble(ctx, nil, wasm)
	} else {
		c, err = s.cachedCode(ctx, digest, wasm)
	}
	if err != nil {
		return nil, err
	}
	c.digest, c.compileFor = digest, time.Since(start)
	return c, nil
}

// load makes code with a directory of the cache, where the engine finds what
// it compiled before.
func (s *Sandbox) load(ctx context.Context, dir string, wasm []byte) (*code, error) {
	cache, err := wazero.NewCompilationCacheWithDir(dir)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNotLoaded, err)
	}
	return s.assemble(ctx, cache, wasm)
}

// assemble lets the engine compile, or load, and links. It takes over the
// cache, which is nil for that of the sandbox.
func (s *Sandbox) assemble(ctx context.Context, cache wazero.CompilationCache, wasm []byte) (made *code, err error) {
	ctx = context.WithoutCancel(ctx)
	c := &code{cache: cache, exports: map[string]bool{}, has: map[string]bool{}}
	defer func() {
		if v := recover(); v != nil { // as the engine does where the system gives it no memory
			if !noMemory(fmt.Sprint(v)) {
				panic(v)
			}
			err = noRoom(fmt.Errorf("%w: the engine panicked: %v", image.ErrNoRoom, v))
		}
		if err != nil {
			made, err = nil, also(err, c.close(ctx))
		}
	}()
	if cache == nil {
		cache = s.cache
	}
	c.runtime = wazero.NewRuntimeWithConfig(ctx, engineConfig(cache))
	err = s.link(ctx, c.runtime)
	if err == nil {
		err = c.compileModule(ctx, wasm)
		if e, ok := errors.AsType[*carrel.Error](err); ok && e.Err != nil && noMemory(e.Err.Error()) {
			err = noRoom(fmt.Errorf("%w: %w", image.ErrNoRoom, e.Err)) // which says nothing of the module
		}
	}
	if err == nil {
		err = c.readExports()
	}
	return c, err
}

// compileModule makes the machine code. Its error is invalid_module, or one of
// the files that the engine reads and writes: errNotKept or errNotLoaded.
func (c *code) compileModule(ctx context.Context, wasm []byte) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = &carrel.Error{Op: "sandbox.compile", Code: abi.InvalidModule,
				Msg: "the engine cannot compile this module", Err: fmt.Errorf("engine panicked: %v", r)}
		}
	}()
	c.compiled, err = c.runtime.CompileModule(ctx, wasm)
	switch {
	case err == nil:
		return nil
	case ofFiles(err):
		return fmt.Errorf("%w: %w", errNotKept, err)
	case strings.HasPrefix(err.Error(), "compilationcache: "): // the engine has no type for it
		return fmt.Errorf("%w: %w", errNotLoaded, err)
	}
	return &carrel.Error{Op: "sandbox.compile", Code: abi.InvalidModule,
		Msg: "the module is not valid: " + module.Printable(err.Error(), 500), Err: err}
}

// ofFiles reports whether the system refused to read or write a file.
func ofFiles(err error) bool {
	if _, ok := errors.AsType[*fs.PathError](err); ok {
		return true
	}
	_, ok := errors.AsType[*os.LinkError](err)
	return ok
}

// close releases the code. No instance of it may be alive.
func (c *code) close(ctx context.Context) error {
	var err error
	if c.compiled != nil {
		err = c.compiled.Close(ctx)
	}
	if c.runtime != nil {
		err = also(err, c.runtime.Close(ctx))
	}
	if c.cache != nil {
		err = also(err, c.cache.Close(ctx))
	}
	return err
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
