package openai_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"time"
	"unicode/utf8"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/model"
	"github.com/carrelhost/carrel/host/model/modeltest"
	"github.com/carrelhost/carrel/host/model/openai"
)

// from returns a provider that gets this answer to every call.
func from(t testing.TB, c openai.Config, kind, body string) *openai.Provider {
	c.Transport = roundTripper(func(*http.Request) (*http.Response, error) { return answer(kind, body), nil })
	return open(t, c)
}

func discard(string) error { return nil }

func TestAnswersOfOtherServers(t *testing.T) {
	const stream = "text/event-stream"
	for name, tc := range map[string]struct {
		kind, body string
		want       model.Response
	}{
		"content in parts": {"application/json",
			`{"choices":[{"message":{"content":[{"type":"thinking","thinking":[]},{"type":"text","text":"a"},{"type":"text","text":"b"}]},"finish_reason":"stop"}]}`,
			model.Response{Text: "ab", FinishReason: model.FinishStop, Model: "m"}},
		"counts that were computed": {"application/json",
			`{"choices":[{"message":{"content":"a"},"finish_reason":"eos_token"}],"usage":{"prompt_tokens":5.0,"completion_tokens":-1}}`,
			model.Response{Text: "a", FinishReason: model.FinishStop, Model: "m", Usage: carrel.Usage{InputTokens: 5}}},
		"an empty error object": {"application/json",
			`{"error":{},"choices":[{"message":{"content":"a"},"finish_reason":"length"}]}`,
			model.Response{Text: "a", FinishReason: model.FinishLength, Model: "m"}},
		"a second choice that was not asked for": {stream,
			"data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}},{\"index\":1,\"delta\":{\"content\":\"b\"},\"finish_reason\":\"length\"}]}\n\n" +
				"data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"eos\"}]}\n\ndata: [DONE]\n\n",
			model.Response{Text: "a", FinishReason: model.FinishStop, Model: "m"}},
		"an event whose data has two lines": {stream,
			"data: {\"choices\":[{\"index\":0,\ndata: \"delta\":{\"content\":\"a\"},\"finish_reason\":\"stop\"}]}\n\n",
			model.Response{Text: "a", FinishReason: model.FinishStop, Model: "m"}},
		"usage behind the finish reason": {stream,
			"data: {\"model\":\"m-1\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"},\"finish_reason\":\"stop\"}]}\n\n" +
				"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":1}}\n\ndata: [DONE]\n\n",
			model.Response{Text: "a", FinishReason: model.FinishStop, Model: "m-1", Usage: carrel.Usage{InputTokens: 3, OutputTokens: 1}}},
	} {
		t.Run(name, func(t *testing.T) {
			var onDelta func(string) error
			if tc.kind == stream {
				onDelta = discard
			}
			got, err := from(t, openai.Config{}, tc.kind, tc.body).Generate(t.Context(), hi(), onDelta)
			if err != nil || got != tc.want {
				t.Errorf("%+v, error %v; want %+v", got, err, tc.want)
			}
		})
	}
}

func TestMaxAnswerBytes(t *testing.T) {
	whole := `{"choices":[{"message":{"content":"` + strings.Repeat("x", 1000) + `"}}]}`
	streamOf := func(pieces, size int) string {
		return strings.Repeat(`data: {"choices":[{"index":0,"delta":{"content":"`+strings.Repeat("x", size)+`"}}]}`+"\n\n", pieces) +
			"data: [DONE]\n\n"
	}
	for name, tc := range map[string]struct {
		kind, body string
		limit      int
		fits       bool
	}{
		"a body as large as the limit":           {"application/json", whole, len(whole), true},
		"a body one byte larger":                 {"application/json", whole, len(whole) - 1, false},
		"streamed texts as large as the limit":   {"text/event-stream", streamOf(100, 10), 1000, true},
		"streamed texts one byte larger":         {"text/event-stream", streamOf(100, 10), 999, false},
		"one event larger than the limit":        {"text/event-stream", ": " + strings.Repeat("x", 2000) + "\n\n" + streamOf(1, 1), 1000, false},
		"letter by letter":                       {"text/event-stream", streamOf(1000, 1), 1000, true},
		"events without text far over the limit": {"text/event-stream", strings.Repeat(": keep-alive\n\n", 20000) + streamOf(1, 1), 1000, false},
	} {
		t.Run(name, func(t *testing.T) {
			var onDelta func(string) error
			if tc.kind == "text/event-stream" {
				onDelta = discard
			}
			p := from(t, openai.Config{MaxAnswerBytes: int64(tc.limit)}, tc.kind, tc.body)
			_, err := p.Generate(t.Context(), hi(), onDelta)
			if tc.fits {
				if err != nil {
					t.Error(err)
				}
				return
			}
			e, ok := errors.AsType[*carrel.Error](err)
			if !ok || e.Code != abi.ModelFailed || e.Limit != "answerBytes" || !strings.Contains(e.Msg, "limits.answerBytes") {
				t.Errorf("the error is %v, want model_failed with limit answerBytes", err)
			}
		})
	}
}

