package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/carrelhost/carrel/host/model/modeltest"
)

// patience is how long a script waits for what should be there at once.
const patience = 2 * time.Minute

type stageKey struct{}

// stage is what runs beside one script.
type stage struct {
	processes map[string]*process
	held      map[string]*held // by the process whose compiler it is
	model     *modeltest.Server
}

func stageOf(ts *testscript.TestScript) *stage { return ts.Value(stageKey{}).(*stage) }

// close ends what a script that failed left running.
func (s *stage) close() {
	if s.model != nil {
		s.model.Close()
	}
	for _, p := range s.processes {
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
}

// process is a command in the background.
type process struct {
	cmd            *exec.Cmd
	stdout, stderr *watched
	ended          chan struct{}
	err            error // of Wait; to be read when ended is closed
}

// watched keeps what is written to it, and closes found when a line matches.
type watched struct {
	pattern *regexp.Regexp
	once    *sync.Once // one for both outputs of a process
	found   chan struct{}

	mu  sync.Mutex // guards buf
	buf bytes.Buffer
}

func (w *watched) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.buf.Write(p)
	if w.pattern.Match(w.buf.Bytes()) {
		w.once.Do(func() { close(w.found) })
	}
	return len(p), nil
}

func (w *watched) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buf.String()
}

func cmdStart(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: start NAME PATTERN CMD ARGS...")
	}
	// The script's variables have no other way out of the library.
	ts.Check(ts.Exec("env"))
	environ := strings.Split(ts.ReadFile("stdout"), "\n")
	path, err := exec.LookPath(args[2])
	ts.Check(err)
	once, found := new(sync.Once), make(chan struct{})
	pattern, err := regexp.Compile("(?m)" + args[1])
	ts.Check(err)
	p := &process{
		cmd:    exec.Command(path, args[3:]...),
		stdout: &watched{pattern: pattern, once: once, found: found},
		stderr: &watched{pattern: pattern, once: once, found: found},
		ended:  make(chan struct{}),
	}
	p.cmd.Env, p.cmd.Dir = environ, ts.MkAbs(".")
	p.cmd.Stdout, p.cmd.Stderr = p.stdout, p.stderr
	ts.Check(p.cmd.Start())
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	stageOf(ts).processes[args[0]] = p
	if args[1] == "" {
		return
	}
	why := "ended first"
	select {
	case <-found:
		return
	case <-p.ended:
	case <-time.After(patience):
		why = "takes too long"
	}
	ts.Fatalf("%s %s; it said:\n%s%s", args[0], why, p.stdout, p.stderr)
}

func cmdEnd(ts *testscript.TestScript, neg bool, args []string) {
	signals := map[string]os.Signal{"INT": os.Interrupt, "TERM": syscall.SIGTERM, "KILL": syscall.SIGKILL}
	if neg || len(args) != 3 || signals[args[1]] == nil {
		ts.Fatalf("usage: end NAME INT|TERM|KILL CODE (-1: killed)")
	}
	p, ok := stageOf(ts).processes[args[0]]
	if !ok {
		ts.Fatalf("there is no process %s", args[0])
	}
	ts.Check(p.cmd.Process.Signal(signals[args[1]]))
	select {
	case <-p.ended:
	case <-time.After(patience):
		ts.Fatalf("%s does not end; it said:\n%s%s", args[0], p.stdout, p.stderr)
	}
	delete(stageOf(ts).processes, args[0])
	fmt.Fprint(ts.Stdout(), p.stdout)
	fmt.Fprint(ts.Stderr(), p.stderr)
	wantExit(ts, p.err, args[2])
}

func cmdSaid(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 || stageOf(ts).processes[args[0]] == nil {
		ts.Fatalf("usage: said NAME")
	}
	p := stageOf(ts).processes[args[0]]
	fmt.Fprint(ts.Stdout(), p.stdout)
	fmt.Fprint(ts.Stderr(), p.stderr)
}

func cmdExits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE CMD ARGS...")
	}
	wantExit(ts, ts.Exec(args[1], args[2:]...), args[0])
}

// wantExit fails the script unless err is that of a command with this exit
// code.
func wantExit(ts *testscript.TestScript, err error, want string) {
	code := 0
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		code = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if strconv.Itoa(code) != want {
		ts.Fatalf("exit code %d, want %s", code, want)
	}
}

func cmdModel(ts *testscript.TestScript, neg bool, args []string) {
	s := stageOf(ts)
	if len(args) == 0 && !neg {
		var err error
		s.model, err = modeltest.Start()
		ts.Check(err)
		ts.Setenv("MODEL_URL", s.model.BaseURL)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	switch n := number(args); {
	case args[0] == "hold":
		s.model.Hold()
	case args[0] == "fail":
		s.model.FailNext(400, `{"error":{"message":"no"}}`)
	case args[0] == "arrived" && n > 0:
		ts.Check(s.model.Arrived(ctx, n))
	case args[0] == "gone" && n > 0:
		ts.Check(s.model.Gone(ctx, n))
	default:
		ts.Fatalf("usage: model [hold | fail | arrived N | gone N]")
	}
}

// number is the second argument; 0 if it is no number.
func number(args []string) int {
	if len(args) != 2 {
		return 0
	}
	n, err := strconv.Atoi(args[1])
	if err != nil {
		return 0
	}
	return n
}
