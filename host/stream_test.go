package host_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/host"
	"github.com/carrelhost/carrel/internal/testenv"
	"github.com/carrelhost/carrel/internal/testproc"
)

func TestAStreamedTurnIsStoredAndItsScopeClosedBeforeItsLastEvent(t *testing.T) {
	testenv.EachStore(t, func(t *testing.T, cfg host.Config) {
		env := testenv.New(t, cfg)
		acme := env.Tenant("acme")
		acme.Install(testenv.Example(t, "smallest-scope"))
		env.Model.ReplyPieces("Hel", "lo ", "wor", "ld")
		events := acme.Stream(t.Context(), fleeting, "id", "1", "msg", "U1").Rest()
		same(t, "events", testenv.Show(events),
			"1 response.created in_progress",
			"2 response.output_text.delta Hel", "3 response.output_text.delta lo ",
			"4 response.output_text.delta wor", "5 response.output_text.delta ld",
			"6 response.output_text.done Hello world",
			"7 carrel.memory.evicted 1", "8 response.completed completed")
		created, last := events[0].Response, events[len(events)-1].Response
		if created.ID == "" || created.ID != last.ID || created.Output != nil {
			t.Errorf("created %+v, completed %+v", created, last)
		}
		if last.Output != "Hello world" || last.MemoryID != "1" || last.FinishReason != "stop" || last.Usage.OutputTokens == 0 || len(last.Evicted) != 1 {
			t.Errorf("the answer is %+v", last)
		}
		gone(t, acme, "smallest-scope", "1")

		env.Model.ReplyPieces("A", "B")
		events = acme.Stream(t.Context(), lasting, "id", "1", "msg", "U2").Rest()
		same(t, "without an eviction", testenv.Show(events), "1 response.created in_progress",
			"2 response.output_text.delta A", "3 response.output_text.delta B", "4 response.output_text.done AB", "5 response.completed completed")
		same(t, "stored", acme.Stored("smallest-scope", "1"), sysLast, "user:U2", "assistant:AB")
	})
}

func TestDeltasArePassedOnAsTheModelSendsThem(t *testing.T) {
	env := testenv.New(t, testenv.Config())
	acme := env.Tenant("acme")
	acme.Install(talking("one"))
	env.Model.ReplyPieces("A", "B", "C")
	defer env.Model.HoldAfter(2)()
	events := acme.Stream(t.Context(), botMethod, "id", "1", "msg", "U1")
	same(t, "before the model is done", testenv.Show([]client.Event{events.Next(), events.Next(), events.Next()}),
		"1 response.created in_progress", "2 response.output_text.delta A", "3 response.output_text.delta B")
	same(t, "stored meanwhile", acme.Stored("bot", "1"), []string{}...)
}

func TestAStreamOnTheWireIsServerSentEventsUpToAnEndMark(t *testing.T) {
	env := testenv.New(t, testenv.Config())
	acme := env.Tenant("acme")
	acme.Install(talking("one"))
	env.Model.ReplyPieces("A\n", "data: B")
	ans := acme.With("Accept", "text/event-stream").Do(http.MethodPost, botChat, `{"id":"1","msg":"U1"}`)
	for name, want := range map[string]string{
		"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no", "Content-Encoding": "",
	} {
		if got := ans.Header.Get(name); got != want {
			t.Errorf("%s is %q", name, got)
		}
	}
	blocks := strings.Split(string(ans.Body), "\n\n")
	if n := len(blocks); ans.Status != http.StatusOK || n != 7 || blocks[n-2] != "data: [DONE]" || blocks[n-1] != "" {
		t.Fatalf("the answer is %d %q", ans.Status, blocks)
	}
	for i, b := range blocks[:5] {
		lines := strings.Split(b, "\n")
		var e client.Event
		if len(lines) != 3 || json.Unmarshal([]byte(strings.TrimPrefix(lines[2], "data: ")), &e) != nil {
			t.Fatalf("event %d is %q", i+1, b)
		}
		if lines[0] != fmt.Sprintf("id: %d", i+1) || lines[1] != "event: "+e.Type || e.Sequence != int64(i+1) {
			t.Errorf("event %d is %q", i+1, b)
		}
	}
	for accept, kind := range map[string]string{
		"application/json, text/event-stream": "application/json", "text/event-stream, */*": "text/event-stream", "*/*": "application/json",
	} {
		ans := acme.With("Accept", accept).Do(http.MethodPost, botChat, `{"id":"1","msg":"U"}`)
		if got := ans.Header.Get("Content-Type"); got != kind {
			t.Errorf("who accepts %q is sent %q", accept, got)
		}
	}
}

