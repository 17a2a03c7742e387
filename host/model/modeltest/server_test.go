package modeltest_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/model/modeltest"
)

// start returns a server and a client of its own, and checks at the end that
// neither leaves a goroutine.
func start(t *testing.T) (*modeltest.Server, *http.Client, context.Context) {
	t.Helper()
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) })
	s := modeltest.NewServer(t)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	t.Cleanup(cancel)
	return s, &http.Client{Transport: transport}, ctx
}

// post sends a body and returns the status and the answer's body.
func post(ctx context.Context, t *testing.T, c *http.Client, s *modeltest.Server, body string) (int, string) {
	t.Helper()
	res, err := send(ctx, c, s, body)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(data)
}

func send(ctx context.Context, c *http.Client, s *modeltest.Server, body string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.BaseURL+"/chat/completions", strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	return c.Do(req)
}

// text returns the content of a whole answer.
func text(t *testing.T, body string) string {
	t.Helper()
	var a struct {
		Choices []struct{ Message struct{ Content string } }
	}
	if err := json.Unmarshal([]byte(body), &a); err != nil || len(a.Choices) != 1 {
		t.Fatalf("answer %q: %v", body, err)
	}
	return a.Choices[0].Message.Content
}

const (
	hi       = `{"model":"m","messages":[{"role":"user","content":"hi"}]}`
	hiStream = `{"model":"m","stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"hi"}]}`
)

func TestAnswersInOrder(t *testing.T) {
	s, c, ctx := start(t)
	s.Reply("one", "two")
	s.FailNext(418, `{"error":{"message":"short and stout"}}`)
	s.AnswerNext(http.RedirectHandler("/v1/elsewhere", http.StatusSeeOther))
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	for i, want := range []struct {
		status int
		text   string
	}{{200, "one"}, {200, "two"}, {418, ""}, {303, ""}, {200, "A5"}, {200, "A6"}} {
		status, body := post(ctx, t, c, s, hi)
		if status != want.status {
			t.Errorf("call %d: status %d, want %d", i+1, status, want.status)
		}
		if status == 200 && text(t, body) != want.text {
			t.Errorf("call %d: answer %q, want %q", i+1, text(t, body), want.text)
		}
		if status == 418 && !strings.Contains(body, "short and stout") {
			t.Errorf("call %d: body %q", i+1, body)
		}
	}
}

func TestStream(t *testing.T) {
	s, c, ctx := start(t)
	s.ReplyPieces("a b", " c")
	_, got := post(ctx, t, c, s, hiStream)
	const head = `data: {"choices":[{"delta":`
	const tail = `"created":1,"id":"chatcmpl-1","model":"m","object":"chat.completion.chunk","usage":`
	want := head + `{"content":"","role":"assistant"},"finish_reason":null,"index":0}],` + tail + "null}\n\n" +
		head + `{"content":"a b"},"finish_reason":null,"index":0}],` + tail + "null}\n\n" +
		head + `{"content":" c"},"finish_reason":null,"index":0}],` + tail + "null}\n\n" +
		head + `{},"finish_reason":"stop","index":0}],` + tail + "null}\n\n" +
		`data: {"choices":[],` + tail + `{"completion_tokens":3,"prompt_tokens":1,"total_tokens":4}}` + "\n\n" +
		"data: [DONE]\n\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("stream (-want +got):\n%s", diff)
	}
	_, got = post(ctx, t, c, s, strings.Replace(hiStream, `"stream_options":{"include_usage":true},`, "", 1))
	if strings.Contains(got, "usage") || !strings.HasSuffix(got, "data: [DONE]\n\n") {
		t.Errorf("a stream without include_usage is %s", got)
	}
}

