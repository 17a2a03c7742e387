package host_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/host"
	"github.com/carrelhost/carrel/internal/testenv"
	"github.com/carrelhost/carrel/internal/testproc"
)

// line is one connection to a host that is kept alive, whatever the host does.
type line struct {
	base, key string
	http      *http.Client
}

func dial(t *testing.T, a *testenv.Actor, base string) *line {
	t.Helper()
	transport := &http.Transport{MaxConnsPerHost: 1}
	t.Cleanup(transport.CloseIdleConnections)
	return &line{base: base, key: a.Key(), http: &http.Client{Transport: transport}}
}

// send sends a request and returns the answer's status and code.
func (l *line) send(t *testing.T, method, path, body string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, l.base+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+l.key)
	resp, err := l.http.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // a body that was read
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp.StatusCode, ""
	}
	return resp.StatusCode, testenv.Answer{Status: resp.StatusCode, Header: resp.Header, Body: bytes.TrimSpace(b)}.Problem(t).Code
}

func TestADrainingHostFinishesWhatRunsAndTakesNothingNew(t *testing.T) {
	testenv.EachStore(t, func(t *testing.T, cfg host.Config) {
		env := testenv.New(t, cfg)
		acme := env.Tenant("acme")
		acme.Install(talking("one"))
		kept := dial(t, acme, env.Addr())
		if status, _ := kept.send(t, http.MethodGet, "/readyz", ""); status != http.StatusOK {
			t.Fatalf("/readyz before the drain: %d", status)
		}
		call := acme.Hold(t.Context(), botMethod, "id", "1", "msg", "U1")
		env.Drain()
		testproc.Until(t, "a host that drains", func() bool {
			status, code := kept.send(t, http.MethodGet, "/readyz", "")
			return status == http.StatusServiceUnavailable && code == "draining"
		})
		// From here on a call may slip in, but only for a moment.
		testproc.Until(t, "calls that are refused", func() bool {
			_, code := kept.send(t, http.MethodPost, botChat, `{"id":"late","msg":"U2"}`)
			return code == "draining"
		})
		acme.WantCode(abi.Draining).Chat(botMethod, "id", "later", "msg", "U3")
		if status, _ := kept.send(t, http.MethodGet, "/livez", ""); status != http.StatusOK {
			t.Errorf("/livez while it drains: %d", status)
		}
		same(t, "what is stored can be read", acme.Stored("bot", "later"))
		call.Release()
		if out := acme.Check("the call that ran", call.Outcome()); out.Output != "A1" {
			t.Errorf("its output is %v", out.Output)
		}
		addr := env.Addr()
		env.Stop()
		if _, err := (&client.Client{Base: addr}).HostVersion(t.Context()); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("the host that ended: %v", err)
		}
	})
}

func TestATurnThatEndsWithinTheGraceIsThereAfterTheRestart(t *testing.T) {
	env := testenv.New(t, testenv.Config())
	acme := env.Tenant("acme")
	acme.Install(talking("one"))
	call := acme.Hold(t.Context(), botMethod, "id", "1", "msg", "U1")
	env.Drain()
	call.Release()
	acme.Check("the call", call.Outcome())
	env.Restart()
	same(t, "stored", acme.Stored("bot", "1"), "system:You are bot one", "user:U1", "assistant:A1")
}

func TestACallThatOutlivesTheGraceIsCutAndNothingOfItIsStored(t *testing.T) {
	cfg := testenv.Config()
	cfg.Limits.DrainTimeout = 50 * time.Millisecond
	env := testenv.New(t, cfg)
	acme := env.Tenant("acme")
	acme.Install(testenv.Example(t, "smallest-scope"))
	acme.Chat(lasting, "id", "brief", "msg", "U1")
	acme.Chat(lasting, "id", "1", "msg", "U2")
	held := acme.Hold(t.Context(), lasting, "id", "1", "msg", "cut")
	brief := acme.Hold(t.Context(), fleeting, "id", "brief", "msg", "cut")
	detached := acme.With("Carrel-On-Disconnect", "continue").Hold(t.Context(), lasting, "id", "2", "msg", "cut")
	waiting, leave := context.WithCancel(t.Context())
	defer leave()
	queued := acme.Begin(waiting, lasting, "id", "1", "msg", "cut while it waits")
	env.Drain()
	draining := acme.WantCode(abi.Draining)
	for what, o := range map[string]testenv.Outcome{
		"the call": held.Outcome(), "the request's call": brief.Outcome(), "the detached call": detached.Outcome(), "the call that waited": <-queued,
	} {
		draining.Check(what, o)
	}
	for _, c := range []testenv.Held{held, brief, detached} {
		if err := env.Model.Gone(t.Context(), c.N); err != nil {
			t.Error(err)
		}
	}
	env.Restart()
	same(t, "the application's id", acme.Stored("smallest-scope", "1"), sysLast, "user:U2", "assistant:A2")
	same(t, "the id of the detached call", acme.Stored("smallest-scope", "2"))
	gone(t, acme, "smallest-scope", "brief")
}

func TestAHostThatClosesApplicationsAtShutdownKeepsNoHistory(t *testing.T) {
	cfg := testenv.Config()
	cfg.Memory.CloseApplicationOnShutdown = true
	env := testenv.New(t, cfg)
	acme := env.Tenant("acme")
	acme.Install(talking("one"))
	acme.Chat(botMethod, "id", "1", "msg", "U1")
	env.Restart()
	gone(t, acme, "bot", "1")
	acme.Chat(botMethod, "id", "1", "msg", "U2")
	same(t, "send after the restart", env.Model.Send(2), "system:You are bot one", "user:U2")
}
