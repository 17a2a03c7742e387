package host_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/host"
	"github.com/carrelhost/carrel/host/model/modeltest"
	"github.com/carrelhost/carrel/host/sandbox/module"
	"github.com/carrelhost/carrel/host/sandbox/wasmtest"
	"github.com/carrelhost/carrel/internal/testenv"
	"github.com/carrelhost/carrel/internal/testproc"
)

const (
	idempotencyKey = "Idempotency-Key"
	replayed       = "Idempotent-Replayed"
	askMethod      = "asker/H.ask"
)

// asker is a plugin whose handler asks a model and then says "asked".
func asker() []byte {
	const manifest = `{"abi":"carrel/v1","name":"asker","version":"1","capabilities":{"models":["default"]},` +
		`"services":[{"name":"H","methods":[{"name":"ask","kind":"handler","export":"ask"}]}]}`
	m := wasmtest.New()
	call, write := m.Carrel("call"), m.Carrel("output_write")
	m.Memory(1)
	op, ask := string(abi.OpModelGenerate), `{"messages":[{"role":"user","content":"well?"}]}`
	m.Data(16, []byte(op))
	m.Data(128, []byte("asked"))
	m.Data(256, []byte(ask))
	m.Method("ask").Const(16).Const(int32(len(op))).Const(256).Const(int32(len(ask))).Call(call).Drop().
		Const(128).Const(5).Call(write).Drop().Const(0)
	return module.AppendCustom(m.Bytes(), abi.ManifestSection, []byte(manifest))
}

func TestARepeatedCallGetsTheFirstAnswerAndIsMadeOnce(t *testing.T) {
	testenv.EachStore(t, func(t *testing.T, cfg host.Config) {
		env := testenv.New(t, cfg)
		acme, globex := env.Tenant("acme"), env.Tenant("globex")
		for _, a := range []*testenv.Actor{acme, globex} {
			a.Install(talking("one"))
			a.Install(testenv.Example(t, "smallest-scope"))
		}
		keyed := acme.With(idempotencyKey, "K")
		first := keyed.Do(http.MethodPost, botChat, `{"id":"1","msg":"U1"}`)
		if first.Status != http.StatusOK || first.Header.Get(replayed) != "" {
			t.Fatalf("the first is %d %s, replayed %q", first.Status, first.Body, first.Header.Get(replayed))
		}
		for _, body := range []string{`{"id":"1","msg":"U1"}`, "{\n \"msg\": \"\\u00551\", \"id\" : \"1\" }"} {
			again := keyed.Do(http.MethodPost, botChat, body)
			if again.Status != http.StatusOK || again.Header.Get(replayed) != "true" || !bytes.Equal(again.Body, first.Body) {
				t.Errorf("the second is %d %s, replayed %q; the first was %s", again.Status, again.Body, again.Header.Get(replayed), first.Body)
			}
		}
		refusal{body: `{"id":"1","msg":"U2"}`, status: 422, code: "idempotency_mismatch"}.refuse(t, keyed)
		refusal{
			body: `{"id":"1","msg":"U1"}`, header: [2]string{"Carrel-Session", acme.Open(client.NewSession{}).ID},
			status: 422, code: "idempotency_mismatch",
		}.refuse(t, keyed)
		same(t, "stored", acme.Stored("bot", "1"), "system:You are bot one", "user:U1", "assistant:A1")

		// A request's memory ends with it, and not once more.
		fading := acme.With(idempotencyKey, "fading")
		if out := fading.Chat(fleeting, "id", "1", "msg", "U1"); len(out.Evicted) != 1 || out.Replayed {
			t.Errorf("the first is %+v", out)
		}
		acme.Chat(lasting, "id", "1", "msg", "U2")
		if out := fading.Chat(fleeting, "id", "1", "msg", "U1"); len(out.Evicted) != 0 || !out.Replayed || out.Output != "A2" {
			t.Errorf("the second is %+v", out)
		}
		same(t, "stored", acme.Stored("smallest-scope", "1"), sysLast, "user:U2", "assistant:A3")

		calls := len(env.Model.Calls())
		for what, a := range map[string]*testenv.Actor{
			"another key": acme.With(idempotencyKey, "k"), "no key": acme, "another subject": env.Key("acme", client.NewKey{
				Role: "caller", AssertSubject: true,
			}).As("ada").With(idempotencyKey, "K"), "another API key": env.Key("acme", client.NewKey{Role: "caller"}).With(idempotencyKey, "K"),
			"another tenant": globex.With(idempotencyKey, "K"),
		} {
			if out := a.Chat(botMethod, "id", "2", "msg", "U1"); out.Replayed {
				t.Errorf("%s: it was a replay", what)
			}
		}
		if out := keyed.Chat("bot@1/com.acme.MyChat.chat", "id", "1", "msg", "U1"); out.Replayed {
			t.Error("another address: it was a replay")
		}
		if n := len(env.Model.Calls()) - calls; n != 6 {
			t.Errorf("six calls of their own made %d model calls", n)
		}

		if cfg.Store == host.StoreMemory {
			return
		}
		env.Restart()
		if again := keyed.Do(http.MethodPost, botChat, `{"id":"1","msg":"U1"}`); again.Header.Get(replayed) != "true" || !bytes.Equal(again.Body, first.Body) {
			t.Errorf("after a restart it is %d %s, the first was %s", again.Status, again.Body, first.Body)
		}
	})
}

