// Command memory measures chat memory as a host keeps it, beside what others
// do with the same SQLite: `make bench-memory`. It prints a table, and writes
// it to the file that -out names.
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
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// bench is one run.
type bench struct {
	dir  string        // scratch space, on the disk that is measured
	time time.Duration // of each measurement that repeats something
	rows []row
}

// row is a line of the table.
type row struct{ what, carrel, peer, ratio, goal string }

func (b *bench) add(what, carrel, peer, ratio, goal string) {
	b.rows = append(b.rows, row{what, carrel, peer, ratio, goal})
	fmt.Fprintf(os.Stderr, "%s: %s | %s | %s\n", what, carrel, peer, ratio)
}

func main() {
	out := flag.String("out", "", "file that the table is written to as well")
	each := flag.Duration("time", 5*time.Second, "how long each repeated measurement takes")
	dir := flag.String("dir", "", "where scratch data goes; empty = the system's folder for it")
	flag.Parse()
	if err := run(context.Background(), *out, *dir, *each); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out, dir string, each time.Duration) (err error) {
	scratch, err := os.MkdirTemp(dir, "carrel-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	b := &bench{dir: scratch, time: each}
	for _, part := range []func(context.Context) error{b.turns, b.longHistory, b.closeScope, b.sessions, b.startUp} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	var page bytes.Buffer
	b.print(ctx, &page)
	if out != "" {
		if err := os.WriteFile(out, page.Bytes(), 0o644); err != nil { //nolint:gosec // a table for everybody
			return err
		}
	}
	_, err = page.WriteTo(os.Stdout)
	return err
}

func (b *bench) print(ctx context.Context, w io.Writer) {
	commit, err := exec.CommandContext(ctx, "git", "rev-parse", "--short", "HEAD").Output()
	if err != nil {
		commit = []byte("unknown")
	}
	fmt.Fprintf(w, "# Chat memory\n\n`make bench-memory`, commit %s, %s, %d CPUs, %s/%s, SQLite with WAL and synchronous=FULL throughout.\n\n",
		strings.TrimSpace(string(commit)), runtime.Version(), runtime.NumCPU(), runtime.GOOS, runtime.GOARCH)
	fmt.Fprintf(w, "Peers, in the same run on the same disk: **pool** is a transaction for each write, from a pool of connections; "+
		"**list** keeps a history as one value that is read and written whole, which is what LangChain4j's `ChatMemoryStore` asks of a store.\n\n")
	fmt.Fprintln(w, "| what | Carrel | peer | ratio | goal |\n|---|---|---|---|---|")
	for _, r := range b.rows {
		fmt.Fprintf(w, "| %s | %s | %s | %s | %s |\n", r.what, r.carrel, r.peer, r.ratio, r.goal)
	}
}

// path returns a new file in a folder of its own.
func (b *bench) path(name string) (string, error) {
	dir, err := os.MkdirTemp(b.dir, name+"-")
	return filepath.Join(dir, "carrel.db"), err
}
