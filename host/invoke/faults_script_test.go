package invoke_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/invoke"
	"github.com/carrelhost/carrel/host/scope"
	"github.com/carrelhost/carrel/store"
)

// faultStep is one thing that a client or owner does.
type faultStep struct {
	name string
	// do does it; said is the user's message, where there is one.
	do func(ctx context.Context, said string) ([]turnOf, error)
	// ends are memory ids whose turns of earlier steps are gone after it, and
	// cuts those of which only the newest need be left.
	ends, cuts []string
	// again are errors that the step may have when it is repeated after a
	// failure of unknown outcome.
	again []abi.Code
	// same repeats it with the same user message.
	same bool
}

// talk is a chat step, which keeps its turn under id; "" if the turn ends with
// the request.
func (r *trial) talk(name, address, id, keeps string, change func(*invoke.Call)) faultStep {
	return faultStep{name: name, do: func(ctx context.Context, said string) ([]turnOf, error) {
		params := []string{"msg", said}
		if id != "" {
			params = append(params, "id", id)
		}
		c := r.call(address, params...)
		if change != nil {
			change(&c)
		}
		o, _, err := r.Run(ctx, c)
		if err == nil && o.Output != "A:"+said {
			err = fmt.Errorf("the answer is %v", o.Output)
		}
		return []turnOf{{text: said, id: keeps, err: err}}, err
	}}
}

// plain is a step without turns.
func plain(name string, do func(ctx context.Context) error) faultStep {
	return faultStep{name: name, do: func(ctx context.Context, _ string) ([]turnOf, error) { return nil, do(ctx) }}
}

func (s faultStep) ending(ids ...string) faultStep {
	s.ends = ids
	return s
}

func (s faultStep) cutting(ids ...string) faultStep {
	s.cuts = ids
	return s
}

func (s faultStep) or(codes ...abi.Code) faultStep {
	s.again = codes
	return s
}

func (s faultStep) alike() faultStep {
	s.same = true
	return s
}

// script is what a round does, in the order in which it does it.
func (r *trial) script() []faultStep {
	var steps []faultStep
	for _, p := range []carrel.PluginName{"p", "g", "w"} {
		steps = append(steps, plain("activate "+string(p), func(ctx context.Context) error {
			_, err := r.catalog.Activate(ctx, acme, p, carrel.VersionRef{N: 1})
			return err
		}))
	}
	steps = append(steps,
		r.talk("explicit", "p/App.chat", "1", "1", nil),
		r.talk("another system message", "p/Mean.chat", "1", "1", nil).cutting("1"),
		r.talk("trimming", "p/App.chat", "1", "1", func(c *invoke.Call) { c.Stream = &streamed{} }).cutting("1"),
		r.talk("to be ended", "p/App.chat", "2", "2", nil),
		r.talk("request scope", "p/Req.chat", "2", "", nil).ending("2"),
		r.talk("default id", "p/Req.chat", "", "", nil))
	steps = append(steps, r.inSession()...)
	steps = append(steps, r.onSocket()...)
	steps = append(steps, faultStep{name: "handler", do: r.byGuest})
	for i := range 2 {
		steps = append(steps, r.talk(fmt.Sprintf("seeded %d", i), "w/App.seeded", "7", "7", nil).cutting("7"))
	}
	for i := range 3 {
		steps = append(steps, r.talk(fmt.Sprintf("retained %d", i), "w/App.keeps", "8", "8", nil).cutting("8"))
	}
	key := fmt.Sprintf("K%d", r.round)
	for range 2 { // the second is the retry, which finds the first one's turn
		steps = append(steps, r.talk("idempotent", "p/App.chat", "9", "9", func(c *invoke.Call) { c.IdempotencyKey = key }).alike())
	}
	steps = append(steps,
		plain("idempotent handler", func(ctx context.Context) error {
			c := r.raw("g/H.echo", `{"a":1}`)
			c.IdempotencyKey = key
			_, _, err := r.Run(ctx, c)
			return err
		}).or(abi.IdempotencyInterrupted),
		plain("delete", func(ctx context.Context) error {
			k := carrel.MemoryKey{Tenant: acme, Namespace: "p", Kind: carrel.KindExplicit, ID: "9"}
			_, err := r.scopes.Delete(ctx, k)
			return err
		}).ending("9").or(abi.NotFound),
		r.talk("turn to be deleted", "w/App.wide", "10", "10", nil),
		plain("delete turns", func(ctx context.Context) error {
			h, err := r.scopes.Histories().History(ctx, acme, r.scopes.Handle(explicit("10")), nil, store.Cutoff{})
			if err != nil {
				return err
			}
			for n := int64(1); n <= h.LastTurn && err == nil; n++ { // a repeated step may have made two
				if err = r.scopes.DeleteTurn(ctx, h, n); carrel.CodeOf(err) == abi.NotFound {
					err = nil
				}
			}
			return err
		}).ending("10"),
		faultStep{name: "import", do: r.byImport, again: []abi.Code{abi.HistoryConflict}},
		r.talk("of a subject", "p/App.chat", "12", "12", func(c *invoke.Call) { c.Caller.Subject = "ann" }),
		plain("erase", func(ctx context.Context) error {
			_, err := r.scopes.Erase(ctx, acme, "ann")
			return err
		}).ending("12"))
	for p, ids := range map[carrel.PluginName][]string{"p": {"1"}, "g": {"3", "4", "6"}, "w": {"7", "8", "11"}} {
		steps = append(steps, plain("deactivate "+string(p), func(ctx context.Context) error {
			_, err := r.catalog.Deactivate(ctx, acme, p)
			return err
		}).ending(ids...))
	}
	return steps
}

