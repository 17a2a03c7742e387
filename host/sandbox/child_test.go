package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox"
	"github.com/carrelhost/carrel/host/sandbox/module"
	"github.com/carrelhost/carrel/host/sandbox/wasmtest"
	"github.com/carrelhost/carrel/internal/testproc"
)

// Arguments that make the test binary a process that compiles, one that crashes
// like a compiler with a fault, or one whose starts are counted.
const (
	compileArg = "compile-guest"
	crashArg   = "crash-guest"
	countArg   = "count-guest" // and compiles, once it has written to the file that follows
)

func TestMain(m *testing.M) {
	if cases, ok := os.LookupEnv(heldEnv); ok {
		showHeld(strings.Split(cases, "\n"))
		return
	}
	if len(os.Args) > 1 {
		args := os.Args[2:]
		switch os.Args[1] {
		case countArg:
			if err := oneMore(args[0]); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			args = args[1:]
			fallthrough
		case compileArg:
			if err := sandbox.CompileChild(context.Background(), args, os.Stdin, os.Stdout); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			return
		case crashArg:
			panic("the compiler has a fault")
		}
	}
	os.Exit(m.Run())
}

// oneMore makes a file longer by one byte.
func oneMore(file string) error {
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write([]byte{'.'})
	return errors.Join(err, f.Close())
}

// inChildren is a configuration with a new cache, that compiles in children.
func inChildren(t *testing.T) sandbox.Config {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	limits := module.DefaultLimits()
	// Else what is slow to compile never reaches the compiler.
	for _, sum := range []*int{&limits.SumWeight, &limits.SumLocalsBlocks, &limits.SumBlocksSquared, &limits.SumJumpsSquared, &limits.SumLocals} {
		*sum = 1 << 50
	}
	return sandbox.Config{
		Module: limits, CompileCommand: []string{self, compileArg}, CacheDir: filepath.Join(t.TempDir(), "code"),
	}
}

// slowModule takes a fraction of a second to compile for each of times.
func slowModule(times int) []byte {
	m := wasmtest.New()
	m.Memory(1)
	for range times {
		f := m.Func(nil, nil).Locals(400, wasmtest.I64)
		for range 400 {
			f.Block().Const(0).BrIf(0)
		}
		for range 400 {
			f.End()
		}
	}
	m.Method("run").Const(0)
	return m.Bytes()
}

func TestAChildKeepsLowerLimitsOfItsHost(t *testing.T) {
	if !sandbox.LimitsChildren {
		t.Skip("children are not limited here")
	}
	cfg := inChildren(t)
	cfg.CompileCommand = append([]string{"/bin/sh", "-c", `ulimit -t 1 && exec "$0" "$@"`}, cfg.CompileCommand...)
	s := newSandbox(t, cfg)
	_, err := s.Admit(t.Context(), sandbox.Candidate{Module: slowModule(1000)})
	if carrel.CodeOf(err) != abi.Overloaded {
		t.Errorf("a module that takes longer than the system gives the host: %v", err)
	}
	if _, err := s.Admit(t.Context(), sandbox.Candidate{Module: counter().Bytes()}); err != nil {
		t.Errorf("one that does not: %v", err)
	}
}

func TestAChildCompilesWhatThisProcessThenRuns(t *testing.T) {
	cfg := inChildren(t)
	s := newSandbox(t, cfg)
	p := open(t, s, counter().Bytes())
	if _, err := p.Call(t.Context(), sandbox.Call{Export: "run"}); err != nil {
		t.Fatal(err)
	}
	if got := entries(t, cfg.CacheDir); len(got) != 1 {
		t.Errorf("the cache holds %q", got)
	}
}

func TestTheEnginesErrorsPassThroughAChild(t *testing.T) {
	m := wasmtest.New()
	m.Method("run").Const64(0) // the method's result is an i32
	_, want := newSandbox(t, sandbox.Config{}).Admit(t.Context(), sandbox.Candidate{Module: m.Bytes()})
	wantCode(t, want, abi.InvalidModule)
	cfg := inChildren(t)
	_, got := newSandbox(t, cfg).Admit(t.Context(), sandbox.Candidate{Module: m.Bytes()})
	if got == nil || got.Error() != want.Error() {
		t.Errorf("got %v\nwant %v", got, want)
	}
	if left := entries(t, cfg.CacheDir); len(left) > 0 {
		t.Errorf("the cache holds %q", left)
	}
}

