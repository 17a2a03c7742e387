package host_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/host"
	"github.com/carrelhost/carrel/internal/testenv"
	"github.com/carrelhost/carrel/internal/testproc"
)

// left streams a call of a chat with a memory id, whose reader leaves before
// its end, and returns its invocation, whose events are there. Nobody tells
// when a host has noticed that a reader left, so it may take another turn.
func left(t *testing.T, env *testenv.Env, a *testenv.Actor, address, id string, pieces ...string) string {
	t.Helper()
	plugin, _, _ := strings.Cut(address, "/")
	stored := func() int { return len(a.Stored(plugin, id)) }
	for range 100 {
		before := stored()
		env.Model.ReplyPieces(pieces...)
		release := env.Model.Hold()
		stream := a.With("Carrel-On-Disconnect", "continue").Stream(t.Context(), address, "id", id, "msg", "U")
		invocation := stream.Next().Response.ID
		stream.Leave()
		for range 20 { // the host is about to notice
			a.Do(http.MethodGet, "/livez", "")
		}
		release()
		testproc.Until(t, "a turn that is stored", func() bool { return stored() > before })
		// To cancel what is stored waits for its end, and finds its events.
		done, err := a.Client().Cancel(t.Context(), invocation)
		if err == nil && done.Status == client.StatusCompleted {
			return invocation
		}
	}
	t.Fatal("a hundred readers left too late")
	return ""
}

// A history that ended is not to be read in the events of what used it.
func TestTheEventsOfAHistoryEndWithIt(t *testing.T) {
	const twoScopes = "---\nname: two\nversion: '1'\nservices:\n" +
		"- {name: App, scope: application, methods: [{name: chat, memoryId: id}]}\n" +
		"- {name: Req, methods: [{name: chat, memoryId: id}]}\n---\n"
	for name, end := range map[string]func(t *testing.T, a *testenv.Actor){
		"by hand": func(_ *testing.T, a *testenv.Actor) { a.End("two", "1") },
		"with the plugin's deactivation": func(t *testing.T, a *testenv.Actor) {
			if _, err := a.Client().Deactivate(t.Context(), "two"); err != nil {
				t.Error(err)
			}
		},
		"with the plugin": func(t *testing.T, a *testenv.Actor) {
			if _, err := a.Client().DeletePlugin(t.Context(), "two"); err != nil {
				t.Error(err)
			}
		},
		"with another request, of a smaller scope": func(_ *testing.T, a *testenv.Actor) { a.Chat("two/Req.chat", "id", "1", "msg", "U") },
	} {
		t.Run(name, func(t *testing.T) {
			testenv.EachStore(t, func(t *testing.T, cfg host.Config) {
				cfg.Limits.EventsKept = time.Hour
				env := testenv.New(t, cfg)
				acme := env.Tenant("acme")
				acme.Install(twoScopes)
				id := left(t, env, acme, "two/App.chat", "1", "secret")
				other := left(t, env, acme, "two/App.chat", "2", "other")
				end(t, acme)
				gone := acme.WantCode(abi.NotFound)
				gone.Check("the events of what ended", testenv.Outcome{Err: acme.Events(t.Context(), id, 0).Err()})
				if slices.Contains(acme.MemoryIDs("two"), "2") {
					acme.Events(t.Context(), other, 0).Rest()
				} else {
					gone.Check("the other's events", testenv.Outcome{Err: acme.Events(t.Context(), other, 0).Err()})
				}
			})
		})
	}
}

// One control character is six bytes of JSON, and an answer is sent three
// times; it is kept once.
func TestTheEventsOfAnAnswerTakeItsTextOnce(t *testing.T) {
	const size = 1 << 20
	cfg := testenv.Config()
	cfg.Limits.EventBytes, cfg.Limits.EventBytesTotal = 7<<20, 7<<20
	env := testenv.New(t, cfg)
	acme := env.Tenant("acme")
	acme.Install(lives)
	text := strings.Repeat("\x01", size)
	whole := func(what string, events []client.Event) {
		t.Helper()
		if testenv.Text(events) != text {
			t.Errorf("%s: the deltas differ", what)
		}
		done, last := events[len(events)-3], events[len(events)-1]
		if done.Text == nil || *done.Text != text || last.Response == nil || last.Response.Output != text {
			t.Errorf("%s: the text of %s or %s differs", what, done.Type, last.Type)
		}
	}
	for range 2 { // the second has the room of the first
		env.Model.ReplyPieces(text[:size/2], text[size/2:])
		whole("a stream", acme.Stream(t.Context(), passing, "msg", "U").Rest())
	}
	env.Model.ReplyPieces(text[:size/2], text[size/2:])
	s := acme.Socket(client.SocketOptions{})
	whole("a WebSocket", testenv.Watch(t, s.Begin(passing, "msg", "U").Events(t.Context())).Rest())
}

