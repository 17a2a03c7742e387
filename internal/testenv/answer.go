package testenv

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/carrelhost/carrel/client"
)

// Answer is what a host answered, byte for byte.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// Do sends a request just as it is given, however wrong, with the actor's key
// and headers. A body is sent as JSON unless a header (With) says otherwise;
// a header Host takes the place of the address.
func (a *Actor) Do(method, path, body string) Answer {
	a.t.Helper()
	r, err := http.NewRequestWithContext(a.t.Context(), method, a.addr()+path, strings.NewReader(body))
	if err != nil {
		a.t.Fatalf("%s %s: %v", method, path, err)
	}
	return a.Send(r)
}

// Send is Do for a request that the caller made.
func (a *Actor) Send(r *http.Request) Answer {
	a.t.Helper()
	if r.ContentLength != 0 && r.Header.Get("Content-Type") == "" {
		r.Header.Set("Content-Type", "application/json")
	}
	a.sign(r)
	resp, err := noRedirects.Do(r)
	if err != nil {
		a.t.Fatalf("%s %s: %v", r.Method, r.URL, err)
	}
	defer resp.Body.Close() //nolint:errcheck // a body that was read
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		a.t.Fatalf("%s %s: %v", r.Method, r.URL, err)
	}
	return Answer{resp.StatusCode, resp.Header, body}
}

// Receive sends a request of Request's and calls begun, if not nil, once an
// answer of success has begun. A connection that is handed over is closed again, and
// answers 200.
func (a *Actor) Receive(r *http.Request, begun func()) Answer {
	a.t.Helper()
	resp, err := noRedirects.Do(r) //nolint:gosec // to the host under test
	if err != nil {
		a.t.Fatalf("%s %s: %v", r.Method, r.URL, err)
	}
	defer resp.Body.Close() //nolint:errcheck // a body that was read, or is not wanted
	if begun != nil && resp.StatusCode == http.StatusOK {
		begun()
	}
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return Answer{http.StatusOK, resp.Header, nil}
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		a.t.Fatalf("%s %s: %v", r.Method, r.URL, err)
	}
	return Answer{resp.StatusCode, resp.Header, body}
}

// Request makes a request without a body, with the actor's key and headers,
// for tests that read the answer as it comes.
func (a *Actor) Request(method, path string) *http.Request {
	a.t.Helper()
	r, err := http.NewRequestWithContext(a.t.Context(), method, a.addr()+path, nil)
	if err != nil {
		a.t.Fatalf("%s %s: %v", method, path, err)
	}
	a.sign(r)
	return r
}

// sign gives a request the actor's key and headers.
func (a *Actor) sign(r *http.Request) {
	if a.key != "" {
		r.Header.Set("Authorization", "Bearer "+a.key)
	}
	if a.subject != "" {
		r.Header.Set("Carrel-Subject", a.subject)
	}
	for name, values := range a.header {
		r.Header[name] = values
	}
	if host := r.Header.Get("Host"); host != "" {
		r.Host = host
	}
}

// Problem returns the problem that an answer must be, complete and with the
// id of the request in both places.
func (ans Answer) Problem(t testing.TB) client.Problem {
	t.Helper()
	var p client.Problem
	if err := json.Unmarshal(ans.Body, &p); err != nil {
		t.Fatalf("the answer is no problem: %d %s", ans.Status, ans.Body)
	}
	if kind := ans.Header.Get("Content-Type"); kind != client.ProblemType {
		t.Errorf("the Content-Type of a problem is %q", kind)
	}
	if p.RequestID == "" || p.RequestID != ans.Header.Get("X-Request-Id") {
		t.Errorf("requestId is %q and the header x-request-id %q", p.RequestID, ans.Header.Get("X-Request-Id"))
	}
	if p.Status != ans.Status || p.Type == "" || p.Title == "" || p.Code == "" || p.Detail == "" {
		t.Errorf("the problem of status %d is %+v", ans.Status, p)
	}
	return p
}