// inSession is what happens in an HTTP session.
func (r *trial) inSession() []faultStep {
	var id carrel.SessionID
	in := func(c *invoke.Call) { c.Session = id }
	return []faultStep{
		plain("open session", func(ctx context.Context) error {
			s, err := r.scopes.OpenSession(ctx, scope.NewSession{Owner: r.call("g/Ses.chat").Caller})
			id = s.ID
			return err
		}),
		r.talkInSession("in session", func() string { return string(id) + "#Ses.chat" }, in),
		r.talk("longer than the session", "g/App.chat", "3", "3", in),
		r.talk("shorter than the session", "g/Req.chat", "", "", in),
		plain("close session", func(ctx context.Context) error {
			_, _, err := r.scopes.CloseSession(ctx, r.call("g/Ses.chat").Caller, id)
			return err
		}).ending("session"),
	}
}

// onSocket is what happens on a WebSocket.
func (r *trial) onSocket() []faultStep {
	var socket *scope.Session
	on := func(c *invoke.Call) { c.Socket = socket }
	return []faultStep{
		plain("open socket", func(ctx context.Context) (err error) {
			socket, err = r.scopes.OpenSocket(ctx, acme)
			return err
		}),
		r.talkInSession("on socket", func() string { return string(socket.ID()) + "#Ses.chat" }, on),
		r.talkInSession("on socket again", func() string { return string(socket.ID()) + "#Ses.chat" }, on),
		plain("close socket", func(ctx context.Context) error {
			socket.Close(ctx)
			return nil
		}).ending("session"),
	}
}

// talkInSession is a chat of a session's default memory id, of which the trial
// calls every one "session".
func (r *trial) talkInSession(name string, id func() string, change func(*invoke.Call)) faultStep {
	s := r.talk(name, "g/Ses.chat", "", "session", change)
	do := s.do
	s.do = func(ctx context.Context, said string) ([]turnOf, error) {
		r.session = id()
		return do(ctx, said)
	}
	return s
}

// byGuest has a guest make two chats of its own, append and delete.
func (r *trial) byGuest(ctx context.Context, said string) ([]turnOf, error) {
	msg := func(n int) string { return fmt.Sprintf("%s.%d", said, n) }
	c := r.raw("g/App.run", script(
		invokes("App", "chat", `{"id":"4","msg":`+text(msg(0))+`}`),
		invokes("Req", "chat", `{"msg":`+text(msg(1))+`}`),
		r.appends(key(carrel.KindExplicit, "6"), msg(2), "A"),
		r.reads(key(carrel.KindExplicit, "6"), ""),
		r.appends(key(carrel.KindExplicit, "5"), msg(3), "A"),
		r.deletes(key(carrel.KindExplicit, "5")),
	))
	turns := []turnOf{{text: msg(0), id: "4"}, {text: msg(1)}, {text: msg(2), id: "6"}, {text: msg(3)}}
	o, _, err := r.Run(ctx, c)
	if err != nil {
		for i := range turns { // which of them were made, it cannot tell
			turns[i].err, turns[i].doubt = err, true
		}
		return turns, err
	}
	got := lines(r.t, o.Output)
	for line, turn := range map[int]int{0: 0, 1: 1, 2: 2, 4: 3} {
		turns[turn].err = errorOf(r.t, got[line])
	}
	if err := errorOf(r.t, got[5]); err != nil && turns[3].err == nil {
		turns[3].err, turns[3].doubt = err, true
	}
	// A guest that is refused something goes on; the script does it again.
	var failed []error
	for _, l := range got {
		failed = append(failed, errorOf(r.t, l))
	}
	return turns, errors.Join(failed...)
}

// byImport imports a turn with tool calls.
func (r *trial) byImport(ctx context.Context, said string) ([]turnOf, error) {
	c := r.call("w/App.seeded")
	_, err := r.Import(ctx, invoke.Import{
		Request: c.Request, Caller: c.Caller, Plugin: "w", Kind: carrel.KindExplicit, ID: "11", System: "You were",
		Turns: []store.NewTurn{{Messages: []carrel.Message{
			{Role: carrel.RoleUser, Content: said},
			{Role: carrel.RoleAssistant, ToolCalls: []carrel.ToolCall{{ID: "1", Name: "t", Args: json.RawMessage(`{}`)}}},
			{Role: carrel.RoleTool, ToolCallID: "1", Content: "T"},
			{Role: carrel.RoleAssistant, Content: "A"},
		}}},
	})
	return []turnOf{{text: said, id: "11", err: err}}, err
}
