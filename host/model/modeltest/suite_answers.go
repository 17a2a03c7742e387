package modeltest

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/host/model"
)

// testAnswers checks what a provider makes of good answers.
func testAnswers(t *testing.T, open opener) {
	for mode, stream := range modes {
		t.Run(mode+": text, reason, model and usage are there", func(t *testing.T) {
			f := open.start(t)
			f.server.Reply("the answer is 42", "")
			got, _ := f.must(ask("what is it?"), stream)
			want := model.Response{
				Text: "the answer is 42", FinishReason: model.FinishStop, Model: "m1",
				Usage: carrel.Usage{InputTokens: 3, OutputTokens: 4},
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("response (-want +got):\n%s", diff)
			}
			if got, pieces := f.must(ask("say nothing"), stream); got.Text != "" || len(pieces) != 0 {
				t.Errorf("an empty answer is %q in pieces %q", got.Text, pieces)
			}
		})
	}
	t.Run("pieces are passed on unmerged", func(t *testing.T) {
		f := open.start(t)
		want := []string{"a", " ", "日", "\n\n", "b c", "\x00"}
		f.server.ReplyPieces(want...)
		if _, got := f.must(ask("hi"), true); !slices.Equal(got, want) {
			t.Errorf("pieces are %q, want %q", got, want)
		}
	})
	t.Run("a piece is passed on before the next one is sent", func(t *testing.T) {
		f := open.start(t)
		release := f.server.HoldAfter(1)
		f.server.ReplyPieces("one", "two")
		var got []string
		_, err := f.provider.Generate(f.patient(), ask("hi"), func(text string) error {
			got = append(got, text)
			release() // never reached if the provider waits for more
			return nil
		})
		if err != nil || !slices.Equal(got, []string{"one", "two"}) {
			t.Errorf("pieces are %q, error %v", got, err)
		}
	})
	for wire, want := range map[string]model.FinishReason{
		`"stop"`:           model.FinishStop,
		`"length"`:         model.FinishLength,
		`"content_filter"`: model.FinishFilter,
		`"tool_calls"`:     model.FinishUnknown,
		`"new_reason"`:     model.FinishUnknown,
	} {
		t.Run("finish reason "+wire, func(t *testing.T) {
			f := open.start(t)
			f.server.AnswerNext(sends("application/json",
				`{"choices":[{"index":0,"message":{"content":"x"},"finish_reason":`+wire+`}]}`))
			f.server.AnswerNext(sends("text/event-stream",
				event(`{"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":`+wire+`}]}`)+event("[DONE]")))
			for _, stream := range []bool{false, true} {
				if got, _ := f.must(ask("hi"), stream); got.FinishReason != want || got.Text != "x" {
					t.Errorf("streamed %v: %+v, want reason %q", stream, got, want)
				}
			}
		})
	}
	testTolerance(t, open)
}

