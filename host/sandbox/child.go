package sandbox

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/tetratelabs/wazero"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox/module"
)

// Where a child leaves the code.
const (
	intoFiles  = "files"  // in its working directory
	intoNoFile = "memory" // nowhere: it shows that the module compiles within the limits
)

const (
	headBytes   = 8       // the length of the module, before it
	mostModule  = 1 << 30 // bytes that a child reads
	saidBytes   = 64 << 10
	stderrBytes = 16 << 10
	childFailed = 1 // exit code of a child that its own error ended, or whose parent is gone
	goCrashed   = 2 // exit code of a program in Go that panics, or whose runtime gives up
	pipesLinger = 5 * time.Second
)

// verdict is what a child reports on its stdout.
type verdict struct {
	Refused string `json:"refused,omitempty"` // why the module is invalid, for its author
	Cause   string `json:"cause,omitempty"`   // of Refused, for the operator
	NoFile  string `json:"noFile,omitempty"`  // it compiled, but why it could not be written
	Unable  string `json:"unable,omitempty"`  // why this process could compile nothing at all, for the operator
}

// CompileChild is the work of the process that Config.CompileCommand starts:
// it compiles one module from stdin and reports to stdout. args are what the
// sandbox added to the command. The process is its own: it is limited for
// good, and it ends when its parent does. It returns nil when the report is
// written, also one of what keeps this process from compiling anything. After an
// error the command exits with 1. Of those that end without a report, only what
// ends as a panic does, with 2 or by a signal, tells something of the module.
func CompileChild(ctx context.Context, args []string, stdin io.Reader, stdout io.Writer) error {
	if len(args) != 3 || args[0] != intoFiles && args[0] != intoNoFile {
		return errors.New("sandbox: this command is the host's own: it compiles a module from stdin")
	}
	memory, err := strconv.ParseInt(args[1], 10, 64)
	if err != nil {
		return fmt.Errorf("sandbox: bytes of memory: %w", err)
	}
	cpu, err := time.ParseDuration(args[2])
	if err != nil {
		return fmt.Errorf("sandbox: time on the CPU: %w", err)
	}
	if err := limitProcess(memory, cpu); err != nil {
		return json.NewEncoder(stdout).Encode(verdict{Unable: "limits of the process: " + err.Error()})
	}
	debug.SetMemoryLimit(memory / 4 * 3) // it rather collects more often than fails
	wasm, err := receive(stdin)
	if err != nil {
		return err
	}
	go func() { // it ends with the process
		_, _ = stdin.Read(make([]byte, 1))
		os.Exit(childFailed)
	}()
	v, err := compileAlone(ctx, args[0], wasm)
	if err != nil {
		return err
	}
	return json.NewEncoder(stdout).Encode(v)
}

func receive(stdin io.Reader) ([]byte, error) {
	var head [headBytes]byte
	if _, err := io.ReadFull(stdin, head[:]); err != nil {
		return nil, fmt.Errorf("sandbox: read the module: %w", err)
	}
	size := binary.LittleEndian.Uint64(head[:])
	if size > mostModule {
		return nil, fmt.Errorf("sandbox: a module of %d bytes", size)
	}
	wasm := make([]byte, size)
	if _, err := io.ReadFull(stdin, wasm); err != nil {
		return nil, fmt.Errorf("sandbox: read the module: %w", err)
	}
	return wasm, nil
}

// compileAlone compiles a module as the parent would, and keeps nothing but
// the file.
func compileAlone(ctx context.Context, into string, wasm []byte) (verdict, error) {
	cache := wazero.NewCompilationCache()
	if into == intoFiles {
		var err error
		if cache, err = wazero.NewCompilationCacheWithDir("."); err != nil {
			return verdict{NoFile: err.Error()}, nil //nolint:nilerr // it is the report
		}
	}
	c := code{runtime: wazero.NewRuntimeWithConfig(ctx, engineConfig(cache))}
	err := c.compileModule(ctx, wasm)
	var v verdict
	if e, ok := errors.AsType[*carrel.Error](err); ok {
		v.Refused = e.Msg
		if e.Err != nil {
			v.Cause = e.Err.Error()
		}
	} else if errors.Is(err, errNotKept) {
		v.NoFile = err.Error()
	} else if err != nil {
		return v, err
	}
	return v, errors.Join(c.close(ctx), cache.Close(ctx))
}

