package host_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/host"
	"github.com/carrelhost/carrel/internal/testenv"
	"github.com/carrelhost/carrel/internal/testproc"
)

func TestAWebSocketIsASessionWithOneDefaultIDAMethod(t *testing.T) {
	testenv.EachStore(t, func(t *testing.T, cfg host.Config) {
		env := testenv.New(t, cfg)
		acme := env.Tenant("acme")
		acme.Install(lives)
		s := acme.Socket(client.SocketOptions{})
		one, two := s.Chat(sitting, "msg", "U1"), s.Chat(sitting, "msg", "U2")
		if want := s.Session + "#com.acme.Sitting.chat"; one.MemoryID != want || two.MemoryID != want {
			t.Errorf("the memory ids are %q and %q, want %q", one.MemoryID, two.MemoryID, want)
		}
		same(t, "the session's second send", env.Model.Send(2), sysSits, "user:U1", "assistant:A1", "user:U2")
		p := s.Chat(passing, "msg", "P1")
		s.Chat(passing, "msg", "P2")
		same(t, "the request's second send", env.Model.Send(4), sysPass, "user:P2")
		if p.MemoryID != s.Session+"#com.acme.Passing.chat" || len(p.Evicted) != 1 {
			t.Errorf("the request's answer is %+v", p)
		}
		same(t, "while it is open there is", acme.MemoryIDs("lives"), one.MemoryID)
		same(t, "sessions", open(t, acme))

		other := acme.Socket(client.SocketOptions{})
		other.Chat(sitting, "msg", "O1")
		same(t, "another socket's send", env.Model.Send(5), sysSits, "user:O1")
		closed(t, acme, s)
		same(t, "after the close there is", acme.MemoryIDs("lives"), other.Session+"#com.acme.Sitting.chat")
		acme.WantCode(abi.NotFound).With("Carrel-Session", other.Session).Chat(sitting, "msg", "U")
	})
}

// closed closes a socket and waits until its session's histories are gone: a
// connection that is over tells nobody when.
func closed(t *testing.T, a *testenv.Actor, s *testenv.Socket) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	testproc.Until(t, "the end of the session's history", func() bool {
		return !slices.ContainsFunc(a.Memories("lives"), func(m client.Memory) bool {
			return m.Kind == "session" && m.MemoryID == s.Session+"#com.acme.Sitting.chat"
		})
	})
}

func TestEventsOnASocketAreThoseOfAStreamWithTheFramesID(t *testing.T) {
	env := testenv.New(t, testenv.Config())
	acme := env.Tenant("acme")
	acme.Install(lives)
	s := acme.Socket(client.SocketOptions{})
	env.Model.ReplyPieces("A", "B")
	call := s.Begin(passing, "msg", "U1")
	events := testenv.Watch(t, call.Events(t.Context())).Rest()
	same(t, "events", testenv.Show(events), "1 response.created in_progress", "2 response.output_text.delta A",
		"3 response.output_text.delta B", "4 response.output_text.done AB", "5 carrel.memory.evicted 1", "6 response.completed completed")
	for _, e := range events {
		if e.Frame != call.ID {
			t.Errorf("the event %s has the id %q, the frame had %q", e.Type, e.Frame, call.ID)
		}
	}
	for what, f := range map[string]struct {
		frame client.Frame
		code  string
	}{
		"a method that is not there": {client.Frame{Method: passing + "s"}, "not_found"},
		"no address":                 {client.Frame{Method: "chat"}, "bad_request"},
		"params that do not fit":     {client.Frame{Method: passing, Args: map[string]int{"msg": 1}}, "invalid_params"},
		"args that are no object":    {client.Frame{Method: passing, Args: []string{"x"}}, "invalid_params"},
		"a timeout without a unit":   {client.Frame{Method: passing, Timeout: "20"}, "bad_request"},
		"a conflict rule to come":    {client.Frame{Method: passing, OnConflict: "merge"}, "bad_request"},
		"one that outlives itself":   {client.Frame{Method: passing, OnDisconnect: "continue"}, "bad_request"},
	} {
		call, err := s.Invoke(t.Context(), f.frame)
		if err != nil {
			t.Fatal(err)
		}
		events := testenv.Watch(t, call.Events(t.Context())).Rest()
		same(t, what, testenv.Show(events), "0 error "+f.code)
		if events[0].Error.RequestID == "" || events[0].Error.Detail == "" {
			t.Errorf("%s: %+v", what, events[0].Error)
		}
	}
	if n := len(env.Model.Calls()); n != 1 {
		t.Errorf("the model was called %d times", n)
	}
}

