package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path"
	"path/filepath"
	"strings"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/examples"
	"github.com/carrelhost/carrel/plugins/pack"
)

// tour walks through a host and says what happens. Each step checks what it
// claims, so that a demo that ends well is also true.
type tour struct {
	e       env
	c       *client.Client
	program string // the path of this binary; may be empty
	step    int
}

// serveLine starts a host. What `go run` made is gone when it ends.
func serveLine(program string) string {
	if strings.Contains(program, string(filepath.Separator)+"go-build") {
		return "go build -o carrel ./cmd/host && ./carrel serve"
	}
	return "carrel serve"
}

func (t *tour) say(format string, args ...any) { fmt.Fprintf(t.e.stdout, format+"\n", args...) }

func (t *tour) title(text string) {
	t.step++
	if t.e.colour {
		t.say("\n\x1b[1m%d. %s\x1b[0m", t.step, text)
		return
	}
	t.say("\n%d. %s", t.step, text)
}

// walk runs every step.
func (t *tour) walk(ctx context.Context) error {
	for _, step := range []func(context.Context) error{
		t.oneSystemMessage, t.defaultID, t.ownDefaultID, t.smallestScope, t.window, t.leak,
		t.session, t.deactivation, t.freshSandbox,
	} {
		if err := step(ctx); err != nil {
			return fmt.Errorf("demo, step %d: %w", t.step, err)
		}
	}
	t.say("\nThat was the tour. Next: `%s`, and the README's curl lines.", serveLine(t.program))
	return nil
}

// push packs an example and uploads it.
func (t *tour) push(ctx context.Context, name string) error {
	file := path.Join(name, name+".md")
	src, err := examples.Files.ReadFile(file)
	if err != nil {
		return fmt.Errorf("embedded example: %w", err)
	}
	wasm, _, err := pack.Prompt(path.Base(file), src)
	if err != nil && carrel.CodeOf(err) != abi.DefaultIDLeak { // the host's to refuse
		return err
	}
	up, err := t.c.Upload(ctx, wasm, client.UploadOptions{})
	if err != nil {
		return err
	}
	t.say("   $ carrel push examples/%s", file)
	t.say("     %s: version %d is active", up.Plugin, up.Version.N)
	return nil
}

// call calls a method and shows the answer and what became of the memory.
func (t *tour) call(ctx context.Context, address string, h http.Header, args ...string) (client.Invocation, error) {
	a, err := carrel.ParseAddress(address)
	if err != nil {
		return client.Invocation{}, err
	}
	params, err := parseParams(args)
	if err != nil {
		return client.Invocation{}, err
	}
	line := address
	for name, values := range h {
		line += fmt.Sprintf(" -H '%s: %s'", name, values[0])
	}
	for _, arg := range args {
		if strings.Contains(arg, " ") {
			arg = "'" + arg + "'"
		}
		line += " " + arg
	}
	t.say("   $ carrel call %s", line)
	out, err := t.c.Invoke(ctx, a, "", params, client.CallOptions{Header: h})
	if err != nil {
		return out, err
	}
	t.say("     %s", text(out.Output))
	if out.MemoryID != "" {
		t.say("     memory id %q", out.MemoryID)
	}
	for _, e := range out.Evicted {
		t.say("     ended with the request: %q, %d messages", e.MemoryID, e.Messages)
	}
	return out, nil
}

// memory returns the histories of a plugin.
func (t *tour) memory(ctx context.Context, plugin string) ([]client.Memory, error) {
	return listMemories(ctx, t.c, client.MemoryFilter{Plugin: plugin})
}

// showMemory prints the only history of a plugin.
func (t *tour) showMemory(ctx context.Context, plugin string) ([]client.Message, error) {
	all, err := t.memory(ctx, plugin)
	if err != nil {
		return nil, err
	}
	if len(all) != 1 {
		return nil, fmt.Errorf("%s has %d histories, not one", plugin, len(all))
	}
	page, err := t.c.Messages(ctx, all[0].Key, client.ListOptions{})
	if err != nil {
		return nil, err
	}
	t.say("   $ carrel memory show %s/%s", plugin, all[0].MemoryID)
	for _, m := range page.Data {
		t.say("     %-9s  %s", m.Role, m.Content)
	}
	return page.Data, nil
}

// check is a claim of the tour.
func check(holds bool, claim string) error {
	if !holds {
		return errors.New("this does not hold: " + claim)
	}
	return nil
}

// code is a problem's code, or OK for another error.
func code(err error) abi.Code {
	if p, ok := errors.AsType[*client.Problem](err); ok {
		c, _ := abi.ParseCode(p.Code)
		return c
	}
	return abi.OK
}
