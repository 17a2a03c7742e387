package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/client"
)

// telling is a host that tells these states of every admission, the last one
// for ever.
func telling(t *testing.T, states ...string) *client.Client {
	t.Helper()
	var asked int
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/api/v1/versions/") {
			t.Errorf("it was asked for %s", r.URL)
		}
		state, problem := states[min(asked, len(states)-1)], ""
		asked++
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
