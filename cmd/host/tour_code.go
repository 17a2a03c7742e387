package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/examples"
	"github.com/carrelhost/carrel/internal/scaffold"
)

// session chats on a WebSocket, which is a session.
func (t *tour) session(ctx context.Context) (err error) {
	t.title("A WebSocket is a session, and memory ends with it")
	if err := t.push(ctx, "websocket-chat"); err != nil {
		return err
	}
	s, err := t.c.Connect(ctx, client.SocketOptions{})
	if err != nil {
		return err
	}
	closed := false
	defer func() {
		if !closed {
			err = errors.Join(err, s.Close())
		}
	}()
	const method = "websocket-chat/com.acme.SocketChat.chat"
	t.say("   $ carrel chat %s", method)
	t.say("     session %s", s.Session)
	var last string
	for _, msg := range []string{"I live in Paris", "Where do I live?"} {
		t.say("     > %s", msg)
		call, err := s.Invoke(ctx, client.Frame{Method: method, Args: map[string]string{"msg": msg}})
		if err != nil {
			return err
		}
		var answer strings.Builder
		pieces := 0
		if _, err := client.Result(call.Events(ctx), func(delta string) { answer.WriteString(delta); pieces++ }); err != nil {
			return err
		}
		t.say("     %s   (streamed in %d pieces)", answer.String(), pieces)
		last = answer.String()
	}
	during, err := t.memory(ctx, "websocket-chat")
	if err != nil {
		return err
	}
	if err := check(len(during) == 1 && strings.HasPrefix(during[0].MemoryID, s.Session), "the default memory id is the session's"); err != nil {
		return err
	}
	closed = true
	if err := s.Close(); err != nil {
		return err
	}
	if err := t.gone(ctx, "websocket-chat"); err != nil {
		return err
	}
	t.say("   Both messages had the memory id %q. When the socket closed, its history ended.", during[0].MemoryID)
	return check(strings.Contains(last, "I live in Paris"), "the second message saw the first")
}

// gone waits until a plugin has no history left: a host evicts right after it
// has closed a socket, which the client cannot see.
func (t *tour) gone(ctx context.Context, plugin string) error {
	for {
		left, err := t.memory(ctx, plugin)
		if err != nil || len(left) == 0 {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// freshSandbox builds a plugin in Go, with the toolchain of this machine.
func (t *tour) freshSandbox(ctx context.Context) (err error) {
	t.title("A plugin with code: every call has a fresh sandbox")
	dir, err := os.MkdirTemp("", "carrel-demo-go-")
	if err != nil {
		return fmt.Errorf("scratch folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	project := filepath.Join(dir, "counter")
	if err := scaffold.New(project, "counter", scaffold.Go); err != nil {
		return err
	}
	source, err := examples.Files.ReadFile("counter/plugin.go")
	if err != nil {
		return fmt.Errorf("embedded example: %w", err)
	}
	if err := os.WriteFile(filepath.Join(project, "plugin.go"), source, 0o600); err != nil {
		return fmt.Errorf("write source: %w", err)
	}
	t.say("   $ carrel build     (examples/counter, with the local Go toolchain)")
	file, err := scaffold.Build(ctx, project)
	if missing, ok := errors.AsType[*scaffold.MissingTool](err); ok {
		t.say("     skipped: %v", missing)
		return nil
	}
	if err != nil {
		return err
	}
	wasm, err := os.ReadFile(file) //nolint:gosec // in our own folder
	if err != nil {
		return fmt.Errorf("read module: %w", err)
	}
	up, err := t.c.Upload(ctx, wasm, client.UploadOptions{})
	if err != nil {
		return err
	}
	t.say("   $ carrel push counter.wasm")
	t.say("     %s: version %d is active, a module of %d bytes", up.Plugin, up.Version.N, up.Version.Bytes)
	for range 2 {
		out, err := t.call(ctx, "counter/com.acme.Counter.count", nil)
		if err != nil {
			return err
		}
		if err := check(text(out.Output) == `{"calls":1}`, "the counter says 1"); err != nil {
			return err
		}
	}
	t.say("   The guest counts in a variable, and it is 1 each time: nothing that a call writes outlives it.")
	return nil
}
