package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/client"
)

// telling is a host that tells these states of every admission, the last one
// for ever. What stands in parentheses is no state but what becomes of the
// answer.
func telling(t *testing.T, states ...string) *client.Client {
	t.Helper()
	var asked int
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/api/v1/versions/") {
			t.Errorf("it was asked for %s", r.URL)
		}
		state, problem := states[min(asked, len(states)-1)], ""
		asked++
		switch state {
		case "(cut)":
			w.Header().Set("Content-Length", "1000")
			_, _ = w.Write([]byte(`{"digest":`))
			panic(http.ErrAbortHandler)
		case "(a proxy's)":
			w.WriteHeader(http.StatusBadGateway)
			return
		case "(overloaded)", "(unauthenticated)":
			w.Header().Set("Content-Type", client.ProblemType)
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = fmt.Fprintf(w, `{"code":%q,"retryable":%t}`, strings.Trim(state, "()"), state == "(overloaded)")
			return
		}
		if state == client.AdmissionRefused {
			problem = `,"problem":{"code":"invalid_module","detail":"no"}`
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"digest":"d","state":%q,"since":"2026-03-04T12:00:00Z","stages":[]%s}`, state, problem)
	}))
	t.Cleanup(s.Close)
	return &client.Client{Base: s.URL}
}

func TestWaitingForAnAdmissionEndsWithIt(t *testing.T) {
	for name, tc := range map[string]struct {
		states []string
		want   error
	}{
		"one that becomes active":                      {[]string{"queued", "compiling", "active"}, nil},
		"one that is over already":                     {[]string{"stored"}, nil},
		"a dry run":                                    {[]string{"linting", "checked"}, nil},
		"one that is refused":                          {[]string{"compiling", "refused"}, client.Code(abi.InvalidModule)},
		"one with a stage that this version is new to": {[]string{"pondering", "active"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var seen []string
			end, err := telling(t, tc.states...).WaitAdmission(t.Context(), "d", func(a client.Admission) { seen = append(seen, a.State) })
			if !errors.Is(err, tc.want) || !slices.Equal(seen, tc.states) || end.State != tc.states[len(tc.states)-1] {
				t.Errorf("it saw %v and ended with %+v, %v", seen, end, err)
			}
		})
	}
}

func TestWaitingForAnAdmissionEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	asked := 0
	end, err := telling(t, "compiling").WaitAdmission(ctx, "d", func(client.Admission) {
		if asked++; asked == 2 {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) || end.State != "compiling" || asked != 2 {
		t.Errorf("asked %d times it ended with %+v, %v", asked, end, err)
	}
}

func TestWaitingForAnAdmissionOutlastsQuestionsThatFail(t *testing.T) {
	for name, tc := range map[string]struct {
		states []string
		want   error
		last   string
	}{
		"an answer that is cut":                    {[]string{"compiling", "(cut)", "(cut)", "active"}, nil, "active"},
		"the first one, too":                       {[]string{"(cut)", "active"}, nil, "active"},
		"an answer of something between":           {[]string{"compiling", "(a proxy's)", "stored"}, nil, "stored"},
		"a host that is busy":                      {[]string{"(overloaded)", "compiling", "(overloaded)", "refused"}, client.Code(abi.InvalidModule), "refused"},
		"a key that is known no longer is the end": {[]string{"compiling", "(unauthenticated)", "active"}, client.Code(abi.Unauthenticated), "compiling"},
	} {
		t.Run(name, func(t *testing.T) {
			end, err := telling(t, tc.states...).WaitAdmission(t.Context(), "d", nil)
			if !errors.Is(err, tc.want) || end.State != tc.last {
				t.Errorf("it ended with %+v, %v", end, err)
			}
		})
	}
}

// transport answers requests.
type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestWaitingForAnAdmissionGivesUpAHostThatStaysSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone, begin := errors.New("connection refused"), time.Now()
		c := &client.Client{Base: "http://host", HTTP: &http.Client{Transport: transport(func(*http.Request) (*http.Response, error) {
			switch since := time.Since(begin); {
			case since > 8*time.Second && since < 12*time.Second: // it is back for a while
				return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(`{"digest":"d","state":"compiling","stages":[]}`))}, nil
			default:
				return nil, gone
			}
		})}}
		end, err := c.WaitAdmission(t.Context(), "d", nil)
		if took := time.Since(begin); !errors.Is(err, gone) || end.State != "compiling" || took < 22*time.Second || took > 23*time.Second {
			t.Errorf("after %v it ended with %+v, %v", took, end, err)
		}
	})
}