func TestOfTwentyParallelRepeatsOneCallsTheModel(t *testing.T) {
	testenv.EachStore(t, func(t *testing.T, cfg host.Config) {
		env := testenv.New(t, cfg)
		acme := env.Tenant("acme")
		acme.Install(talking("one"))
		for round, failures := range []int{0, 1, 2} {
			acme := acme.With(idempotencyKey, fmt.Sprint("K", round))
			calls, id := len(env.Model.Calls()), fmt.Sprint(round)
			for range failures {
				env.Model.FailNext(http.StatusBadRequest, `{"error":{"message":"no"}}`)
			}
			outcomes := make([]testenv.Outcome, 20)
			var all sync.WaitGroup
			for n := range outcomes {
				all.Go(func() { outcomes[n] = <-acme.Begin(t.Context(), botMethod, "id", id, "msg", "U1") })
			}
			all.Wait()
			failed, answered, first := 0, 0, ""
			for _, o := range outcomes {
				switch {
				case testenv.CodeOf(o.Err) == abi.ModelFailed:
					failed++
				case o.Err != nil:
					t.Errorf("one got %v", o.Err)
				case !o.Replayed:
					answered, first = answered+1, o.ID
				}
			}
			for _, o := range outcomes {
				if o.Err == nil && o.ID != first {
					t.Errorf("one got the answer of %s, the first was %s", o.ID, first)
				}
			}
			if n := len(env.Model.Calls()) - calls; failed != failures || answered != 1 || n != failures+1 {
				t.Errorf("%d failed and %d were answered by the model in %d calls", failed, answered, n)
			}
			if n := len(acme.Stored("bot", id)); n != 3 {
				t.Errorf("%d messages are stored", n)
			}
		}
	})
}