func TestRecords(t *testing.T) {
	s, c, ctx := start(t)
	const body = `{"model":"m","temperature":0,"max_completion_tokens":5,"stop":"END","seed":1,"extra":true,"messages":[
		{"role":"system","content":"You are nice"},
		{"role":"user","content":"add"},
		{"role":"assistant","content":null,"tool_calls":[
			{"id":"c1","type":"function","function":{"name":"add","arguments":"{\"a\":1}"}},
			{"id":"c2","type":"function","function":{"name":"now","arguments":"{}"}}]},
		{"role":"tool","tool_call_id":"c1","content":"3"},
		{"role":"tool","tool_call_id":"c2","content":""}]}`
	post(ctx, t, c, s, body)
	post(ctx, t, c, s, hiStream)
	calls := s.Calls()
	if len(calls) != 2 || string(calls[0].Body) != body || calls[0].Stream || !calls[1].Stream || calls[1].N != 2 {
		t.Fatalf("calls %+v", calls)
	}
	want := []carrel.Message{
		{Role: carrel.RoleSystem, Content: "You are nice"},
		{Role: carrel.RoleUser, Content: "add"},
		{Role: carrel.RoleAssistant, ToolCalls: []carrel.ToolCall{
			{ID: "c1", Name: "add", Args: json.RawMessage(`{"a":1}`)}, {ID: "c2", Name: "now", Args: json.RawMessage(`{}`)},
		}},
		{Role: carrel.RoleTool, Content: "3", ToolCallID: "c1"},
		{Role: carrel.RoleTool, ToolCallID: "c2"},
	}
	if diff := cmp.Diff(want, calls[0].Messages); diff != "" {
		t.Errorf("messages (-want +got):\n%s", diff)
	}
	options := abi.Generation{Temperature: new(0.0), MaxOutputTokens: new(5), Stop: []string{"END"}, RandomSeed: new(int64(1))}
	if diff := cmp.Diff(options, calls[0].Options); diff != "" {
		t.Errorf("options (-want +got):\n%s", diff)
	}
	compact := []string{"system:You are nice", "user:add", `assistant: [c1 add {"a":1}] [c2 now {}]`, "tool:c1:3", "tool:c2:"}
	if diff := cmp.Diff(compact, s.Send(1)); diff != "" {
		t.Errorf("send 1 (-want +got):\n%s", diff)
	}
	if got := s.Send(2); !slices.Equal(got, []string{"user:hi"}) {
		t.Errorf("send 2 is %q", got)
	}
	if s.Send(0) != nil || s.Send(3) != nil {
		t.Errorf("sends that never were: %q, %q", s.Send(0), s.Send(3))
	}
}

func TestRefusesWhatAModelServerRefuses(t *testing.T) {
	s, c, ctx := start(t)
	for name, body := range map[string]string{
		"no JSON":                       `{`,
		"no model":                      `{"messages":[{"role":"user","content":"hi"}]}`,
		"no messages":                   `{"model":"m","messages":[]}`,
		"an unknown role":               `{"model":"m","messages":[{"role":"User","content":"hi"}]}`,
		"a user message without text":   `{"model":"m","messages":[{"role":"user"}]}`,
		"a result without a call id":    `{"model":"m","messages":[{"role":"tool","content":"3"}]}`,
		"a call id of a user":           `{"model":"m","messages":[{"role":"user","content":"3","tool_call_id":"c"}]}`,
		"arguments that are not text":   `{"model":"m","messages":[{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":{}}}]}]}`,
		"arguments that are not JSON":   `{"model":"m","messages":[{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{"}}]}]}`,
		"a tool call of a user":         `{"model":"m","messages":[{"role":"user","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]}]}`,
		"both names of maxOutputTokens": `{"model":"m","max_tokens":1,"max_completion_tokens":1,"messages":[{"role":"user","content":"hi"}]}`,
		"usage of no stream":            strings.Replace(hiStream, `"stream":true`, `"stream":false`, 1),
	} {
		if status, answer := post(ctx, t, c, s, body); status != 400 || !strings.Contains(answer, `"error"`) {
			t.Errorf("%s: status %d, body %s", name, status, answer)
		}
	}
	if n := len(s.Calls()); n != 0 {
		t.Errorf("%d refused requests were recorded", n)
	}
}