// testTolerance checks answers as other servers than OpenAI give them.
func testTolerance(t *testing.T, open opener) {
	hi := model.Response{Text: "hi", FinishReason: model.FinishStop, Model: "m1"}
	with := func(change func(*model.Response)) model.Response {
		r := hi
		change(&r)
		return r
	}
	counted := with(func(r *model.Response) { r.Usage = carrel.Usage{InputTokens: 5, OutputTokens: 2} })
	const finished = `{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`
	const said = `{"choices":[{"index":0,"delta":{"role":"assistant","content":"hi"},"finish_reason":null}]}`
	for name, tc := range map[string]struct {
		stream bool
		body   string
		want   model.Response
	}{
		"no usage and no model": {false,
			`{"choices":[{"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}]}`, hi},
		"usage null, unknown fields everywhere": {false,
			`{"id":7,"created":1.5,"x":{"y":[1]},"error":null,"usage":null,"choices":[{"index":0,"stop_reason":32,"logprobs":null,
			"message":{"role":"assistant","content":"hi","reasoning":"hm","tool_calls":[],"audio":null},"finish_reason":"stop"}]}`, hi},
		"usage with more than two counts": {false,
			`{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}],
			"usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7,"prompt_tokens_details":{"cached_tokens":1},"cost":0.1}}`, counted},
		"content null": {false, `{"choices":[{"message":{"content":null},"finish_reason":"stop"}]}`,
			with(func(r *model.Response) { r.Text = "" })},
		"no finish reason": {false, `{"choices":[{"message":{"content":"hi"}}]}`,
			with(func(r *model.Response) { r.FinishReason = model.FinishUnknown })},
		"the model by its full name": {false,
			`{"model":"m1-2026-01","choices":[{"message":{"content":"hi"},"finish_reason":"stop"}]}`,
			with(func(r *model.Response) { r.Model = "m1-2026-01" })},

		"stream without usage": {true, event(said) + event(finished) + event("[DONE]"), hi},
		"stream that ends without DONE but with a finish reason": {true, event(said) + event(finished), hi},
		"stream that ends with DONE but without a finish reason": {true, event(said) + event("[DONE]"),
			with(func(r *model.Response) { r.FinishReason = model.FinishUnknown })},
		"stream with usage in every event": {true,
			event(`{"choices":[{"index":0,"delta":{"content":"hi"}}],"usage":{"prompt_tokens":5,"completion_tokens":1}}`) +
				event(`{"choices":[{"index":0,"delta":{"content":""},"finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":2}}`) +
				event("[DONE]"), counted},
		"stream with comments, other fields, CRLF and no space": {true,
			": PROCESSING\r\n\r\n:\n\nevent: message\r\nid: 1\r\nretry: 5\r\ndata:" + said + "\r\n\r\n" +
				strings.Repeat(": keep-alive\n\n", 1000) + event(finished) + "data:[DONE]\n\n", hi},
		"stream with unknown fields": {true,
			event(`{"choices":[],"prompt_filter_results":[{"prompt_index":0}],"created":1.5,"id":7}`) +
				event(`{"error":null,"choices":[{"index":0,"delta":{"content":"hi","reasoning_content":"hm"},"token_ids":null}],"x":1}`) +
				event(finished) + event("[DONE]"), hi},
		"stream whose last line has no end": {true, event(said) + event(finished) + "data: [DONE]", hi},
	} {
		t.Run(name, func(t *testing.T) {
			f := open.start(t)
			kind := "application/json"
			if tc.stream {
				kind = "text/event-stream"
			}
			f.server.AnswerNext(sends(kind, tc.body))
			got, _ := f.must(ask("hi"), tc.stream)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("response (-want +got):\n%s", diff)
			}
		})
	}
	t.Run("an answer in one piece to a call that asked for a stream", func(t *testing.T) {
		f := open.start(t)
		f.server.AnswerNext(sends("application/json; charset=utf-8",
			`{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}]}`))
		got, pieces := f.must(ask("hi"), true)
		if got != hi || !slices.Equal(pieces, []string{"hi"}) {
			t.Errorf("%+v in pieces %q", got, pieces)
		}
	})
}

// testConcurrency checks that calls do not see each other.
func testConcurrency(t *testing.T, open opener) {
	f := open.start(t)
	const calls = 20
	var done sync.WaitGroup
	for i := range calls {
		done.Go(func() {
			question := fmt.Sprintf("question %d", i)
			var onDelta func(string) error
			var pieces strings.Builder
			if i%2 == 0 {
				onDelta = func(text string) error { pieces.WriteString(text); return nil }
			}
			resp, err := f.provider.Generate(f.patient(), ask(question), onDelta)
			if err != nil {
				t.Errorf("%s: %v", question, err)
				return
			}
			var n int
			if _, err := fmt.Sscanf(resp.Text, "A%d", &n); err != nil {
				t.Errorf("%s: answer %q", question, resp.Text)
				return
			}
			if got := f.server.Send(n); !slices.Equal(got, []string{"user:" + question}) {
				t.Errorf("%s got the answer to %q", question, got)
			}
			if onDelta != nil && pieces.String() != resp.Text {
				t.Errorf("%s: pieces %q of text %q", question, pieces.String(), resp.Text)
			}
		})
	}
	done.Wait()
	if n := len(f.server.Calls()); n != calls {
		t.Errorf("%d calls arrived, want %d", n, calls)
	}
	if err := f.server.Gone(context.Background(), 1); err == nil {
		t.Error("the client of call 1 is gone, want its whole answer taken")
	}
}

// sends answers with a body of the given type.
func sends(kind, body string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind)
		_, _ = w.Write([]byte(body))
	})
}

// event is one server-sent event.
func event(data string) string { return "data: " + data + "\n\n" }