func TestWhatExceedsTheLimitsOfAChildIsRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*sandbox.Config)
		limit  string
	}{
		"it computes too long": {func(c *sandbox.Config) { c.CompileCPU = time.Second }, "sandbox.compileTime"},
		"it takes too long":    {func(c *sandbox.Config) { c.CompileWall = slowness * time.Second }, "sandbox.compileTime"},
		"it takes too much":    {func(c *sandbox.Config) { c.CompileMemory = 1 << 20 }, "sandbox.compileMemory"},
	} {
		t.Run(name, func(t *testing.T) {
			if !sandbox.LimitsChildren && name != "it takes too long" {
				t.Skip("this system has no such limit")
			}
			if slowness > 1 && tc.limit == "sandbox.compileMemory" {
				t.Skip("the race detector reserves all address space beforehand")
			}
			cfg := inChildren(t)
			tc.change(&cfg)
			s := newSandbox(t, cfg)
			start := time.Now()
			_, err := s.Admit(t.Context(), sandbox.Candidate{Module: slowModule(1000)})
			t.Logf("it took %v: %v", time.Since(start), err)
			wantCode(t, err, abi.LimitExceeded)
			if e := asError(t, err); e.Limit != tc.limit || !strings.Contains(e.Msg, tc.limit) {
				t.Errorf("it names %q: %s", e.Limit, e.Msg)
			}
			if _, err := s.Admit(t.Context(), sandbox.Candidate{Module: counter().Bytes()}); err != nil && tc.limit == "sandbox.compileTime" {
				t.Errorf("the next module: %v", err)
			}
			if left := leftovers(t, cfg.CacheDir); len(left) > 0 {
				t.Errorf("left in the cache: %q", left)
			}
		})
	}
}

// begun returns when a child has a directory to compile into.
func begun(t *testing.T, dir string, done <-chan error) {
	t.Helper()
	for len(leftovers(t, dir)) == 0 {
		select {
		case err := <-done:
			t.Fatalf("no compilation was seen before its end: %v", err)
		default:
		}
	}
}

func TestTheEndOfAContextEndsTheChild(t *testing.T) {
	cfg := inChildren(t)
	s := newSandbox(t, cfg)
	stop := errors.New("the client went away")
	ctx, end := context.WithCancelCause(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := s.Admit(ctx, sandbox.Candidate{Module: slowModule(1000)})
		done <- err
	}()
	begun(t, cfg.CacheDir, done)
	start := time.Now()
	end(stop)
	err := <-done
	if d := time.Since(start); d > slowness*time.Second {
		t.Errorf("it ended %v after its context", d)
	}
	if !errors.Is(err, stop) || !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
	if left := leftovers(t, cfg.CacheDir); len(left) > 0 {
		t.Errorf("left in the cache: %q", left)
	}
}

func TestClosingTheSandboxEndsItsChildren(t *testing.T) {
	cfg := inChildren(t)
	s, err := sandbox.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := s.Admit(context.WithoutCancel(t.Context()), sandbox.Candidate{Module: slowModule(1000)})
		done <- err
	}()
	begun(t, cfg.CacheDir, done)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	wantCode(t, <-done, abi.Draining)
}

func TestACompilerThatCrashesRefusesTheModule(t *testing.T) {
	cfg := inChildren(t)
	cfg.CompileCommand[1] = crashArg
	_, err := newSandbox(t, cfg).Admit(t.Context(), sandbox.Candidate{Module: counter().Bytes()})
	wantCode(t, err, abi.InvalidModule)
	if !strings.Contains(err.Error(), "the compiler has a fault") || strings.Contains(asError(t, err).Msg, "fault") {
		t.Errorf("the operator is told %v, the author %q", err, asError(t, err).Msg)
	}
}

func TestACompilerThatCannotStartIsNotTheModulesFault(t *testing.T) {
	cfg := inChildren(t)
	cfg.CompileCommand[0] = filepath.Join(t.TempDir(), "nothing")
	_, err := newSandbox(t, cfg).Admit(t.Context(), sandbox.Candidate{Module: counter().Bytes()})
	wantCode(t, err, abi.Overloaded)
}

