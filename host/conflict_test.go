package host_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host"
	"github.com/carrelhost/carrel/internal/testenv"
)

// wide is a plugin whose window holds every turn of these tests.
const wide = `---
name: wide
services:
  - name: com.acme.Wide
    scope: application
    methods:
      - name: chat
        memoryId: id
        window: { type: messages, max: 1000 }
---
S`

const wideChat = "wide/com.acme.Wide.chat"

func TestACallThatAskedNotToWaitForTheTurnIsRefusedAtOnce(t *testing.T) {
	testenv.EachStore(t, func(t *testing.T, cfg host.Config) {
		env := testenv.New(t, cfg)
		acme := env.Tenant("acme")
		acme.Install(wide)
		call := acme.Hold(t.Context(), wideChat, "id", "1", "msg", "U1")
		ans := acme.With("Carrel-On-Conflict", "reject").
			Do(http.MethodPost, "/api/v1/plugins/wide/services/com.acme.Wide/chat", `{"id":"1","msg":"U2"}`)
		p := ans.Problem(t)
		if ans.Status != http.StatusConflict || p.Code != "memory_busy" || !p.Retryable || ans.Header.Get("Retry-After") != "1" {
			t.Errorf("the answer is %d %+v, Retry-After %q", ans.Status, p, ans.Header.Get("Retry-After"))
		}
		acme.With("Carrel-On-Conflict", "reject").Chat(wideChat, "id", "another", "msg", "U3")
		call.Release()
		acme.Check("the held call", call.Outcome())
		same(t, "stored", acme.Stored("wide", "1"), "system:S", "user:U1", "assistant:A1")
	})
}

func TestCallsThatWaitForATurnAreServedInTheOrderInWhichTheyCame(t *testing.T) {
	testenv.EachStore(t, func(t *testing.T, cfg host.Config) {
		const waiters = 3
		cfg.Limits.TurnWaiters = waiters
		env := testenv.New(t, cfg)
		acme := env.Tenant("acme")
		acme.Install(wide)
		call := acme.Hold(t.Context(), wideChat, "id", "1", "msg", "U0")
		var outcomes []<-chan testenv.Outcome
		want := []string{"system:S", "user:U0", "assistant:A1"}
		for n := 1; n <= waiters; n++ {
			outcomes = append(outcomes, queue(t, acme, n, waiters))
			want = append(want, fmt.Sprintf("user:U%d", n), fmt.Sprintf("assistant:A%d", n+1))
		}
		call.Release()
		acme.Check("the held call", call.Outcome())
		for _, o := range outcomes {
			acme.Check("a call that waited", <-o)
		}
		same(t, "stored", acme.Stored("wide", "1"), want...)
	})
}

// queue begins a call for the memory id 1, whose turn is taken, and returns
// when it waits as the n-th, of which most may. That is known as soon as not
// all of most-n+1 further calls find room, too. If they come first, the call
// itself finds none and is begun again.
func queue(t *testing.T, a *testenv.Actor, n, most int) <-chan testenv.Outcome {
	t.Helper()
	begin := func() <-chan testenv.Outcome {
		return a.With("Carrel-On-Conflict", "wait").Begin(t.Context(), wideChat, "id", "1", "msg", fmt.Sprintf("U%d", n))
	}
	probe := a.With("Carrel-Timeout", "50ms")
	call := begin()
	for {
		var probes []<-chan testenv.Outcome
		for range most - n + 1 {
			probes = append(probes, probe.Begin(t.Context(), wideChat, "id", "1", "msg", "probe"))
		}
		full := false
		for _, o := range probes {
			switch err := (<-o).Err; testenv.CodeOf(err) {
			case abi.MemoryBusy:
				full = true
			case abi.Timeout:
			default:
				t.Fatalf("a call that found the turn taken: %v", err)
			}
		}
		if full {
			return call
		}
		select {
		case o := <-call:
			a.WantCode(abi.MemoryBusy).Check("a call that found no room", o)
			call = begin()
		default:
		}
	}
}

func TestAStalledModelCallOnOneIDBlocksNobodyOnAnother(t *testing.T) {
	testenv.EachStore(t, func(t *testing.T, cfg host.Config) {
		env := testenv.New(t, cfg)
		acme := env.Tenant("acme")
		acme.Install(testenv.Example(t, "nice-and-mean"))
		stalled := acme.Hold(t.Context(), nice, "id", "stalled", "msg", "U")
		for n := range 20 {
			acme.Chat(nice, "id", fmt.Sprint(n), "msg", "U")
		}
		same(t, "another id", acme.Stored("nice-and-mean", "19"), sysNice, "user:U", "assistant:A21")
		stalled.Release()
		acme.Check("the stalled call", stalled.Outcome())
		same(t, "the stalled id", acme.Stored("nice-and-mean", "stalled"), sysNice, "user:U", "assistant:A1")
	})
}
