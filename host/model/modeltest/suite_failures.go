package modeltest

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

// testFailures checks what a provider makes of bad answers and of none.
func testFailures(t *testing.T, open opener) {
	for mode, stream := range modes {
		t.Run(mode, func(t *testing.T) {
			testStatuses(t, open, stream)
			testEndless(t, open, stream)
			t.Run("nobody listens", func(t *testing.T) {
				f := open.start(t)
				f.server.Close()
				_, _, err := f.generate(f.patient(), ask("hi"), stream)
				f.wantFailed(err)
			})
			t.Run("a redirect is not followed", func(t *testing.T) {
				f := open.start(t)
				elsewhere := NewServer(t)
				for _, status := range []int{301, 302, 307, 308} {
					f.server.AnswerNext(http.RedirectHandler(elsewhere.BaseURL+"/chat/completions", status))
					_, _, err := f.generate(f.patient(), ask("hi"), stream)
					f.wantFailed(err, strings.TrimPrefix(elsewhere.BaseURL, "http://"))
				}
				if calls := elsewhere.Calls(); len(calls) > 0 {
					t.Errorf("%d calls were made elsewhere", len(calls))
				}
			})
			t.Run("a provider works on after a failure", func(t *testing.T) {
				f := open.start(t)
				f.server.FailNext(500, "")
				_, _, err := f.generate(f.patient(), ask("hi"), stream)
				f.wantFailed(err)
				if got, _ := f.must(ask("hi"), stream); got.Text != "A2" {
					t.Errorf("the answer is %q, want A2", got.Text)
				}
			})
		})
	}
	testNonsense(t, open)
}

func testStatuses(t *testing.T, open opener, stream bool) {
	const secret = "what the upstream said"
	body := fmt.Sprintf(`{"error":{"message":%q,"type":%q,"code":%q,"param":null}}`, secret+" "+Key, Key, Key)
	for _, status := range []int{204, 400, 401, 403, 404, 408, 413, 422, 429, 500, 502, 503, 529} {
		t.Run("status "+strconv.Itoa(status), func(t *testing.T) {
			f := open.start(t)
			f.server.FailNext(status, body)
			_, pieces, err := f.generate(f.patient(), ask("hi"), stream)
			e := f.failure(err, secret)
			if status >= 400 && !strings.Contains(e.Msg, strconv.Itoa(status)) {
				t.Errorf("the message %q does not say the status", e.Msg)
			}
			if len(pieces) > 0 {
				t.Errorf("pieces %q were passed on", pieces)
			}
			if e.Wait != 0 {
				t.Errorf("Wait is %v, but the server said nothing", e.Wait)
			}
			if n := len(f.server.Calls()); n != 1 {
				t.Errorf("the provider called %d times, and retries are not its business", n)
			}
		})
	}
	for name, tc := range map[string]struct {
		status int
		header string
		least  time.Duration
		most   time.Duration
	}{
		"429 with seconds":  {429, "20", 20 * time.Second, 20 * time.Second},
		"503 with seconds":  {503, "1", time.Second, time.Second},
		"429 with a date":   {429, time.Now().Add(30 * time.Second).UTC().Format(http.TimeFormat), 20 * time.Second, 30 * time.Second},
		"429 with the past": {429, "Mon, 02 Jan 2006 15:04:05 GMT", 0, 0},
		"429 with nonsense": {429, "soon", 0, 0},
		"503 below zero":    {503, "-5", 0, 0},
	} {
		t.Run("Retry-After, status "+name, func(t *testing.T) {
			f := open.start(t)
			f.server.AnswerNext(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", tc.header)
				w.WriteHeader(tc.status)
			}))
			_, _, err := f.generate(f.patient(), ask("hi"), stream)
			if e := f.failure(err); e.Wait < tc.least || e.Wait > tc.most {
				t.Errorf("Wait is %v, want from %v to %v", e.Wait, tc.least, tc.most)
			}
		})
	}
}