// childCompiles compiles a module in a child process that works in dir, or
// only finds out whether that can be done, if dir is "". The process has ended
// when it returns. Its error is the module's, errNotKept if there is no room
// for the file, limit_exceeded with the limits sandbox.compileTime and
// sandbox.compileMemory, overloaded, internal for what keeps the process from
// its work, or the context's.
func (s *Sandbox) childCompiles(ctx context.Context, dir string, wasm []byte) error {
	limited, stop := context.WithTimeout(ctx, s.cfg.CompileWall)
	defer stop()
	into := intoFiles
	if dir == "" {
		into, dir = intoNoFile, os.TempDir()
	}
	name, args := s.cfg.CompileCommand[0], s.cfg.CompileCommand[1:]
	args = append(append([]string{os.Args[0]}, args...), into, strconv.FormatInt(s.cfg.CompileMemory, 10), s.cfg.CompileCPU.String())
	said, trouble := &bounded{most: saidBytes}, &bounded{most: stderrBytes}
	cmd := exec.CommandContext(limited, name) //nolint:gosec // the operator's command
	// The program is this one: it keeps its name, whatever path leads to it.
	cmd.Args = args
	cmd.Env, cmd.Dir, cmd.WaitDelay = []string{}, dir, pipesLinger
	cmd.Stdout, cmd.Stderr = said, trouble
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		if ctx.Err() != nil {
			return ended(ctx, "compile", ctx.Err())
		}
		return &carrel.Error{Op: "sandbox.compile", Code: abi.Overloaded, Msg: "the host cannot start a compilation; try again", Err: err}
	}
	go func() { // it ends when the child has read all or is gone
		head := binary.LittleEndian.AppendUint64(nil, uint64(len(wasm)))
		if _, err := in.Write(head); err == nil {
			_, _ = in.Write(wasm)
		}
		// It stays open: its end tells the child that its parent is gone.
	}()
	err = cmd.Wait()
	var v verdict
	if err == nil {
		if err = json.Unmarshal(said.Bytes(), &v); err == nil {
			return s.judge(v)
		}
		err = fmt.Errorf("it ended without a report: %w", err)
	}
	switch {
	case ctx.Err() != nil:
		return ended(ctx, "compile", ctx.Err())
	case limited.Err() != nil:
		return s.tooLong(s.cfg.CompileWall.String())
	}
	return s.crash(cmd.ProcessState, trouble.String(), err)
}

// judge makes an error of what a child reported.
func (s *Sandbox) judge(v verdict) error {
	switch {
	case v.Unable != "":
		return unable(errors.New(v.Unable))
	case noMemory(v.Cause):
		return s.tooLarge()
	case v.Refused != "":
		return &carrel.Error{Op: "sandbox.compile", Code: abi.InvalidModule, Msg: v.Refused, Err: errors.New(v.Cause)}
	case v.NoFile != "":
		return fmt.Errorf("%w: %s", errNotKept, v.NoFile)
	}
	return nil
}

// crash says what it means that a child ended without a report.
func (s *Sandbox) crash(p *os.ProcessState, trouble string, err error) error {
	first, _, _ := strings.Cut(strings.TrimSpace(trouble), "\n")
	cause := fmt.Errorf("the compiler's process: %w: %s", err, module.Printable(first, 500))
	switch {
	// The system ends it when its limit is reached, as anybody could. It counts
	// for the limit by the tick, and what it reports may be far less.
	case killed(p) && p.UserTime()+p.SystemTime() >= s.cfg.CompileCPU/2:
		return s.tooLong(s.cfg.CompileCPU.String() + " on the CPU")
	case noMemory(trouble), peakBytes(p) > s.cfg.CompileMemory/2: // some of the runtime crashes without a word
		return s.tooLarge()
	case killed(p):
		return &carrel.Error{Op: "sandbox.compile", Code: abi.Overloaded,
			Msg: "the compilation was killed from outside, perhaps because the machine has too little memory; try again", Err: cause}
	case p.Exited() && p.ExitCode() != goCrashed:
		return unable(cause)
	}
	return &carrel.Error{Op: "sandbox.compile", Code: abi.InvalidModule,
		Msg: "the engine cannot compile this module: its compiler crashed", Err: cause}
}

// unable is the error when a process that is to compile fails for a reason of
// its own, which would be the same for any module.
func unable(cause error) error {
	return &carrel.Error{Op: "sandbox.compile", Code: abi.Internal,
		Msg: "the host cannot compile modules; its operator finds the reason in the log", Err: cause}
}

func (s *Sandbox) tooLong(most string) error {
	return carrel.FailLimit("sandbox.compile", abi.LimitExceeded, "sandbox.compileTime", fmt.Sprintf(
		"the module takes longer than %s to compile (limit sandbox.compileTime): make it smaller, or split its largest functions", most))
}

func (s *Sandbox) tooLarge() error {
	return carrel.FailLimit("sandbox.compile", abi.LimitExceeded, "sandbox.compileMemory", fmt.Sprintf(
		"the module takes more than %d MiB of memory to compile (limit sandbox.compileMemory): make it smaller, or split its largest functions",
		s.cfg.CompileMemory>>20))
}

// noMemory recognises what the runtime and the engine say when the system
// gives them no memory.
func noMemory(text string) bool {
	return strings.Contains(text, "out of memory") || strings.Contains(text, "cannot allocate memory") ||
		strings.Contains(text, "failed to reserve") || strings.Contains(text, "pthread_create failed")
}

// bounded keeps the beginning of what is written to it.
type bounded struct {
	most int
	kept []byte
}

// Write never fails: the writer must not notice.
func (b *bounded) Write(p []byte) (int, error) {
	b.kept = append(b.kept, p[:min(len(p), b.most-len(b.kept))]...)
	return len(p), nil
}

func (b *bounded) Bytes() []byte  { return b.kept }
func (b *bounded) String() string { return string(b.kept) }