func TestAReplayIsStreamedAsTheCallWouldBe(t *testing.T) {
	env := testenv.New(t, testenv.Config())
	acme := env.Tenant("acme")
	acme.Install(testenv.Example(t, "smallest-scope"))
	acme.Upload(talkative())
	const path = "/api/v1/plugins/smallest-scope/services/com.acme.Fleeting/chat"
	const body = `{"id":"1","msg":"U1"}`
	streaming := acme.With("Accept", "text/event-stream")

	env.Model.ReplyPieces("Hel", "lo")
	plain := acme.With(idempotencyKey, "plain-first")
	var first client.Invocation
	if err := json.Unmarshal(plain.Do(http.MethodPost, path, body).Body, &first); err != nil {
		t.Fatal(err)
	}
	again := streaming.With(idempotencyKey, "plain-first").Do(http.MethodPost, path, body)
	if again.Header.Get(replayed) != "true" || !strings.HasSuffix(string(again.Body), "data: [DONE]\n\n") {
		t.Errorf("the replay is %v %s", again.Header, again.Body)
	}
	events := plain.Stream(t.Context(), fleeting, "id", "1", "msg", "U1").Rest()
	same(t, "a plain call's streamed replay", testenv.Show(events), "1 response.created in_progress",
		"2 response.output_text.delta Hello", "3 response.output_text.done Hello", "4 response.completed completed")
	if created, last := events[0].Response, events[3].Response; created.ID != first.ID || last.ID != first.ID || last.Output != "Hello" ||
		last.MemoryID != "1" || last.Usage != first.Usage || last.FinishReason != first.FinishReason || last.Model != first.Model || last.Evicted == nil ||
		!created.Replayed || !last.Replayed {
		t.Errorf("the replay has %+v, the first was %+v", last, first)
	}
	acme.WantCode(abi.NotFound).Check("its events", testenv.Outcome{Err: acme.Events(t.Context(), first.ID, 0).Err()})

	// The events of a first call that nobody has read stay what they are.
	env.Model.ReplyPieces("A", "B")
	streamed := acme.With(idempotencyKey, "streamed-first").With("Carrel-On-Disconnect", "continue")
	release := env.Model.HoldAfter(1)
	watched := streamed.Stream(t.Context(), fleeting, "id", "2", "msg", "U2")
	id := watched.Next().Response.ID
	watched.Leave()
	release()
	if out := streamed.Chat(fleeting, "id", "2", "msg", "U2"); out.ID != id || out.Output != "AB" || !out.Replayed {
		t.Errorf("a streamed call's plain replay is %+v, of %s", out, id)
	}
	if events := streamed.Stream(t.Context(), fleeting, "id", "2", "msg", "U2").Rest(); len(events) != 4 {
		t.Errorf("its streamed replay is %v", testenv.Show(events))
	}
	same(t, "the first call's events", testenv.Show(acme.Events(t.Context(), id, 0).Rest()), "1 response.created in_progress",
		"2 response.output_text.delta A", "3 response.output_text.delta B", "4 response.output_text.done AB",
		"5 carrel.memory.evicted 1", "6 response.completed completed")

	for n, want := range []bool{false, true} {
		at, err := carrel.ParseAddress(fleeting)
		if err != nil {
			t.Fatal(err)
		}
		o := client.CallOptions{IdempotencyKey: "result"}
		out, err := client.Result(acme.Client().Stream(t.Context(), at, "", map[string]any{"id": "3", "msg": "U3"}, o), nil)
		if err != nil || out.Replayed != want {
			t.Errorf("result %d is %+v, %v", n, out, err)
		}
	}

	say := acme.With(idempotencyKey, "say")
	want := say.Chat("talkative/com.acme.Code.say")
	same(t, "a handler's streamed replay", testenv.Show(say.Stream(t.Context(), "talkative/com.acme.Code.say").Rest()),
		"1 response.created in_progress", "2 response.output_text.delta a line", "3 response.output_text.done a line", "4 response.completed completed")
	if got := say.Chat("talkative/com.acme.Code.say"); !got.Replayed || got.ID != want.ID || got.Usage != want.Usage {
		t.Errorf("its plain replay is %+v, the first was %+v", got, want)
	}
}

func TestIdempotencyKeysAreLimited(t *testing.T) {
	testenv.EachStore(t, func(t *testing.T, cfg host.Config) {
		cfg.Limits.IdempotencyKeys = 1
		env := testenv.New(t, cfg)
		acme := env.Tenant("acme")
		acme.Install(talking("one"))
		acme.With(idempotencyKey, "1").Chat(botMethod, "id", "1", "msg", "U1")
		r := refusal{
			body: `{"id":"1","msg":"U2"}`, header: [2]string{idempotencyKey, "2"},
			status: 429, code: "quota_exceeded", limit: "idempotencyKeys", says: []string{"limits.idempotencyKeys"},
		}
		r.refuse(t, acme)
		ans := acme.With(r.header[0], r.header[1]).Do(http.MethodPost, botChat, r.body)
		if wait := ans.Header.Get("Retry-After"); wait != "60" {
			t.Errorf("a client that has used all keys is to wait %q s", wait)
		}
		acme.Chat(botMethod, "id", "1", "msg", "U2")
		if out := acme.With(idempotencyKey, "1").Chat(botMethod, "id", "1", "msg", "U1"); !out.Replayed {
			t.Errorf("a key that was there is %+v", out)
		}
	})
}