// body tells whether it was read to its end and closed: only then does
// net/http keep the connection for the next call.
type body struct {
	io.Reader
	ended, closed bool
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	b.ended = b.ended || errors.Is(err, io.EOF)
	return n, err
}

func (b *body) Close() error {
	b.closed = true
	return nil
}

func TestBodiesAreReadToTheirEnd(t *testing.T) {
	const done = "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"}}]}\n\ndata: [DONE]\n\n"
	for name, tc := range map[string]struct {
		status  int
		text    string
		onDelta func(string) error
	}{
		"a whole answer":    {200, `{"choices":[{"message":{"content":"hi"}}]}`, nil},
		"a streamed answer": {200, done, discard},
		"a failure":         {500, `{"error":{}}`, discard},
	} {
		t.Run(name, func(t *testing.T) {
			b := &body{Reader: strings.NewReader(tc.text)}
			p := open(t, openai.Config{Transport: roundTripper(func(*http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: tc.status, Body: b}, nil
			})})
			if _, err := p.Generate(t.Context(), hi(), tc.onDelta); (err == nil) != (tc.status == 200) {
				t.Error(err)
			}
			if !b.ended || !b.closed {
				t.Errorf("read to its end: %v, closed: %v; want both", b.ended, b.closed)
			}
		})
	}
}

func TestStreamThatStaysOpenAfterItsEnd(t *testing.T) {
	s := modeltest.NewServer(t)
	s.AnswerNext(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write([]byte("data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hi\"}}]}\n\ndata: [DONE]\n\n"))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	begun := time.Now()
	resp, err := open(t, openai.Config{BaseURL: s.BaseURL}).Generate(t.Context(), hi(), discard)
	if took := time.Since(begun); err != nil || resp.Text != "hi" || took > 5*time.Second {
		t.Errorf("text %q after %v, error %v", resp.Text, took, err)
	}
	if err := s.Gone(t.Context(), 1); err != nil {
		t.Error(err)
	}
}

func TestLogOfAFailureNamesNoContent(t *testing.T) {
	for name, tc := range map[string]struct{ body, want string }{
		"names are kept": {`{"error":{"message":"the user said SECRET","type":"invalid_request_error","code":"context_length_exceeded","param":"messages"}}`,
			"status 400, type invalid_request_error, code context_length_exceeded, param messages"},
		"a number as code":         {`{"error":{"message":"SECRET","code":400}}`, "status 400, code 400"},
		"an error that is a text":  {`{"error":"SECRET"}`, "status 400"},
		"texts in place of names":  {`{"error":{"type":"SECRET text","code":["SECRET"],"param":{"a":"SECRET"}}}`, "status 400"},
		"no JSON":                  {`SECRET`, "status 400"},
		"JSON of another protocol": {`{"detail":[{"input":"SECRET"}]}`, "status 400"},
	} {
		t.Run(name, func(t *testing.T) {
			s := modeltest.NewServer(t)
			s.FailNext(400, tc.body)
			_, err := open(t, openai.Config{BaseURL: s.BaseURL}).Generate(t.Context(), hi(), nil)
			if err == nil || !strings.HasSuffix(err.Error(), tc.want) || strings.Contains(err.Error(), "SECRET") {
				t.Errorf("the error is %v, want the end %q", err, tc.want)
			}
		})
	}
}

func TestRetryAfterByTheInjectedClock(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for header, want := range map[string]time.Duration{
		"Fri, 02 Jan 2026 03:05:05 GMT": time.Minute,
		"Fri, 02 Jan 2026 03:04:04 GMT": 0,
		"Fri, 01 Jan 2027 00:00:00 GMT": 24 * time.Hour,
		"9000000000000000000":           24 * time.Hour,
		"90":                            90 * time.Second,
		"1.5":                           0,
	} {
		s := modeltest.NewServer(t)
		s.AnswerNext(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", header)
			w.WriteHeader(http.StatusTooManyRequests)
		}))
		p := open(t, openai.Config{BaseURL: s.BaseURL, Now: func() time.Time { return now }})
		_, err := p.Generate(t.Context(), hi(), nil)
		e, ok := errors.AsType[*carrel.Error](err)
		if !ok || e.Wait != want {
			t.Errorf("%s: error %v with Wait %v, want %v", header, err, e.Wait, want)
		}
		if told := strings.Contains(e.Msg, "try again in"); told != (want > 0) {
			t.Errorf("%s: the message is %q", header, e.Msg)
		}
	}
}