// testNonsense checks answers that are no answers.
func testNonsense(t *testing.T, open opener) {
	const said = `{"choices":[{"index":0,"delta":{"content":"hi"}}]}`
	for name, tc := range map[string]struct {
		stream bool
		kind   string
		body   string
	}{
		"an empty body":                     {false, "application/json", ""},
		"a web page":                        {false, "text/html", "<html>log in</html>"},
		"half an answer":                    {false, "application/json", `{"choices":[{"message":{"content":"hi"`},
		"something behind the answer":       {false, "application/json", `{"choices":[{"message":{"content":"hi"}}]} oops`},
		"no choice":                         {false, "application/json", `{"choices":[]}`},
		"choices null":                      {false, "application/json", `{"choices":null,"usage":{}}`},
		"a number as content":               {false, "application/json", `{"choices":[{"message":{"content":5}}]}`},
		"an error with status 200":          {false, "application/json", `{"error":{"message":"no","code":500},"choices":[{"message":{"content":"hi"}}]}`},
		"an error text with status 200":     {false, "application/json", `{"error":"no"}`},
		"stream: empty":                     {true, "text/event-stream", ""},
		"stream: a web page":                {true, "text/html", "<html>log in</html>"},
		"stream: garbage in an event":       {true, "text/event-stream", event(said) + event("{") + event("[DONE]")},
		"stream: cut between events":        {true, "text/event-stream", event(said)},
		"stream: cut within an event":       {true, "text/event-stream", event(said) + `data: {"choices":[{"ind`},
		"stream: only DONE":                 {true, "text/event-stream", event("[DONE]")},
		"stream: no choice":                 {true, "text/event-stream", event(`{"choices":[]}`) + event("[DONE]")},
		"stream: an error object":           {true, "text/event-stream", event(said) + event(`{"error":{"message":"no","type":"server_error"}}`) + event("[DONE]")},
		"stream: an error behind an id":     {true, "text/event-stream", event(said) + event(`{"id":"x","choices":[],"error":{"message":"no"}}`) + event("[DONE]")},
		"stream: an error after the reason": {true, "text/event-stream", event(`{"choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":"stop"}]}`) + event(`{"error":{"message":"no"}}`)},
		"stream: an event named error":      {true, "text/event-stream", event(said) + "event: error\n" + event(`{"message":"no"}`) + event("[DONE]")},
		"stream: no choice, in one piece":   {true, "application/json", `{"choices":[]}`},
	} {
		t.Run(name, func(t *testing.T) {
			f := open.start(t)
			f.server.AnswerNext(sends(tc.kind, tc.body))
			_, _, err := f.generate(f.patient(), ask("hi"), tc.stream)
			f.wantFailed(err)
		})
	}
	for mode, stream := range modes {
		t.Run(mode+": the connection breaks within the answer", func(t *testing.T) {
			f := open.start(t)
			f.server.AnswerNext(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if stream {
					w.Header().Set("Content-Type", "text/event-stream")
					_, _ = w.Write([]byte(event(`{"choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":"stop"}]}`)))
				} else {
					_, _ = w.Write([]byte(`{"choices":[{"message":{"content":"hi"}}]}`))
				}
				_ = http.NewResponseController(w).Flush()
				panic(http.ErrAbortHandler) // cuts the connection without an end of the body
			}))
			_, _, err := f.generate(f.patient(), ask("hi"), stream)
			f.wantFailed(err)
		})
		t.Run(mode+": the connection breaks before the answer", func(t *testing.T) {
			f := open.start(t)
			f.server.AnswerNext(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				conn, _, err := http.NewResponseController(w).Hijack()
				if err != nil {
					t.Errorf("Hijack: %v", err)
					return
				}
				_ = conn.Close()
			}))
			_, _, err := f.generate(f.patient(), ask("hi"), stream)
			f.wantFailed(err)
		})
	}
}

// endless bounds an endless answer in case that a provider reads it all.
const endless = 1 << 30

// testEndless checks that a provider hangs up on an answer that does not end.
func testEndless(t *testing.T, open opener, stream bool) {
	letters := strings.Repeat("x", 64<<10)
	type part struct {
		status            int
		kind, head, again string
	}
	cases := map[string]part{
		"a text that does not end": {200, "application/json", `{"choices":[{"message":{"content":"`, letters},
	}
	if stream {
		cases = map[string]part{
			"texts that do not end":     {200, "text/event-stream", "", event(`{"choices":[{"index":0,"delta":{"content":"` + letters + `"}}]}`)},
			"an event that has no end":  {200, "text/event-stream", "data: ", letters},
			"an event of endless lines": {200, "text/event-stream", "", "data: " + letters + "\n"},
			"a text in one piece that does not end": {200, "application/json",
				`{"choices":[{"message":{"content":"`, letters},
		}
	}
	for name, p := range cases {
		t.Run(name, func(t *testing.T) {
			f := open.start(t)
			f.server.AnswerNext(repeat(p.status, p.kind, p.head, p.again))
			_, _, err := f.generate(f.patient(), ask("hi"), stream)
			if e := f.failure(err); e.Limit == "" {
				t.Errorf("the error %v names no limit", e)
			}
			f.within("the provider hangs up", f.gone)
		})
	}
	t.Run("an error that does not end", func(t *testing.T) {
		f := open.start(t)
		f.server.AnswerNext(repeat(500, "application/json", `{"error":"`, letters))
		_, _, err := f.generate(f.patient(), ask("hi"), stream)
		f.wantFailed(err)
		f.within("the provider hangs up", f.gone)
	})
}

// repeat answers with head and then again and again, until the client has
// enough.
func repeat(status int, kind, head, again string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", kind)
		w.WriteHeader(status)
		_, err := w.Write([]byte(head))
		for sent := 0; err == nil && sent < endless && r.Context().Err() == nil; sent += len(again) {
			_, err = w.Write([]byte(again))
		}
		if err != nil {
			<-r.Context().Done() // a failed write is how the client's end shows first
		}
	})
}
