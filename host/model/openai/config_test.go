package openai_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/model"
	"github.com/carrelhost/carrel/host/model/modeltest"
	"github.com/carrelhost/carrel/host/model/openai"
)

// roundTripper is a transport made of a function.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func hi() model.Request {
	return model.Request{Model: "m", Messages: []carrel.Message{{Role: carrel.RoleUser, Content: "hi"}}}
}

func TestNewReportsEveryFault(t *testing.T) {
	const secret = "se cret"
	for name, tc := range map[string]struct {
		config openai.Config
		faults []string // empty: it is valid
	}{
		"nothing is needed":                {openai.Config{}, nil},
		"a local server without a key":     {openai.Config{BaseURL: "http://127.0.0.1:11434/v1/"}, nil},
		"an address without a scheme":      {openai.Config{BaseURL: "127.0.0.1:11434/v1"}, []string{"BaseURL"}},
		"a scheme that is not http":        {openai.Config{BaseURL: "ftp://host/v1"}, []string{"BaseURL"}},
		"no host":                          {openai.Config{BaseURL: "http:///v1"}, []string{"BaseURL"}},
		"credentials in the address":       {openai.Config{BaseURL: "http://me:" + secret + "@host/v1"}, []string{"BaseURL"}},
		"more credentials in the address":  {openai.Config{BaseURL: "http://me:secret@host/v1"}, []string{"BaseURL"}},
		"a query":                          {openai.Config{BaseURL: "http://host/v1?key=" + "secret"}, []string{"BaseURL"}},
		"a fragment":                       {openai.Config{BaseURL: "http://host/v1#x"}, []string{"BaseURL"}},
		"a key with a space":               {openai.Config{APIKey: secret}, []string{"APIKey"}},
		"a key with a line":                {openai.Config{APIKey: "secret\n"}, []string{"APIKey"}},
		"a key that is not ASCII":          {openai.Config{APIKey: "secreté"}, []string{"APIKey"}},
		"everything at once, each is said": {openai.Config{BaseURL: "x", APIKey: secret, MaxAnswerBytes: -1, MaxTokensField: "n", HeaderTimeout: -1}, []string{"BaseURL", "APIKey", "MaxAnswerBytes", "MaxTokensField", "HeaderTimeout"}},
		"an answer beyond every memory":    {openai.Config{MaxAnswerBytes: 1 << 40}, []string{"MaxAnswerBytes"}},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := openai.New(tc.config)
			if (err == nil) != (len(tc.faults) == 0) || (p == nil) != (err != nil) {
				t.Fatalf("error %v, want faults %q", err, tc.faults)
			}
			for _, fault := range tc.faults {
				if !strings.Contains(err.Error(), fault) {
					t.Errorf("the error %q does not name %s", err, fault)
				}
			}
			if err != nil && strings.Contains(err.Error(), "cret") {
				t.Errorf("the error %q tells the secret", err)
			}
		})
	}
}

