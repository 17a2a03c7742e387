package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/client"
)

// process is a host in a process of its own.
type process struct {
	cmd    *exec.Cmd
	client *client.Client
}

// serve builds the host if that is still to be done, and starts it on a new
// data directory.
func (b *bench) serve(ctx context.Context) (*process, error) {
	program := filepath.Join(b.dir, "carrel")
	if _, err := os.Stat(program); err != nil {
		build := exec.CommandContext(ctx, "go", "build", "-o", program, "./cmd/host") //nolint:gosec // a path of our own
		build.Dir = b.root
		if out, err := build.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("build the host: %w: %s", err, out)
		}
	}
	data, err := os.MkdirTemp(b.dir, "data-")
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.CommandContext(ctx, program, "serve")} //nolint:gosec // it was just built
	p.cmd.Env = []string{
		"HOME=" + data, "CARREL_DATA=" + data, "CARREL_LISTEN=127.0.0.1:0", "CARREL_OWNER_KEY=" + ownerKey,
		fmt.Sprintf("CARREL_LIMITS_LOADED_VERSIONS=%d", b.plugins+1),
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if base, ok := strings.CutPrefix(lines.Text(), "carrel listens on "); ok {
			p.client = &client.Client{Base: base, Key: ownerKey}
			break
		}
	}
	if p.client == nil {
		return nil, fmt.Errorf("the host did not start: %w", p.cmd.Wait())
	}
	go func() {
		for lines.Scan() { // so that the pipe never fills
			continue
		}
	}()
	return p, nil
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

// call calls a method of a plugin once.
func (p *process) call(ctx context.Context, plugin, method string, args any) error {
	_, err := p.client.Invoke(ctx, carrel.Address{
		Plugin: carrel.PluginName(plugin), Service: service, Method: carrel.MethodName(method),
	}, "", args, client.CallOptions{})
	return err
}

// loaders is how many plugins are uploaded at once: as many as a host admits.
const loaders = 4

// loaded uploads many plugins, none with the code of another, calls each once
// and sees what they cost together.
func (b *bench) loaded(ctx context.Context) (err error) {
	p, err := b.serve(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.end()) }()
	before, err := p.resident()
	if err != nil {
		return err
	}
	begin := time.Now()
	numbers, failed := make(chan int), make(chan error, loaders)
	var all sync.WaitGroup
	for range loaders {
		all.Go(func() {
			var failure error
			for n := range numbers {
				if failure == nil { // else whoever feeds it must not hang
					failure = p.load(ctx, n)
				}
			}
			failed <- failure
		})
	}
	for n := range b.plugins {
		numbers <- n
	}
	close(numbers)
	all.Wait()
	took := time.Since(begin)
	for range loaders {
		if err := <-failed; err != nil {
			return err
		}
	}
	after, err := p.resident()
	if err != nil {
		return err
	}
	b.add(fmt.Sprintf("%d C-like plugins loaded, each called once", b.plugins),
		fmt.Sprintf("%d KiB each of the whole process; it grew by %d KiB each; uploaded at %.0f/s",
			after>>10/int64(b.plugins), (after-before)>>10/int64(b.plugins), float64(b.plugins)/took.Seconds()),
		"", "", "≤ 300 KiB of the whole process")
	return nil
}

func (p *process) load(ctx context.Context, n int) error {
	name := fmt.Sprintf("small%d", n)
	whole, err := withManifest(small(int32(n)), name, "", noop)
	if err != nil {
		return err
	}
	if _, err := p.client.Upload(ctx, whole, client.UploadOptions{}); err != nil {
		return fmt.Errorf("upload %s: %w", name, err)
	}
	return p.call(ctx, name, noop, struct{}{})
}

// uploads measures how long it takes until a Go plugin is active, in a host
// that has never seen its code, and until its first call is answered.
func (b *bench) uploads(ctx context.Context) error {
	const times = 3
	var active, answered []time.Duration
	for range times {
		p, err := b.serve(ctx)
		if err != nil {
			return err
		}
		until, whole, err := b.upload(ctx, p)
		if err = errors.Join(err, p.end()); err != nil {
			return err
		}
		active, answered = append(active, until), append(answered, whole)
	}
	b.add(fmt.Sprintf("upload a Go plugin of %.1f MB to a host that has never seen its code, until it is active", float64(len(b.guests.golang))/1e6),
		fmt.Sprintf("%.2f s; %.2f s until its first call was answered", median(active).Seconds(), median(answered).Seconds()), "", "", "≤ 3 s")
	return nil
}

func (b *bench) upload(ctx context.Context, p *process) (active, answered time.Duration, err error) {
	whole, err := withManifest(b.guests.golang, goPlugin, "", total)
	if err != nil {
		return 0, 0, err
	}
	begin := time.Now()
	up, err := p.client.Upload(ctx, whole, client.UploadOptions{})
	if err != nil {
		return 0, 0, err
	}
	active = time.Since(begin)
	if up.Plugin != goPlugin {
		return 0, 0, fmt.Errorf("the host calls the plugin %q", up.Plugin)
	}
	err = p.call(ctx, goPlugin, total, map[string]any{"name": "first", "items": []float64{1, 2, 3}})
	return active, time.Since(begin), err
}