func TestInvocationsOfOneSocketRunSideBySideAndOnOneKeyInOrder(t *testing.T) {
	testenv.EachStore(t, func(t *testing.T, cfg host.Config) {
		env := testenv.New(t, cfg)
		acme := env.Tenant("acme")
		acme.Install(lives)
		s := acme.Socket(client.SocketOptions{})
		release := env.Model.Hold()
		defer release()
		held := s.Begin(named, "id", "held", "msg", "U0")
		if err := env.Model.Arrived(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		var queued []*client.SocketCall
		for i := range 20 {
			queued = append(queued, s.Begin(named, "id", "held", "msg", fmt.Sprintf("Q%d", i)))
		}
		s.Chat(named, "id", "other", "msg", "U") // passes those that wait
		release()
		for _, c := range append([]*client.SocketCall{held}, queued...) {
			if _, err := c.Result(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		want := []string{sysSits, "user:U0", "assistant:A1"}
		for i := range 20 {
			want = append(want, fmt.Sprintf("user:Q%d", i), fmt.Sprintf("assistant:A%d", i+3))
		}
		same(t, "stored", acme.Stored("lives", "held"), want...)

		busy := s.Begin(named, "id", "x", "msg", "first")
		_, err := busy.Result(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		release2 := env.Model.Hold()
		defer release2()
		first := s.Begin(named, "id", "x", "msg", "second")
		if err := env.Model.Arrived(t.Context(), 24); err != nil {
			t.Fatal(err)
		}
		hasty, err := s.Invoke(t.Context(), client.Frame{Method: named, Args: map[string]string{"id": "x", "msg": "third"}, OnConflict: "reject"})
		if err != nil {
			t.Fatal(err)
		}
		brief, err := s.Invoke(t.Context(), client.Frame{Method: named, Args: map[string]string{"id": "x", "msg": "fourth"}, Timeout: "30ms"})
		if err != nil {
			t.Fatal(err)
		}
		for code, c := range map[abi.Code]*client.SocketCall{abi.MemoryBusy: hasty, abi.Timeout: brief} {
			if _, err := c.Result(t.Context()); testenv.CodeOf(err) != code {
				t.Errorf("got %v, want %v", err, code)
			}
		}
		release2()
		if _, err := first.Result(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestAnInvocationIsCancelledByAFrameAndFromAnotherConnection(t *testing.T) {
	env := testenv.New(t, testenv.Config())
	acme := env.Tenant("acme")
	acme.Install(lives)
	s := acme.Socket(client.SocketOptions{})
	for n, cancel := range []func(c *client.SocketCall, id string) error{
		func(c *client.SocketCall, _ string) error { return c.Cancel(t.Context()) },
		func(_ *client.SocketCall, id string) error {
			_, err := acme.Client().Cancel(t.Context(), id)
			return err
		},
	} {
		release := env.Model.Hold()
		call := s.Begin(sitting, "msg", "lost")
		events := testenv.Watch(t, call.Events(t.Context()))
		id := events.Next().Response.ID
		if err := env.Model.Arrived(t.Context(), n+1); err != nil {
			t.Fatal(err)
		}
		if err := cancel(call, id); err != nil {
			t.Fatal(err)
		}
		same(t, "the rest", testenv.Show(events.Rest()), "2 error canceled", "3 response.failed failed")
		if err := env.Model.Gone(t.Context(), n+1); err != nil {
			t.Error(err)
		}
		release()
	}
	same(t, "stored", acme.Stored("lives", s.Session+"#com.acme.Sitting.chat"), []string{}...)
}

func TestASocketThatClosesCancelsWhatRunsOnItAndEndsItsSession(t *testing.T) {
	testenv.EachStore(t, func(t *testing.T, cfg host.Config) {
		env := testenv.New(t, cfg)
		acme := env.Tenant("acme")
		acme.Install(lives)
		s := acme.Socket(client.SocketOptions{})
		s.Chat(sitting, "msg", "U1")
		defer env.Model.Hold()()
		events := testenv.Watch(t, s.Begin(sitting, "msg", "lost").Events(t.Context()))
		id := events.Next().Response.ID
		if err := env.Model.Arrived(t.Context(), 2); err != nil {
			t.Fatal(err)
		}
		within, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		closed(t, acme, s)
		if err := env.Model.Gone(within, 2); err != nil {
			t.Errorf("the model still works a second later: %v", err)
		}
		acme.WantCode(abi.NotFound).Check("its events", testenv.Outcome{Err: acme.Events(t.Context(), id, 0).Err()})
	})
}

func TestASocketThatIsAttachedDoesNotEndItsSession(t *testing.T) {
	testenv.EachStore(t, func(t *testing.T, cfg host.Config) {
		env := testenv.New(t, cfg)
		acme, globex := env.Tenant("acme"), env.Tenant("globex")
		acme.Install(lives)
		session := acme.Open(client.NewSession{})
		acme.With("Carrel-Session", session.ID).Chat(sitting, "msg", "U1")
		s := acme.Socket(client.SocketOptions{Session: session.ID})
		if s.Session != session.ID {
			t.Errorf("it is in the session %q", s.Session)
		}
		s.Chat(sitting, "msg", "U2")
		same(t, "send on the socket", env.Model.Send(2), sysSits, "user:U1", "assistant:A1", "user:U2")

		// One call is cancelled by the close, another goes on.
		releaseLost, releaseKept := env.Model.Hold(), env.Model.Hold()
		defer releaseLost()
		defer releaseKept()
		s.Begin(named, "id", "lost", "msg", "L")
		if err := env.Model.Arrived(t.Context(), 3); err != nil {
			t.Fatal(err)
		}
		goesOn, err := s.Invoke(t.Context(), client.Frame{
			Method: named, Args: map[string]string{"id": "kept", "msg": "K"}, OnDisconnect: "continue",
		})
		if err != nil {
			t.Fatal(err)
		}
		id := testenv.Watch(t, goesOn.Events(t.Context())).Next().Response.ID
		if err := env.Model.Arrived(t.Context(), 4); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if err := env.Model.Gone(t.Context(), 3); err != nil {
			t.Error(err)
		}
		again := acme.Events(t.Context(), id, 0)
		again.Next()
		releaseKept()
		if events := again.Rest(); testenv.Text(events) != "A4" {
			t.Errorf("read again: %v", testenv.Show(events))
		}
		same(t, "stored", acme.Stored("lives", "kept"), sysSits, "user:K", "assistant:A4")
		acme.With("Carrel-Session", session.ID).Chat(sitting, "msg", "U3")
		if n := len(acme.Shut(session.ID).Evicted); n != 3 {
			t.Errorf("%d histories ended with the session", n)
		}
		for who, a := range map[*testenv.Actor]abi.Code{
			acme: abi.SessionClosed, globex: abi.NotFound, env.Key("acme", client.NewKey{Role: "caller"}): abi.NotFound,
		} {
			who.WantCode(a).Socket(client.SocketOptions{Session: session.ID})
		}
	})
}

func TestASessionThatClosesUnderASocketRefusesItsCalls(t *testing.T) {
	env := testenv.New(t, testenv.Config())
	acme := env.Tenant("acme")
	acme.Install(lives)
	session := acme.Open(client.NewSession{})
	s := acme.Socket(client.SocketOptions{Session: session.ID})
	acme.Shut(session.ID)
	if _, err := s.Begin(sitting, "msg", "U").Result(t.Context()); testenv.CodeOf(err) != abi.SessionClosed {
		t.Errorf("got %v", err)
	}
}

func TestADrainingHostLetsSocketsFinishAndClosesThem(t *testing.T) {
	testenv.EachStore(t, func(t *testing.T, cfg host.Config) {
		env := testenv.New(t, cfg)
		acme := env.Tenant("acme")
		acme.Install(lives)
		idle, s := acme.Socket(client.SocketOptions{}), acme.Socket(client.SocketOptions{})
		release := env.Model.Hold()
		defer release()
		call := s.Begin(sitting, "msg", "U1")
		if err := env.Model.Arrived(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		env.Drain()
		for code := abi.OK; code != abi.Draining; { // it takes a moment to begin
			_, err := s.Begin(passing, "msg", "late").Result(t.Context())
			code = testenv.CodeOf(err)
		}
		acme.WantCode(abi.Draining).Socket(client.SocketOptions{})
		release()
		if out, err := call.Result(t.Context()); err != nil || out.Output != "A1" {
			t.Errorf("what ran ended with %v, %v", out.Output, err)
		}
		for what, s := range map[string]*testenv.Socket{"the idle one": idle, "the busy one": s} {
			<-s.Ended()
			if c := new(client.CloseError); !errors.As(s.Err(), &c) || c.Code != 1012 {
				t.Errorf("%s ended with %v", what, s.Err())
			}
		}
		env.Stop()
	})
}

func TestASocketThatOutlivesTheGraceIsCutAndItsSessionEnds(t *testing.T) {
	cfg := testenv.Config()
	cfg.Limits.DrainTimeout = 20 * time.Millisecond
	env := testenv.New(t, cfg)
	acme := env.Tenant("acme")
	acme.Install(lives)
	s := acme.Socket(client.SocketOptions{})
	s.Chat(sitting, "msg", "U1")
	defer env.Model.Hold()()
	call := s.Begin(sitting, "msg", "cut")
	if err := env.Model.Arrived(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	env.Drain()
	if _, err := call.Result(t.Context()); testenv.CodeOf(err) != abi.Draining {
		t.Errorf("what ran ended with %v", err)
	}
	env.Restart()
	if got := acme.Memories("lives"); len(got) > 0 {
		t.Errorf("left is %+v", got)
	}
}

func TestATenantHasOnlySoManySockets(t *testing.T) {
	cfg := testenv.Config()
	cfg.Limits.WebSockets = 2
	env := testenv.New(t, cfg)
	acme := env.Tenant("acme")
	acme.Install(lives)
	first := acme.Socket(client.SocketOptions{})
	acme.Socket(client.SocketOptions{})
	_, err := acme.Client().Connect(t.Context(), client.SocketOptions{})
	if p := new(client.Problem); !errors.As(err, &p) || p.Status != 429 || p.Code != "quota_exceeded" || p.Limit != "webSockets" {
		t.Errorf("the third is refused with %v", err)
	}
	env.Tenant("globex").Socket(client.SocketOptions{})
	first.Chat(sitting, "msg", "U1")
	closed(t, acme, first)
	testproc.Until(t, "room for a connection", func() bool {
		s, err := acme.Client().Connect(t.Context(), client.SocketOptions{})
		if err != nil {
			return false
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		return true
	})
}
