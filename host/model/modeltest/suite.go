package modeltest

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/model"
)

// Run checks that a provider keeps the contract of package model over HTTP,
// against a Server. open makes a provider that calls baseURL with Key as its
// API key and defaults for the rest; if it is an io.Closer it is closed when
// its case ends, and then no goroutine of it may be left.
func Run(t *testing.T, open func(t testing.TB, baseURL string) model.Provider) {
	for name, group := range map[string]func(*testing.T, opener){
		"requests":     testRequests,
		"answers":      testAnswers,
		"failures":     testFailures,
		"cancellation": testCancellation,
		"concurrency":  testConcurrency,
	} {
		t.Run(name, func(t *testing.T) { group(t, open) })
	}
}

type opener func(t testing.TB, baseURL string) model.Provider

// patience is how long a case waits for what the contract promises within a
// second, or for what must happen at once.
const patience = 10 * time.Second

// fixture is one server and one provider that calls it.
type fixture struct {
	testing.TB
	server   *Server
	provider model.Provider
}

// start makes a fixture whose end is checked for leaks.
func (open opener) start(t testing.TB) *fixture {
	t.Helper()
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) })
	server := NewServer(t)
	return &fixture{TB: t, server: server, provider: open.provider(t, server.BaseURL)}
}

// patient returns a context for what must not take long.
func (f *fixture) patient() context.Context {
	ctx, cancel := context.WithTimeout(f.Context(), patience)
	f.Cleanup(cancel)
	return ctx
}

func (open opener) provider(t testing.TB, baseURL string) model.Provider {
	t.Helper()
	p := open(t, baseURL)
	if c, ok := p.(io.Closer); ok {
		t.Cleanup(func() {
			if err := c.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		})
	}
	return p
}

// modes are the two ways to call a provider. Cases that must hold for both
// range over them.
var modes = map[string]bool{"whole": false, "streamed": true}

// generate makes a call in one of the modes. It returns the pieces that were
// passed on too, and fails the test if they are not the text.
func (f *fixture) generate(ctx context.Context, r model.Request, stream bool) (model.Response, []string, error) {
	f.Helper()
	if !stream {
		resp, err := f.provider.Generate(ctx, r, nil)
		return resp, nil, err
	}
	var pieces []string
	resp, err := f.provider.Generate(ctx, r, func(text string) error {
		pieces = append(pieces, text)
		return nil
	})
	if joined := strings.Join(pieces, ""); err == nil && joined != resp.Text {
		f.Errorf("the pieces joined are %q, the text is %q", joined, resp.Text)
	}
	return resp, pieces, err
}

// must is generate for calls that succeed.
func (f *fixture) must(r model.Request, stream bool) (model.Response, []string) {
	f.Helper()
	resp, pieces, err := f.generate(f.patient(), r, stream)
	if err != nil {
		f.Fatalf("Generate: %v", err)
	}
	return resp, pieces
}

// wantFailed checks that err is a model_failed that may be shown to a caller.
func (f *fixture) wantFailed(err error, secrets ...string) {
	f.Helper()
	_ = f.failure(err, secrets...)
}

// failure is wantFailed, and returns the failure.
func (f *fixture) failure(err error, secrets ...string) *carrel.Error {
	f.Helper()
	e, ok := errors.AsType[*carrel.Error](err)
	if !ok || e.Code != abi.ModelFailed || carrel.CodeOf(err) != abi.ModelFailed {
		f.Fatalf("the error is %v, want model_failed", err)
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		f.Errorf("the error %v passes for the end of a context that lives", err)
	}
	if e.Msg == "" {
		f.Errorf("the error %v has no message for the caller", err)
	}
	address := strings.TrimSuffix(strings.TrimPrefix(f.server.BaseURL, "http://"), "/v1")
	for _, secret := range append(secrets, Key, address) {
		if strings.Contains(e.Msg, secret) {
			f.Errorf("the message %q tells %q", e.Msg, secret)
		}
	}
	if strings.Contains(err.Error(), Key) {
		f.Errorf("the error %q tells the key to the log", err.Error())
	}
	return e
}

// ask is a request with one user message.
func ask(text string) model.Request {
	return model.Request{Model: "m1", Messages: []carrel.Message{{Role: carrel.RoleUser, Content: text}}}
}

// within fails the test if wait does not succeed within a second.
func (f *fixture) within(what string, wait func(context.Context) error) {
	f.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := wait(ctx); err != nil {
		f.Fatalf("%s within a second: %v", what, err)
	}
}
