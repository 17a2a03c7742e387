package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/client"
)

// maxLine bounds one line that a person types.
const maxLine = 1 << 20

func newChatCommand(e env) *cobra.Command {
	n := connection{e: e}
	var memory, session string
	c := &cobra.Command{
		Use:   "chat ADDRESS [KEY=VALUE | KEY:=JSON]...",
		Short: "Chat with a service method over a WebSocket, line by line",
		Long: "Chat with a service method over a WebSocket: each line of stdin is a message,\n" +
			"and answers are shown as they come. The WebSocket is a session, which ends with\n" +
			"the input, and so does the memory that belongs to it; --session attaches to one\n" +
			"that goes on.",
		Example: "  carrel chat websocket-chat/com.acme.SocketChat.chat\n" +
			"  echo 'who am I?' | carrel chat nice-and-mean/com.acme.MyChat.chat --memory 42",
		Args: atLeast(1),
		RunE: func(c *cobra.Command, args []string) error {
			params, err := parseParams(args[1:])
			if err != nil {
				return err
			}
			cl, err := n.client()
			if err != nil {
				return err
			}
			t, err := newTalk(c.Context(), e, cl, args[0], params, memory)
			if err != nil {
				return err
			}
			return t.run(c.Context(), client.SocketOptions{Session: session})
		},
	}
	n.flags(c)
	f := c.Flags()
	f.Var(filled{&memory, "memory"}, "memory", "memory id, given as the param that the method names")
	f.Var(filled{&session, "session"}, "session", "HTTP session to attach to (carrel sessions open)")
	f.Var(filled{&n.subject, "subject"}, "subject", "the end user that the chat is for (the key must allow it)")
	return c
}

// talk is a conversation with one method.
type talk struct {
	e      env
	cl     *client.Client
	plugin carrel.PluginName
	method string
	params map[string]any // the same in every call
	line   string         // the param that a line becomes
	failed error          // of the last message that failed, which was shown
}

// newTalk finds out which param a line becomes: the only string param that is
// required and not given.
func newTalk(ctx context.Context, e env, cl *client.Client, address string, params map[string]any, memory string) (*talk, error) {
	a, version, err := parseAddress(address)
	if err != nil {
		return nil, err
	}
	m, err := cl.Describe(ctx, a, version)
	if err != nil {
		return nil, err
	}
	if memory != "" {
		if m.Memory.Param == "" {
			return nil, usageError{fmt.Errorf("%s takes no memory id", address)}
		}
		params[m.Memory.Param] = memory
	}
	schema, err := readSchema(m)
	if err != nil {
		return nil, err
	}
	schema.warnUnknown(e.stderr, params)
	var open []string
	for name, p := range schema.Properties {
		_, given := params[name]
		if p.Type == "string" && !given && slices.Contains(schema.Required, name) && name != m.Memory.Param {
			open = append(open, name)
		}
	}
	slices.Sort(open)
	_, hasMemory := params[m.Memory.Param]
	switch {
	case m.Memory.Required && !hasMemory:
		return nil, usageError{fmt.Errorf("%s needs a memory id: --memory ID", address)}
	case len(open) == 0:
		return nil, usageError{fmt.Errorf("%s has no required text param left that a line could become", address)}
	case len(open) > 1:
		return nil, usageError{fmt.Errorf("%s has several text params that a line could become (%s); give all but one as KEY=VALUE", address, strings.Join(open, ", "))}
	}
	return &talk{e, cl, a.Plugin, address, params, open[0], nil}, nil
}

// run sends each line and shows its answer, until the input or the socket
// ends. A message that fails does not end it, but what it failed with is the
// error of the whole.
func (t *talk) run(ctx context.Context, o client.SocketOptions) (err error) {
	s, err := t.cl.Connect(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	fmt.Fprintf(t.e.stderr, "session %s; an empty line or the end of input ends it\n", s.Session)
	lines := t.lines(ctx)
	for {
		if t.e.colour {
			fmt.Fprint(t.e.stderr, "> ")
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.Ended():
			return s.Err()
		case line, ok := <-lines:
			if !ok || line == "" {
				return t.failed
			}
			if err := t.say(ctx, s, line); err != nil {
				return err
			}
		}
	}
}

// lines reads stdin in a goroutine of its own, which a read that never returns
// may outlive: the process ends with it.
func (t *talk) lines(ctx context.Context) <-chan string {
	out := make(chan string)
	go func() {
		defer close(out)
		in := bufio.NewScanner(t.e.stdin)
		in.Buffer(nil, maxLine)
		for in.Scan() {
			select {
			case out <- strings.TrimSpace(in.Text()):
			case <-ctx.Done():
				return
			}
		}
		if err := in.Err(); err != nil {
			fmt.Fprintln(t.e.stderr, "carrel: read input:", err)
		}
	}()
	return out
}

func (t *talk) say(ctx context.Context, s *client.Socket, line string) error {
	args := map[string]any{t.line: line}
	for k, v := range t.params {
		args[k] = v
	}
	call, err := s.Invoke(ctx, client.Frame{Method: t.method, Args: args})
	if err != nil {
		return err
	}
	streamed := false
	out, err := client.Result(call.Events(ctx), func(delta string) {
		streamed = true
		fmt.Fprint(t.e.stdout, visible(delta))
	})
	if err != nil && streamed {
		fmt.Fprintln(t.e.stdout) // what was cut short is not the error's line
	}
	if _, refused := errors.AsType[*client.Problem](err); refused {
		fmt.Fprintln(t.e.stderr, "carrel:", textOf(withLog(ctx, t.cl, t.plugin, err)))
		t.failed = told{err}
		return nil
	}
	if err != nil {
		return err
	}
	if !streamed {
		fmt.Fprint(t.e.stdout, text(out.Output))
	}
	fmt.Fprintln(t.e.stdout)
	printEvicted(t.e.stderr, out.Evicted, out.EvictionPending)
	return nil
}