// TestTimeoutsOfTheNetwork: net and net/http return timeouts that claim to be
// the context's, also while the caller's context lives.
func TestTimeoutsOfTheNetwork(t *testing.T) {
	timeout := fmt.Errorf("dial tcp: i/o timeout: %w", context.DeadlineExceeded)
	for name, transport := range map[string]roundTripper{
		"while connecting": func(*http.Request) (*http.Response, error) { return nil, timeout },
		"within the answer": func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(iotest.ErrReader(timeout))}, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, onDelta := range []func(string) error{nil, discard} {
				_, err := open(t, openai.Config{Transport: transport}).Generate(t.Context(), hi(), onDelta)
				if carrel.CodeOf(err) != abi.ModelFailed || errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("the error %v passes for the end of the caller's context", err)
				}
			}
		})
	}
}

func TestOptionThatIsNoNumber(t *testing.T) {
	s := modeltest.NewServer(t)
	r := hi()
	r.Options.Temperature = new(math.NaN())
	_, err := open(t, openai.Config{BaseURL: s.BaseURL}).Generate(t.Context(), r, nil)
	if carrel.CodeOf(err) != abi.ModelFailed || len(s.Calls()) != 0 {
		t.Errorf("error %v after %d calls, want model_failed and none", err, len(s.Calls()))
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add(false, "application/json", `{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1e300}}`)
	f.Add(false, "application/json", `{"choices":[{"message":{"content":[{"text":"\ud800"}]}}]}`)
	f.Add(true, "text/event-stream", "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"}}]}\n\ndata: [DONE]\n\n")
	f.Add(true, "text/event-stream", "event: error\r\ndata\r\n\r\n:\n\ndata: [\n")
	f.Add(true, "application/json", `{"error":{"type":"\u0000"}}`)
	f.Fuzz(func(t *testing.T, stream bool, kind, body string) {
		const limit = 512
		p := from(t, openai.Config{APIKey: modeltest.Key, MaxAnswerBytes: limit}, kind, body)
		var onDelta func(string) error
		var joined strings.Builder
		if stream {
			onDelta = func(text string) error {
				if text == "" {
					t.Error("an empty piece was passed on")
				}
				joined.WriteString(text)
				return nil
			}
		}
		resp, err := p.Generate(t.Context(), hi(), onDelta)
		if err != nil {
			if carrel.CodeOf(err) != abi.ModelFailed || resp != (model.Response{}) {
				t.Errorf("response %+v, error %v", resp, err)
			}
			return
		}
		if stream && joined.String() != resp.Text || len(resp.Text) > limit || !utf8.ValidString(resp.Text) {
			t.Errorf("pieces %q, text %q", joined.String(), resp.Text)
		}
		if u := resp.Usage; u.InputTokens < 0 || u.OutputTokens < 0 {
			t.Errorf("usage %+v", u)
		}
	})
}