func TestWhatFailsBeforeTheFirstEventIsAProblem(t *testing.T) {
	env := testenv.New(t, testenv.Config())
	acme := env.Tenant("acme")
	acme.Install(talking("one"))
	streaming := acme.With("Accept", "text/event-stream")
	for name, r := range map[string]refusal{
		"params that do not fit":  {body: `{"id":"1"}`, status: 422, code: "invalid_params"},
		"no memory id":            {body: `{"msg":"x"}`, status: 422, code: "invalid_memory_id", pointers: []string{"/id"}},
		"a method that is none":   {path: botChat + "s", body: `{}`, status: 404, code: "not_found"},
		"a session that is none":  {body: `{"id":"1","msg":"x"}`, header: [2]string{"Carrel-Session", "ses_00000000-0000-4000-8000-000000000000"}, status: 404, code: "not_found"},
		"a timeout over the host": {body: `{"id":"1","msg":"x"}`, header: [2]string{"Carrel-Timeout", "1h"}, status: 422, code: "limit_exceeded", limit: "timeout"},
	} {
		t.Run(name, func(t *testing.T) { r.refuse(t, streaming) })
	}
	held := acme.Hold(t.Context(), botMethod, "id", "1", "msg", "U1")
	refusal{body: `{"id":"1","msg":"x"}`, header: [2]string{"Carrel-On-Conflict", "reject"}, status: 409, code: "memory_busy"}.refuse(t, streaming)
	refusal{body: `{"id":"1","msg":"x"}`, header: [2]string{"Carrel-Timeout", "50ms"}, status: 504, code: "timeout", limit: "timeout"}.refuse(t, streaming)
	held.Release()
	held.Outcome()
}

func TestWhatFailsAfterTheFirstEventIsAnErrorAndAFailedResponse(t *testing.T) {
	testenv.EachStore(t, func(t *testing.T, cfg host.Config) {
		env := testenv.New(t, cfg)
		acme := env.Tenant("acme")
		acme.Install(testenv.Example(t, "smallest-scope"))
		acme.Chat(lasting, "id", "1", "msg", "U1")
		env.Model.AnswerNext(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, `data: {"choices":[{"index":0,"delta":{"content":"lost"},"finish_reason":null}]}`+"\n\n")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}))
		events := acme.Stream(t.Context(), fleeting, "id", "1", "msg", "U2").Rest()
		same(t, "events", testenv.Show(events), "1 response.created in_progress", "2 response.output_text.delta lost",
			"3 carrel.memory.evicted 1", "4 error model_failed", "5 response.failed failed")
		if p := events[3].Error; p.RequestID == "" || p.Status != http.StatusBadGateway || !p.Retryable {
			t.Errorf("the problem is %+v", p)
		}
		if r := events[4].Response; r.ID != events[0].Response.ID || r.Output != nil || len(r.Evicted) != 1 {
			t.Errorf("the failed response is %+v", r)
		}
	})
}

func TestAnAnswerThatTheModelCutShortIsIncompleteAndStored(t *testing.T) {
	env := testenv.New(t, testenv.Config())
	acme := env.Tenant("acme")
	acme.Install(talking("one"))
	for i, reason := range []string{"length", "content_filter"} {
		env.Model.AnswerNext(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, `data: {"choices":[{"index":0,"delta":{"content":"cut"},"finish_reason":"`+reason+`"}]}`+"\n\ndata: [DONE]\n\n")
		}))
		events := acme.Stream(t.Context(), botMethod, "id", fmt.Sprint(i), "msg", "U").Rest()
		last := events[len(events)-1]
		if last.Type != client.EventIncomplete || last.Response.Status != client.StatusIncomplete || last.Response.FinishReason != reason {
			t.Errorf("%s ends with %s %+v", reason, last.Type, last.Response)
		}
		same(t, "stored", acme.Stored("bot", fmt.Sprint(i)), "system:You are bot one", "user:U", "assistant:cut")
	}
}

func TestAStreamsClientThatGoesAwayTakesItsCallAlong(t *testing.T) {
	testenv.EachStore(t, func(t *testing.T, cfg host.Config) {
		env := testenv.New(t, cfg)
		acme := env.Tenant("acme")
		acme.Install(talking("one"))
		env.Model.ReplyPieces("A", "B")
		defer env.Model.HoldAfter(1)()
		events := acme.Stream(t.Context(), botMethod, "id", "1", "msg", "lost")
		events.Next()
		events.Next()
		within, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		events.Leave()
		if err := env.Model.Gone(within, 1); err != nil {
			t.Errorf("the model still works a second later: %v", err)
		}
		acme.Chat(botMethod, "id", "1", "msg", "U1")
		same(t, "stored", acme.Stored("bot", "1"), "system:You are bot one", "user:U1", "assistant:A2")
	})
}