// TestACompilerThatFailsForItsOwnReasonIsNotTheModulesFault has processes that
// end by themselves before they have seen the module.
func TestACompilerThatFailsForItsOwnReasonIsNotTheModulesFault(t *testing.T) {
	for name, tc := range map[string]struct{ script, tells string }{
		"it returns an error":        {`exec "$0" "$1" "$2" much "$4"`, `parsing "much"`},
		"it does nothing":            {`exit 0`, "without a report"},
		"it says something else":     {`echo hello`, "without a report"},
		"it is not there any more":   {`exec "$0.gone"`, "exit status 12"}, // 126 or 127, as the shell likes
		"it is one that is no child": {`exec "$0" "$1"`, "the host's own"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := inChildren(t)
			cfg.CompileCommand = append([]string{"/bin/sh", "-c", tc.script}, cfg.CompileCommand...)
			_, err := newSandbox(t, cfg).Admit(t.Context(), sandbox.Candidate{Module: counter().Bytes()})
			wantUnable(t, err, tc.tells)
			if left := leftovers(t, cfg.CacheDir); len(left) > 0 {
				t.Errorf("left in the cache: %q", left)
			}
		})
	}
}

// wantUnable fails the test unless the error is the host's and tells its
// operator what it is, but nobody else.
func wantUnable(t *testing.T, err error, tells string) {
	t.Helper()
	wantCode(t, err, abi.Internal)
	if !strings.Contains(err.Error(), tells) || strings.Contains(err.Error(), "%!") || strings.Contains(asError(t, err).Msg, tells) {
		t.Errorf("the operator is told %v, the author %q", err, asError(t, err).Msg)
	}
}

// TestEqualModulesAreCompiledOnceAtATime has several shares admit one module,
// so that more than one of them has a place to compile.
func TestEqualModulesAreCompiledOnceAtATime(t *testing.T) {
	cfg := inChildren(t)
	starts := filepath.Join(t.TempDir(), "starts")
	cfg.CompileCommand = []string{cfg.CompileCommand[0], countArg, starts}
	var mu sync.Mutex
	var warned []string
	cfg.Log = slog.New(slog.NewTextHandler(writer(func(p []byte) {
		mu.Lock()
		defer mu.Unlock()
		warned = append(warned, string(p))
	}), nil))
	s := newSandbox(t, cfg)
	release := sandbox.OccupyAdmissions(s)
	var all sync.WaitGroup
	wasm := slowModule(1)
	for i := range 8 {
		share := strconv.Itoa(i)
		all.Go(func() {
			if _, err := s.Admit(t.Context(), sandbox.Candidate{Module: wasm, Share: share}); err != nil {
				t.Error(err)
			}
		})
		testproc.Until(t, "another to wait", func() bool { _, waiting := sandbox.Admissions(s).Of(share); return waiting == 1 })
	}
	release()
	all.Wait()
	if b, err := os.ReadFile(starts); err != nil || len(b) != 1 {
		t.Errorf("a compiler was started %d times, %v", len(b), err)
	}
	if len(warned) > 0 {
		t.Errorf("the log says %q", warned)
	}
}

func TestACompilerNeedsSomewhereToPutTheCode(t *testing.T) {
	cfg := inChildren(t)
	cfg.CacheDir = ""
	if _, err := sandbox.New(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "CacheDir") {
		t.Errorf("got %v", err)
	}
}

func TestOnlyASandboxStartsChildren(t *testing.T) {
	for name, args := range map[string][]string{
		"no arguments":             {},
		"nowhere to put the code":  {"elsewhere", "1", "1s"},
		"a limit that is no bytes": {"files", "much", "1s"},
		"a limit that is no time":  {"files", "1", "long"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := sandbox.CompileChild(t.Context(), args, strings.NewReader(""), os.Stdout); err == nil {
				t.Error("it compiled")
			}
		})
	}
}

// writer is a function as an io.Writer.
type writer func([]byte)

func (w writer) Write(p []byte) (int, error) {
	w(p)
	return len(p), nil
}
