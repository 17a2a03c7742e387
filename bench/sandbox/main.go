// Command sandbox measures what a guest with fresh state costs in a Carrel
// host, beside what others do with the same guests: `make bench-sandbox`. It
// prints a table, and writes it to the file that -out names.
//
// Everything runs on this machine and ends by itself. Figures of one run are
// to be compared with each other, and not with those of another machine.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
)

// bench is one run.
type bench struct {
	dir     string        // scratch space
	root    string        // of the host's module
	time    time.Duration // of each measurement that repeats something
	plugins int           // that are loaded at once
	guests  guests
	rows    []row
}

// row is a line of the table.
type row struct{ what, carrel, peer, ratio, goal string }

func (b *bench) add(what, carrel, peer, ratio, goal string) {
	b.rows = append(b.rows, row{what, carrel, peer, ratio, goal})
	fmt.Fprintf(os.Stderr, "%s: %s | %s | %s\n", what, carrel, peer, ratio)
}

// longestRun ends a run that hangs, and the processes that it started.
const longestRun = 10 * time.Minute

func main() {
	out := flag.String("out", "", "file that the table is written to as well")
	each := flag.Duration("time", 2*time.Second, "how long each repeated measurement takes")
	dir := flag.String("dir", "", "where scratch data goes; empty = the system's folder for it")
	plugins := flag.Int("plugins", 1000, "how many plugins are loaded at once, at most 1000")
	hostile := flag.String("hostile", "", "run this guest in this process, and no benchmark: how the benchmark calls itself")
	engine := flag.String("engine", "", "what runs the hostile guest")
	flag.Parse()
	ctx := context.Background()
	var err error
	if *hostile != "" {
		err = attack(ctx, *engine, *hostile, os.Stdout)
	} else {
		err = run(ctx, *out, *dir, *each, *plugins)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out, dir string, each time.Duration, plugins int) (err error) {
	ctx, cancel := context.WithTimeout(ctx, longestRun)
	defer cancel()
	scratch, err := os.MkdirTemp(dir, "carrel-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/carrelhost/carrel").Output()
	if err != nil {
		return fmt.Errorf("find the host's module, which needs the folder bench/sandbox to be the working directory: %w", err)
	}
	b := &bench{dir: scratch, root: strings.TrimSpace(string(root)), time: each, plugins: plugins}
	if b.guests, err = b.build(ctx); err != nil {
		return err
	}
	for _, part := range []func(context.Context) error{b.noop, b.json, b.http, b.hostile, b.loaded, b.uploads} {
		if err := part(ctx); err != nil {
			return err
		}
		debug.FreeOSMemory() // what a part has left is no load of the next
	}
	var page bytes.Buffer
	b.print(ctx, &page)
	text := page.Bytes()
	if _, err := os.Stdout.Write(text); err != nil || out == "" {
		return err
	}
	return os.WriteFile(out, text, 0o644) //nolint:gosec // a table for everybody
}

func (b *bench) print(ctx context.Context, w io.Writer) {
	commit, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty").Output()
	if err != nil {
		commit = []byte("unknown")
	}
	fmt.Fprintf(w, "# Sandbox\n\n`make bench-sandbox`, commit %s, %s, %d CPUs, %s/%s, Extism go-sdk %s, wazero %s.\n\n",
		strings.TrimSpace(string(commit)), runtime.Version(), runtime.NumCPU(), runtime.GOOS, runtime.GOARCH,
		version("github.com/extism/go-sdk"), version("github.com/tetratelabs/wazero"))
	fmt.Fprintln(w, "Peers, in the same run: **wazero** is the plain engine, with one instance for all calls (live) or one for each (fresh), "+
		"and nothing that would stop a guest, unless the row says so; **Extism** is its go-sdk, which compiles once, likewise; "+
		"**Echo** is a handler of the HTTP library that the host uses. How to read it: bench/README.md.")
	fmt.Fprintln(w, "\n| what | Carrel | peer | ratio | goal |\n|---|---|---|---|---|")
	for _, r := range b.rows {
		fmt.Fprintf(w, "| %s | %s | %s | %s | %s |\n", r.what, r.carrel, r.peer, r.ratio, r.goal)
	}
}

// version returns the version of a module in this program.
func version(path string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, m := range info.Deps {
		if m.Path == path {
			return m.Version
		}
	}
	return "unknown"
}
