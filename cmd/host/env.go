package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"golang.org/x/term"
)

// env is everything that a command may touch outside its arguments.
type env struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	vars           map[string]string // environment variables
	colour         bool              // stdout is a terminal that takes colours
	live           bool              // stderr is a terminal on which a line can be written anew
	program        string            // starts this program once more; empty: nothing does
}

// processEnv is the environment of this process.
func processEnv() env {
	vars := map[string]string{}
	for _, kv := range os.Environ() {
		if name, value, ok := strings.Cut(kv, "="); ok {
			vars[name] = value
		}
	}
	return env{
		stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, vars: vars,
		colour:  term.IsTerminal(int(os.Stdout.Fd())) && wantsColour(vars),
		live:    term.IsTerminal(int(os.Stderr.Fd())) && vars["TERM"] != "dumb",
		program: thisProgram(),
	}
}

// thisProgram returns a path that starts this program once more. Where the
// system has one that leads to the program that runs, also after its file was
// replaced, it is that.
func thisProgram() string {
	const running = "/proc/self/exe"
	if _, err := os.Stat(running); err == nil {
		return running
	}
	path, err := os.Executable()
	if err != nil {
		return "" // whoever needs it says what follows
	}
	return path
}

// wantsColour reports whether the environment lets a terminal have colours.
func wantsColour(vars map[string]string) bool {
	return vars["NO_COLOR"] == "" && vars["TERM"] != "dumb"
}

func (e env) getenv(name string) string { return e.vars[name] }

// untilSignal returns a context that ends at the first SIGINT or SIGTERM. The
// second one ends the process at once, as it would without us.
func untilSignal(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(parent, os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}