func TestTheTextOfAnAnswerIsTheSameInAllItsEvents(t *testing.T) {
	env := testenv.New(t, testenv.Config())
	acme := env.Tenant("acme")
	acme.Install(lives)
	env.Model.ReplyPieces("a<", "\"b", "ü\n")
	events := acme.Stream(t.Context(), passing, "msg", "U").Rest()
	if last := events[len(events)-1]; testenv.Text(events) != "a<\"bü\n" || last.Response.Output != "a<\"bü\n" {
		t.Errorf("the events are %+v", events)
	}
}

func TestATenantOverItsShareOfEventsMakesRoomForOthers(t *testing.T) {
	large := strings.Repeat("x", 40<<10)
	for name, c := range map[string]struct {
		change func(*host.Limits)
		answer string
		limit  string
	}{
		"of buffers": {func(l *host.Limits) { l.EventBuffers = 2 }, "short", "eventBuffers"},
		"of bytes":   {func(l *host.Limits) { l.EventBytes, l.EventBytesTotal = 96<<10, 96<<10 }, large, "eventBytesTotal"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := testenv.Config()
			cfg.Limits.EventsKept = time.Hour
			c.change(&cfg.Limits)
			env := testenv.New(t, cfg)
			acme, globex := env.Tenant("acme"), env.Tenant("globex")
			acme.Install(talking("one"))
			globex.Install(talking("one"))
			first := left(t, env, acme, botMethod, "1", c.answer, "end")
			second := left(t, env, acme, botMethod, "2", c.answer, "end")
			env.Model.ReplyPieces(c.answer, "end")
			if events := globex.Stream(t.Context(), botMethod, "id", "1", "msg", "U").Rest(); testenv.Text(events) != c.answer+"end" {
				t.Errorf("the other tenant's stream is %v", testenv.Show(events))
			}
			acme.WantCode(abi.NotFound).Check("the oldest", testenv.Outcome{Err: acme.Events(t.Context(), first, 0).Err()})
			acme.Events(t.Context(), second, 0).Leave()

			// What still runs is no reason to refuse those within their share.
			var release func()
			begin := func(a *testenv.Actor, id, answer string) *testenv.Events {
				env.Model.ReplyPieces(answer, "end")
				release = env.Model.HoldAfter(1)
				t.Cleanup(release)
				s := a.Stream(t.Context(), botMethod, "id", id, "msg", "U")
				s.Next()
				s.Next()
				return s
			}
			largest := begin(acme, "3", c.answer+", and more")
			begin(acme, "4", c.answer)
			s := begin(globex, "2", c.answer)
			// It is cut off though the model is held.
			if e := largest.Next(); e.Error == nil || e.Error.Code != "quota_exceeded" || e.Error.Limit != c.limit {
				t.Errorf("who had more than its share is told %+v", e)
			}
			release()
			s.Rest()
		})
	}
}

func TestASocketIsHeardWhileAnInvocationWaitsForItsMemoryID(t *testing.T) {
	env := testenv.New(t, testenv.Config())
	acme := env.Tenant("acme")
	acme.Upload(thinker())
	release := env.Model.Hold()
	defer release()
	w := plug(t, acme, &websocket.DialOptions{})
	invoke := func(id string) {
		w.send(`{"type":"invoke","id":"` + id + `","method":"thinker/Req.chat","args":{"msg":"U"}}`)
	}
	invoke("1")
	if err := env.Model.Arrived(t.Context(), 1); err != nil { // its provider asks the model
		t.Fatal(err)
	}
	invoke("2")
	w.send(`{"type":"ping"}`)
	if f := w.receive(); f["type"] != "pong" {
		t.Errorf("the first frame is %v", f)
	}
	w.send(`{"type":"cancel","id":"2"}`)
	if f := w.receive(); f["id"] != "2" || f["type"] != "error" || f["error"].(map[string]any)["code"] != "canceled" {
		t.Errorf("the second frame is %v", f)
	}
	within, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := w.conn.CloseNow(); err != nil {
		t.Error(err)
	}
	if err := env.Model.Gone(within, 1); err != nil {
		t.Errorf("the model still works a second after the client left: %v", err)
	}
	if n := len(env.Model.Calls()); n != 1 {
		t.Errorf("the model was called %d times", n)
	}
	if ans := acme.Do(http.MethodGet, "/api/v1/memories", ""); ans.Status != http.StatusOK {
		t.Errorf("afterwards: %d", ans.Status)
	}
}