func TestAStreamThatIsToGoOnCanBeReadAgain(t *testing.T) {
	env := testenv.New(t, testenv.Config())
	acme := env.Tenant("acme")
	acme.Install(talking("one"))
	env.Model.ReplyPieces("A", "B", "C")
	release := env.Model.HoldAfter(1)
	defer release()
	events := acme.With("Carrel-On-Disconnect", "continue").Stream(t.Context(), botMethod, "id", "1", "msg", "U1")
	id := events.Next().Response.ID
	events.Next()
	again := acme.Events(t.Context(), id, 1) // before the first leaves, so that somebody reads
	same(t, "the second event", testenv.Show([]client.Event{again.Next()}), "2 response.output_text.delta A")
	events.Leave()
	release()
	same(t, "the rest", testenv.Show(again.Rest()), "3 response.output_text.delta B", "4 response.output_text.delta C",
		"5 response.output_text.done ABC", "6 response.completed completed")
	same(t, "stored", acme.Stored("bot", "1"), "system:You are bot one", "user:U1", "assistant:ABC")
}

func TestTwoReadersOfOneInvocationSeeEverythingOnceFromWhereTheyAre(t *testing.T) {
	env := testenv.New(t, testenv.Config())
	acme := env.Tenant("acme")
	acme.Install(talking("one"))
	pieces := strings.Split(strings.Repeat("piece ", 40), " ")
	pieces = pieces[:40]
	env.Model.ReplyPieces(pieces...)
	release := env.Model.HoldAfter(20)
	defer release()
	first := acme.Stream(t.Context(), botMethod, "id", "1", "msg", "U1")
	events := []client.Event{first.Next()}
	id := events[0].Response.ID
	var others []*testenv.Events
	for n := range 21 {
		others = append(others, acme.Events(t.Context(), id, int64(n)))
		// What it reads now shows that it is there before the end.
		if e := others[n].Next(); e.Sequence != int64(n+1) {
			t.Errorf("the reader after %d begins with %d", n, e.Sequence)
		}
	}
	release()
	events = append(events, first.Rest()...)
	want := testenv.Show(events)
	if got := testenv.Text(events); got != strings.Join(pieces, "") {
		t.Errorf("the text is %q", got)
	}
	for n, o := range others {
		same(t, fmt.Sprintf("after %d", n), testenv.Show(o.Rest()), want[n+1:]...)
	}
	// The last reader leaves a moment after the last event has come.
	testproc.Until(t, "the end of the buffer after its last reader", func() bool {
		ans := acme.Do(http.MethodGet, "/api/v1/invocations/"+id+"/events?after=0", "")
		return ans.Status == http.StatusNotFound && ans.Problem(t).Code == abi.NotFound.String()
	})
}

func TestLastEventIDIsWhereAReaderThatReconnectsIs(t *testing.T) {
	env := testenv.New(t, testenv.Config())
	acme := env.Tenant("acme")
	acme.Install(talking("one"))
	env.Model.ReplyPieces("A", "B")
	release := env.Model.HoldAfter(1)
	defer release()
	first := acme.Stream(t.Context(), botMethod, "id", "1", "msg", "U1")
	path := "/api/v1/invocations/" + first.Next().Response.ID + "/events"
	for name, r := range map[string]refusal{
		"no number":              {path: path + "?after=x"},
		"a number below 0":       {path: path + "?after=-1"},
		"a last event of no use": {path: path, header: [2]string{"Last-Event-ID", "x"}},
	} {
		t.Run(name, func(t *testing.T) {
			r.method, r.status, r.code = http.MethodGet, 400, "bad_request"
			r.refuse(t, acme)
		})
	}
	var bodies []<-chan string
	for _, a := range []*testenv.Actor{acme.With("Last-Event-ID", "3"), acme.With("Last-Event-ID", "2")} {
		body := make(chan string, 1)
		bodies = append(bodies, body)
		ready := make(chan struct{})
		r := a.Request(http.MethodGet, path+"?after=1")
		go func() {
			defer close(body)
			resp, err := http.DefaultClient.Do(r)
			close(ready)
			if err != nil {
				return
			}
			defer resp.Body.Close() //nolint:errcheck // a body that was read
			b, _ := io.ReadAll(resp.Body)
			body <- string(b)
		}()
		<-ready
	}
	release()
	for i, want := range []string{"id: 4\n", "id: 3\n"} {
		if got := <-bodies[i]; !strings.HasPrefix(got, want) {
			t.Errorf("reader %d is sent %q", i, got)
		}
	}
}