func TestMaxTokensField(t *testing.T) {
	for name, tc := range map[string]struct {
		config openai.Config
		url    string
		field  string
	}{
		"OpenAI is asked by its newer name": {openai.Config{},
			"https://api.openai.com/v1/chat/completions", `"max_completion_tokens":7`},
		"OpenAI in other letters": {openai.Config{BaseURL: "https://API.OpenAI.com/v1/"},
			"https://API.OpenAI.com/v1/chat/completions", `"max_completion_tokens":7`},
		"everybody else by the older one": {openai.Config{BaseURL: "http://127.0.0.1:11434/v1"},
			"http://127.0.0.1:11434/v1/chat/completions", `"max_tokens":7`},
		"a host that only looks like OpenAI": {openai.Config{BaseURL: "https://api.openai.com.example.org/v1"},
			"https://api.openai.com.example.org/v1/chat/completions", `"max_tokens":7`},
		"the configuration decides elsewhere": {openai.Config{BaseURL: "http://proxy/v1", MaxTokensField: openai.MaxCompletionTokens},
			"http://proxy/v1/chat/completions", `"max_completion_tokens":7`},
		"the configuration decides at OpenAI": {openai.Config{MaxTokensField: openai.MaxTokens},
			"https://api.openai.com/v1/chat/completions", `"max_tokens":7`},
	} {
		t.Run(name, func(t *testing.T) {
			var url, body string
			tc.config.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
				var b strings.Builder
				if err := r.Write(&b); err != nil {
					return nil, err
				}
				url, body = r.URL.String(), b.String()
				return answer("application/json", `{"choices":[{"message":{"content":"x"}}]}`), nil
			})
			r := hi()
			r.Options.MaxOutputTokens = new(7)
			if _, err := open(t, tc.config).Generate(t.Context(), r, nil); err != nil {
				t.Fatal(err)
			}
			if url != tc.url || !strings.Contains(body, tc.field) || strings.Count(body, "_tokens") != 1 {
				t.Errorf("POST %s with %s; want %s with %s", url, body, tc.url, tc.field)
			}
		})
	}
}

// answer is a response with status 200.
func answer(kind, body string) *http.Response {
	w := httptest.NewRecorder()
	w.Header().Set("Content-Type", kind)
	_, _ = w.WriteString(body)
	return w.Result()
}

func TestNoKeyNoAuthorization(t *testing.T) {
	s := modeltest.NewServer(t)
	if _, err := open(t, openai.Config{BaseURL: s.BaseURL}).Generate(t.Context(), hi(), nil); err != nil {
		t.Fatal(err)
	}
	if got, there := s.Calls()[0].Header["Authorization"]; there {
		t.Errorf("Authorization is %q", got)
	}
}

func TestHeadersThatComeTooLate(t *testing.T) {
	for name, onDelta := range map[string]func(string) error{"whole": nil, "streamed": discard} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := open(t, openai.Config{
					HeaderTimeout: time.Minute,
					Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
						<-r.Context().Done()
						return nil, r.Context().Err()
					}),
				})
				begun := time.Now()
				_, err := p.Generate(t.Context(), hi(), onDelta)
				if took := time.Since(begun); took != time.Minute {
					t.Errorf("the call took %v, want a minute", took)
				}
				e, ok := errors.AsType[*carrel.Error](err)
				if !ok || e.Code != abi.ModelFailed || e.Limit != "timeout" || errors.Is(err, context.Canceled) {
					t.Errorf("the error is %v, want model_failed with limit timeout", err)
				}
			})
		})
	}
	t.Run("the timeout does not bound the rest of the answer", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			body, in := io.Pipe()
			p := open(t, openai.Config{
				HeaderTimeout: time.Minute,
				Transport: roundTripper(func(*http.Request) (*http.Response, error) {
					return &http.Response{StatusCode: http.StatusOK, Body: body}, nil
				}),
			})
			time.AfterFunc(time.Hour, func() {
				_, _ = io.WriteString(in, `data: {"choices":[{"delta":{"content":"hi"},"finish_reason":"stop"}]}`+"\n\n")
				_ = in.Close()
			})
			resp, err := p.Generate(t.Context(), hi(), discard)
			if err != nil || resp.Text != "hi" {
				t.Errorf("text %q, error %v", resp.Text, err)
			}
		})
	})
}

func TestClosedProviderKeepsNoConnection(t *testing.T) {
	s := modeltest.NewServer(t)
	p := open(t, openai.Config{BaseURL: s.BaseURL})
	for range 2 {
		if _, err := p.Generate(t.Context(), hi(), nil); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(p.Close(), p.Close()); err != nil {
			t.Fatal(err)
		}
	}
	if c := s.Calls(); c[0].Remote == c[1].Remote {
		t.Errorf("both calls came from %s", c[0].Remote)
	}
}