func TestHold(t *testing.T) {
	t.Run("a held call waits for its release", func(t *testing.T) {
		s, c, ctx := start(t)
		release := s.Hold()
		answer := make(chan string, 1)
		go func() {
			res, err := send(ctx, c, s, hi)
			if err != nil {
				answer <- err.Error()
				return
			}
			defer func() { _ = res.Body.Close() }()
			data, _ := io.ReadAll(res.Body)
			answer <- string(data)
		}()
		if err := s.Arrived(ctx, 1); err != nil {
			t.Fatal(err)
		}
		if _, body := post(ctx, t, c, s, hi); text(t, body) != "A2" { // only one call is held
			t.Errorf("the second answer is %s", body)
		}
		select {
		case got := <-answer:
			t.Errorf("the held call got %s before its release", got)
		default:
		}
		release()
		release()
		if got := text(t, <-answer); got != "A1" {
			t.Errorf("the held call got %q, want A1", got)
		}
		if err := s.Gone(ctx, 1); err == nil {
			t.Error("the client of an answered call is gone")
		}
	})
	t.Run("a stream is held after its first pieces", func(t *testing.T) {
		s, c, ctx := start(t)
		release := s.HoldAfter(2)
		s.Reply("a b c")
		res, err := send(ctx, c, s, hiStream)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		in := bufio.NewReader(res.Body)
		for _, want := range []string{`{"content":"","role":"assistant"}`, `{"content":"a"}`, `{"content":" b"}`} {
			if line, err := in.ReadString('\n'); err != nil || !strings.Contains(line, want) {
				t.Fatalf("line %q, error %v, want %s", line, err, want)
			}
			_, _ = in.ReadString('\n')
		}
		if n := in.Buffered(); n > 0 {
			t.Errorf("%d bytes were sent beyond the hold", n)
		}
		release()
		if rest, err := io.ReadAll(in); err != nil || !strings.Contains(string(rest), `{"content":" c"}`) {
			t.Errorf("the rest is %q, error %v", rest, err)
		}
	})
	t.Run("a client that goes away is noticed", func(t *testing.T) {
		for _, body := range []string{hi, hiStream} {
			s, c, ctx := start(t)
			s.Hold()
			inner, cancel := context.WithCancel(ctx)
			result := make(chan error, 1)
			go func() {
				res, err := send(inner, c, s, body)
				if err == nil {
					_ = res.Body.Close()
				}
				result <- err
			}()
			if err := s.Arrived(ctx, 1); err != nil {
				t.Fatal(err)
			}
			cancel()
			if err := <-result; err == nil {
				t.Error("the cancelled call got an answer")
			}
			if err := s.Gone(ctx, 1); err != nil {
				t.Error(err)
			}
		}
	})
	t.Run("close ends held calls and waiters", func(t *testing.T) {
		s, c, ctx := start(t)
		s.Hold()
		results := make(chan error, 3)
		go func() {
			res, err := send(ctx, c, s, hi)
			if err == nil {
				_ = res.Body.Close()
			}
			results <- err
		}()
		if err := s.Arrived(ctx, 1); err != nil {
			t.Fatal(err)
		}
		go func() { results <- s.Arrived(ctx, 2) }()
		go func() { results <- s.Gone(ctx, 7) }()
		s.Close()
		s.Close()
		for range cap(results) {
			if err := <-results; err == nil {
				t.Error("nil, want an error that says the server is closed")
			}
		}
		if ctx.Err() != nil {
			t.Error("something waited for the end of its context")
		}
	})
	t.Run("a waiter ends with its context", func(t *testing.T) {
		s, _, ctx := start(t)
		inner, cancel := context.WithCancel(ctx)
		cancel()
		if err := s.Arrived(inner, 1); err == nil {
			t.Error("Arrived is nil, but nothing arrived")
		}
		if err := s.Gone(inner, 1); err == nil {
			t.Error("Gone is nil, but nobody was there")
		}
	})
}

func TestTwoServersAtOnce(t *testing.T) {
	a, c, ctx := start(t)
	b, err := modeltest.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	b.Reply("from b")
	if _, body := post(ctx, t, c, a, hi); text(t, body) != "A1" {
		t.Errorf("a answers %s", body)
	}
	if _, body := post(ctx, t, c, b, hi); text(t, body) != "from b" || len(a.Calls()) != 1 {
		t.Errorf("b answers %s, and a has %d calls", body, len(a.Calls()))
	}
}
