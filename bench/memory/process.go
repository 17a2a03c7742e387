package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/store"
	"github.com/carrelhost/carrel/store/sqlite"
)

// process is a host in a process of its own.
type process struct {
	cmd    *exec.Cmd
	base   string
	took   time.Duration // from the start of the process until it listened
	client *client.Client
}

// serve starts a host on a data directory.
func (b *bench) serve(ctx context.Context, data string) (*process, error) {
	program := filepath.Join(b.dir, "carrel")
	if _, err := os.Stat(program); err != nil {
		build := exec.CommandContext(ctx, "go", "build", "-o", program, "github.com/carrelhost/carrel/cmd/host") //nolint:gosec // a path of our own
		if out, err := build.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("build: %w: %s", err, out)
		}
	}
	p := &process{cmd: exec.CommandContext(ctx, program, "serve")} //nolint:gosec // it was just built
	p.cmd.Env = []string{"HOME=" + data, "CARREL_DATA=" + data, "CARREL_LISTEN=127.0.0.1:0"}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if base, ok := strings.CutPrefix(lines.Text(), "carrel listens on "); ok {
			p.base, p.took = base, time.Since(begin)
			break
		}
	}
	if p.base == "" {
		return nil, fmt.Errorf("the host did not start: %w", p.cmd.Wait())
	}
	go func() {
		for lines.Scan() { // so that the pipe never fills
			continue
		}
	}()
	key, err := os.ReadFile(filepath.Join(data, "owner.key")) //nolint:gosec // a folder of our own
	p.client = &client.Client{Base: p.base, Key: strings.TrimSpace(string(key))}
	return p, err
}

func (p *process) end() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	return p.cmd.Wait()
}

// resident returns the bytes of memory that the process occupies.
func (p *process) resident() (int64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, fmt.Errorf("read the memory of the process (Linux only): %w", err)
	}
	for line := range strings.Lines(string(status)) {
		if kib, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			n, err := strconv.ParseInt(strings.Fields(kib)[0], 10, 64)
			return n << 10, err
		}
	}
	return 0, fmt.Errorf("the system does not say how much memory process %d has", p.cmd.Process.Pid)
}

// sessions opens many HTTP sessions and sees what they cost.
func (b *bench) sessions(ctx context.Context) error {
	const sessions = 10_000
	data := filepath.Join(b.dir, "sessions")
	p, err := b.serve(ctx, data)
	if err != nil {
		return err
	}
	// A few requests first, so that what the first ones cost is not counted.
	open := func(int) error {
		_, err := p.client.OpenSession(ctx, client.NewSession{})
		return err
	}
	const before = 500
	if err := each(8, before, open); err != nil {
		return err
	}
	base, err := p.resident()
	if err != nil {
		return err
	}
	begin := time.Now()
	if err := each(8, sessions-before, open); err != nil {
		return err
	}
	took := time.Since(begin)
	after, err := p.resident()
	if err != nil {
		return err
	}
	if err := p.end(); err != nil {
		return err
	}
	disk, err := os.Stat(filepath.Join(data, "carrel.db"))
	if err != nil {
		return err
	}
	b.add("10,000 open HTTP sessions", fmt.Sprintf("%d bytes of memory each (growth of the whole process), %d bytes of disk each; opened at %.0f/s",
		max(0, after-base)/(sessions-before), disk.Size()/sessions, (sessions-before)/took.Seconds()), "", "", "")
	return nil
}

// startUp starts a host on an empty database and on a large one.
func (b *bench) startUp(ctx context.Context) error {
	const histories, messages = 10_000, 100
	empty, full := filepath.Join(b.dir, "empty"), filepath.Join(b.dir, "full")
	for _, data := range []string{empty, full} { // made by the host itself
		p, err := b.serve(ctx, data)
		if err != nil {
			return err
		}
		if err := p.end(); err != nil {
			return err
		}
	}
	path := filepath.Join(full, "carrel.db")
	s, err := sqlite.Open(ctx, sqlite.Config{Path: path})
	if err != nil {
		return err
	}
	if err := s.CreateTenant(ctx, store.Tenant{ID: tenant, CreatedAt: time.Now()}); err != nil {
		return err
	}
	in, err := lasting(ctx, s, "ses")
	if err != nil {
		return err
	}
	if err := each(64, histories, func(n int) error { return fill(ctx, s, in, fmt.Sprint("start-", n), messages) }); err != nil {
		return err
	}
	if err := s.Close(); err != nil {
		return err
	}
	size, err := os.Stat(path)
	if err != nil {
		return err
	}
	times := map[string][]time.Duration{}
	for range 5 {
		for name, data := range map[string]string{"short": empty, "long": full} {
			p, err := b.serve(ctx, data)
			if err != nil {
				return err
			}
			times[name] = append(times[name], p.took)
			if err := p.end(); err != nil {
				return err
			}
		}
	}
	b.add(fmt.Sprintf("start of a host with 1,000,000 messages stored (%d MB), against an empty one", size.Size()>>20),
		fmt.Sprintf("%s against %s", milliseconds(median(times["long"])), milliseconds(median(times["short"]))), "",
		fmt.Sprintf("%.2f ×", ratio(times)), "ready in < 2 s")
	return nil
}