func TestAnInvocationIsItsCallersAlone(t *testing.T) {
	testenv.EachStore(t, func(t *testing.T, cfg host.Config) {
		env := testenv.New(t, cfg)
		acme, globex := env.Tenant("acme"), env.Tenant("globex")
		acme.Install(talking("one"))
		backend := env.Key("acme", client.NewKey{Role: "caller", AssertSubject: true})
		ada := backend.As("ada")
		defer env.Model.Hold()()
		stream := ada.Stream(t.Context(), botMethod, "id", "1", "msg", "U1")
		id := stream.Next().Response.ID
		if err := env.Model.Arrived(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		for who, other := range map[string]*testenv.Actor{
			"another tenant": globex, "another key, though the owner's": acme, "another subject": backend.As("bob"), "no subject": backend,
		} {
			other = other.WantCode(abi.NotFound)
			_, err := other.Client().Cancel(t.Context(), id)
			other.Check(who+" cancels", testenv.Outcome{Err: err})
			other.Check(who+" reads", testenv.Outcome{Err: other.Events(t.Context(), id, 0).Err()})
		}
		done, err := ada.Client().Cancel(t.Context(), id)
		if err != nil || done.ID != id || done.Status != client.StatusFailed {
			t.Errorf("the caller's own cancel: %+v, %v", done, err)
		}
		same(t, "what the stream ends with", testenv.Show(stream.Rest()), "2 error canceled", "3 response.failed failed")
		if err := env.Model.Gone(t.Context(), 1); err != nil {
			t.Error(err)
		}
		same(t, "stored", acme.Stored("bot", "1"), []string{}...)
	})
}

func TestAnAnswerOverTheLimitOfItsEventsFails(t *testing.T) {
	cfg := testenv.Config()
	cfg.Limits.EventBytes = 8 << 10
	env := testenv.New(t, cfg)
	acme := env.Tenant("acme")
	acme.Install(talking("one"))
	piece := strings.Repeat("x", 1200)
	env.Model.ReplyPieces(piece, piece, piece, piece)
	events := acme.Stream(t.Context(), botMethod, "id", "1", "msg", "U1").Rest()
	last := events[len(events)-2:]
	if p := last[0].Error; p == nil || p.Code != "limit_exceeded" || p.Limit != "eventBytes" || !strings.Contains(p.Detail, "limits.eventBytes") {
		t.Errorf("the stream ends with %v %+v", testenv.Show(last), p)
	}
	if err := env.Model.Gone(t.Context(), 1); err != nil && !strings.Contains(err.Error(), "whole answer") {
		t.Error(err)
	}
	same(t, "stored", acme.Stored("bot", "1"), []string{}...)
	env.Model.ReplyPieces("small")
	acme.Stream(t.Context(), botMethod, "id", "1", "msg", "U2").Rest()
}

func TestOnlySoManyInvocationsAreStreamedAtOnce(t *testing.T) {
	cfg := testenv.Config()
	cfg.Limits.EventBuffers = 1
	env := testenv.New(t, cfg)
	acme := env.Tenant("acme")
	acme.Install(talking("one"))
	release := env.Model.Hold()
	defer release()
	first := acme.Stream(t.Context(), botMethod, "id", "1", "msg", "U1")
	first.Next()
	second := acme.Stream(t.Context(), botMethod, "id", "2", "msg", "U2").Err()
	if p := new(client.Problem); !errors.As(second, &p) || p.Code != "quota_exceeded" || p.Limit != "eventBuffers" {
		t.Errorf("the second is refused with %v", second)
	}
	release()
	first.Rest()
	acme.Stream(t.Context(), botMethod, "id", "2", "msg", "U2").Rest()
}

func TestEventsThatNobodyReadsAreKeptForAWhile(t *testing.T) {
	for _, kept := range []time.Duration{time.Hour, time.Millisecond} {
		cfg := testenv.Config()
		cfg.Limits.EventsKept = kept
		env := testenv.New(t, cfg)
		acme := env.Tenant("acme")
		acme.Install(talking("one"))
		defer env.Model.Hold()()
		stream := acme.Stream(t.Context(), botMethod, "id", "1", "msg", "U1")
		id := stream.Next().Response.ID
		if err := env.Model.Arrived(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		stream.Leave()
		if err := env.Model.Gone(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		// To cancel what has ended does nothing, but finds its events.
		done, err := acme.Client().Cancel(t.Context(), id)
		if kept == time.Hour {
			if err != nil || done.Status != client.StatusFailed {
				t.Errorf("after the end: %+v, %v", done, err)
			}
			same(t, "events", testenv.Show(acme.Events(t.Context(), id, 0).Rest()),
				"1 response.created in_progress", "2 error canceled", "3 response.failed failed")
			continue
		}
		for testenv.CodeOf(err) != abi.NotFound {
			_, err = acme.Client().Cancel(t.Context(), id)
		}
	}
}
