package testenv

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"testing"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/client"
)

// Events are an invocation's events as they come. They are for one goroutine.
type Events struct {
	t    testing.TB
	next func() (client.Event, error, bool)
	stop func()
}

// Watch reads a sequence of events until the test's end.
func Watch(t testing.TB, seq iter.Seq2[client.Event, error]) *Events {
	next, stop := iter.Pull2(seq)
	t.Cleanup(stop)
	return &Events{t, next, stop}
}

// Next waits for the next event, which must come.
func (e *Events) Next() client.Event {
	e.t.Helper()
	event, err, ok := e.next()
	if err != nil || !ok {
		e.t.Fatalf("there is no further event: %v", err)
	}
	return event
}

// Rest waits for all events that are left, to the end.
func (e *Events) Rest() []client.Event {
	e.t.Helper()
	var all []client.Event
	for {
		event, err, ok := e.next()
		if err != nil {
			e.t.Fatalf("after %v: %v", Show(all), err)
		}
		if !ok {
			return all
		}
		all = append(all, event)
	}
}

// Err waits for the error that the next must be.
func (e *Events) Err() error {
	e.t.Helper()
	event, err, _ := e.next()
	if err == nil {
		e.t.Fatalf("instead of an error came %v", Show([]client.Event{event}))
	}
	return err
}

// Leave goes away.
func (e *Events) Leave() { e.stop() }

// Show returns events in a compact form: number, type, and what counts of it,
// as in "2 response.output_text.delta Hel".
func Show(events []client.Event) []string {
	out := []string{}
	for _, e := range events {
		s := fmt.Sprintf("%d %s", e.Sequence, e.Type)
		switch {
		case e.Delta != "":
			s += " " + e.Delta
		case e.Text != nil:
			s += " " + *e.Text
		case e.Error != nil:
			s += " " + e.Error.Code
		case e.Response != nil:
			s += " " + e.Response.Status
		case len(e.Evicted) > 0:
			s += fmt.Sprintf(" %d", len(e.Evicted))
		}
		out = append(out, s)
	}
	return out
}

// Text returns the pieces of the text, joined.
func Text(events []client.Event) string {
	s := ""
	for _, e := range events {
		s += e.Delta
	}
	return s
}

// Stream calls a method, as Chat does, and returns its events.
func (a *Actor) Stream(ctx context.Context, address string, params ...string) *Events {
	a.t.Helper()
	at, version, args := a.call(address, params)
	return Watch(a.t, a.Client().Stream(ctx, at, version, args, client.CallOptions{Header: a.header}))
}

// Events returns the events of an invocation after number n.
func (a *Actor) Events(ctx context.Context, invocation string, n int64) *Events {
	return Watch(a.t, a.Client().Events(ctx, invocation, n))
}

// Socket opens a WebSocket, which the test's cleanup closes.
func (a *Actor) Socket(o client.SocketOptions) *Socket {
	a.t.Helper()
	s, err := a.Client().Connect(a.t.Context(), o)
	a.check("open a WebSocket", err)
	if err == nil {
		a.t.Cleanup(func() { _ = s.Close() }) // it may be closed
	}
	return &Socket{Socket: s, a: a}
}

// Socket is a WebSocket of an actor.
type Socket struct {
	*client.Socket
	a *Actor
}

// Begin sends an invoke frame for a method, with params as in Chat.
func (s *Socket) Begin(address string, params ...string) *client.SocketCall {
	s.a.t.Helper()
	_, _, args := s.a.call(address, params)
	c, err := s.Invoke(s.a.t.Context(), client.Frame{Method: address, Args: args})
	if err != nil {
		s.a.t.Fatalf("invoke %s: %v", address, err)
	}
	return c
}

// Chat is Begin that waits for the answer.
func (s *Socket) Chat(address string, params ...string) client.Invocation {
	s.a.t.Helper()
	out, err := s.Begin(address, params...).Result(s.a.t.Context())
	s.a.check("chat "+address, err)
	return out
}

// Open opens an HTTP session.
func (a *Actor) Open(n client.NewSession) client.Session {
	a.t.Helper()
	s, err := a.Client().OpenSession(a.t.Context(), n)
	a.check("open session", err)
	return s
}

// Shut closes an HTTP session.
func (a *Actor) Shut(id string) client.ClosedSession {
	a.t.Helper()
	done, err := a.Client().CloseSession(a.t.Context(), id)
	a.check("close session", err)
	return done
}

// call reads an address and makes a params object of key, value, key, value
// and so on.
func (a *Actor) call(address string, params []string) (at carrel.Address, version string, args map[string]string) {
	a.t.Helper()
	at, err := carrel.ParseAddress(address)
	if err != nil {
		a.t.Fatalf("address %q: %v", address, err)
	}
	args = map[string]string{}
	for i := 0; i+1 < len(params); i += 2 {
		args[params[i]] = params[i+1]
	}
	plugin, _, _ := strings.Cut(address, "/")
	_, version, _ = strings.Cut(plugin, "@")
	return at, version, args
}