func TestAnIdempotencyKeyIsOneHeaderOfVisibleCharacters(t *testing.T) {
	env := testenv.New(t, testenv.Config())
	acme := env.Tenant("acme")
	acme.Install(talking("one"))
	most := strings.Repeat("~", 255)
	for _, key := range []string{"!", most} {
		acme.With(idempotencyKey, key).Chat(botMethod, "id", "1", "msg", "U")
	}
	const body = `{"id":"1","msg":"U"}`
	for name, key := range map[string]string{"none": "", "one byte too many": most + "~", "a space in it": "a b", "a tab in it": "a\tb", "no ASCII": "é"} {
		t.Run(name, func(t *testing.T) {
			refusal{body: body, header: [2]string{idempotencyKey, key}, status: 400, code: "bad_request", says: []string{"1 to 255"}}.refuse(t, acme)
		})
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, env.Addr()+botChat, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header[idempotencyKey] = []string{"1", "1"}
	refusal{status: 400, code: "bad_request", says: []string{"once"}}.check(t, acme.Send(r))
	for _, elsewhere := range []refusal{
		{method: http.MethodGet, path: botChat}, {method: http.MethodGet, path: "/api/v1/memories"},
		{path: "/api/v1/sessions", body: `{}`}, {path: "/api/v1/plugins"},
	} {
		elsewhere.header, elsewhere.status, elsewhere.code = [2]string{idempotencyKey, "1"}, 400, "bad_request"
		elsewhere.says = []string{"for calls of service methods"}
		elsewhere.refuse(t, acme)
	}
}

func TestAKeptAnswerCannotBeReadFromTheDisk(t *testing.T) {
	env := testenv.New(t, testenv.Config())
	acme := env.Tenant("acme").With(idempotencyKey, "a-key-that-nobody-knows")
	acme.Install(testenv.Example(t, "smallest-scope"))
	env.Model.Reply("the answer that nobody else may read")
	first := acme.Chat(fleeting, "id", "an-id", "msg", "a question that nobody else may read")
	env.Stop() // what is left of the history is taken off the disk
	if found := in(t, env.Data(), []string{"nobody else may read", "nobody-knows", first.ID}); len(found) > 0 {
		t.Errorf("the answer is in %v", found)
	}
	if found := in(t, env.Data(), []string{"smallest-scope"}); len(found) == 0 {
		t.Error("what is in the directory would not have been found")
	}
	env.Restart()
	if again := acme.Chat(fleeting, "id", "an-id", "msg", "a question that nobody else may read"); !again.Replayed || again.Output != first.Output {
		t.Errorf("the replay is %+v, the first was %+v", again, first)
	}
}

func TestAKilledHostMakesARepeatedCallOnce(t *testing.T) {
	data, model := t.TempDir(), modeltest.NewServer(t)
	p := program.Serve(t, data, model)
	keyed := func(key string) *testenv.Actor { return p.Owner(t, data, model).With(idempotencyKey, key) }
	restart := func() {
		t.Helper()
		if code := p.End(t, syscall.SIGKILL); code != -1 {
			t.Fatalf("the process ended by itself: exit code %d", code)
		}
		p = program.Serve(t, data, model)
	}
	keyed("x").Install(talking("one"))
	keyed("x").Upload(asker())

	// In the middle of a model call: nothing is stored, the repeat makes it.
	keyed("before").Hold(t.Context(), botMethod, "id", "before", "msg", "U1")
	restart()
	if out := keyed("before").Chat(botMethod, "id", "before", "msg", "U1"); out.Replayed {
		t.Errorf("a call that was cut short replays %+v", out)
	}
	if out := keyed("before").Chat(botMethod, "id", "before", "msg", "U1"); !out.Replayed {
		t.Errorf("the next one is %+v", out)
	}
	if n := len(keyed("x").Stored("bot", "before")); n != 3 {
		t.Errorf("%d messages are stored", n)
	}

	// As soon as anybody can see the turn, its answer is there as well.
	for round := range 5 {
		id := fmt.Sprint("after-", round)
		calls := len(model.Calls())
		first := keyed(id).Begin(t.Context(), botMethod, "id", id, "msg", "U1")
		testproc.Until(t, "a turn that is stored", func() bool { return len(keyed("x").Stored("bot", id)) == 3 })
		restart()
		<-first // whether it got its answer or not
		out := keyed(id).Chat(botMethod, "id", id, "msg", "U1")
		if n := len(model.Calls()) - calls; !out.Replayed || n != 1 {
			t.Errorf("the repeat is %+v, after %d model calls", out, n)
		}
		if n := len(keyed("x").Stored("bot", id)); n != 3 {
			t.Errorf("%d messages are stored", n)
		}
	}

	// A handler may have done anything.
	keyed("handler").Hold(t.Context(), askMethod)
	restart()
	calls := len(model.Calls())
	for range 2 {
		keyed("handler").WantCode(abi.IdempotencyInterrupted).Chat(askMethod)
	}
	if n := len(model.Calls()); n != calls {
		t.Errorf("it ran again: %d model calls", n-calls)
	}
	if out := keyed("another").Chat(askMethod); out.Output != "asked" || out.Replayed {
		t.Errorf("with another key it is %+v", out)
	}
	restart()
	if out := keyed("another").Chat(askMethod); out.Output != "asked" || !out.Replayed {
		t.Errorf("after the next kill it is %+v", out)
	}
	keyed("handler").WantCode(abi.IdempotencyInterrupted).Chat(askMethod)
}
