package host_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/internal/testenv"
	"github.com/carrelhost/carrel/internal/testproc"
)

// restart ends the host well and starts it again.
func restart(t *testing.T, p *play, _ step) []client.Evicted {
	t.Helper()
	p.restart()
	clear(p.sockets)
	return nil
}

// kill ends the host with SIGKILL and starts it again.
func kill(t *testing.T, p *play, _ step) []client.Evicted {
	t.Helper()
	p.kill()
	clear(p.sockets)
	return nil
}

// hangUp ends the scenario's session: the WebSocket that is one, or the HTTP
// session.
func hangUp(t *testing.T, p *play, s step) []client.Evicted {
	t.Helper()
	socket := p.sockets["|"+own+"|"]
	if socket == nil {
		for name := range p.sockets {
			delete(p.sockets, name) // a call from now on is on a connection of its own
		}
		return p.actor(t, "").Shut(cmp.Or(p.sessions[own], p.sessions[attached])).Evicted
	}
	before := len(p.records(t, 0))
	if err := socket.Close(); err != nil {
		t.Fatal(err)
	}
	// A connection that is over tells nobody when its histories are gone.
	return p.records(t, before+len(s.evicts))[before:]
}

// remove deletes a history by hand.
func remove(plugin, id string) func(*testing.T, *play, step) []client.Evicted {
	return func(t *testing.T, p *play, _ step) []client.Evicted {
		t.Helper()
		return p.actor(t, "").End(plugin, id).Evicted
	}
}

// removeTurn deletes a turn by hand.
func removeTurn(plugin, id string, turn int64) func(*testing.T, *play, step) []client.Evicted {
	return func(t *testing.T, p *play, _ step) []client.Evicted {
		t.Helper()
		a := p.actor(t, "")
		if err := a.Client().DeleteTurn(t.Context(), keyOf(t, a, plugin, id), turn); err != nil {
			t.Fatal(err)
		}
		return nil
	}
}

// share grants plugins a memory namespace.
func share(namespace string, plugins ...string) func(*testing.T, *play, step) []client.Evicted {
	return func(t *testing.T, p *play, _ step) []client.Evicted {
		t.Helper()
		for _, plugin := range plugins {
			if _, err := p.actor(t, "").Client().SetGrant(t.Context(), plugin, client.Grant{MemoryNamespace: namespace}); err != nil {
				t.Fatal(err)
			}
		}
		return nil
	}
}

// expire waits until the tenant has no history any more, which nobody ends.
func expire(t *testing.T, p *play, _ step) []client.Evicted {
	t.Helper()
	testproc.Until(t, "histories that expire", func() bool { return len(p.actor(t, "").Memories("")) == 0 }) // to look revives nothing
	return nil
}

// recorded waits for the records of what ended, which is as much as the step
// says or more.
func recorded(t *testing.T, p *play, s step) []client.Evicted {
	t.Helper()
	return p.records(t, len(s.evicts))
}

// fill stores turns under the memory id 1, up to a full history.
func fill(t *testing.T, p *play, _ step) []client.Evicted {
	t.Helper()
	for n := 1; n <= fullTurns; n++ {
		out, err := p.ready(t, step{call: wideChat, params: []string{"id", "1", "msg", fmt.Sprintf("U%d", n)}})()
		if err != nil || out.Trimmed > 0 {
			t.Fatalf("turn %d: %+v, %v", n, out, err)
		}
	}
	return nil
}

// turns writes turns that fill made, from one to another.
func turns(from, to int) string {
	var all []string
	for n := from; n <= to; n++ {
		all = append(all, fmt.Sprintf("U%d,A%d", n, n))
	}
	return strings.Join(all, ",")
}

// parallel makes calls side by side and returns what became of each.
func parallel(t *testing.T, p *play, all []step) []testenv.Outcome {
	t.Helper()
	outcomes := make([]testenv.Outcome, len(all))
	var running sync.WaitGroup
	for i, s := range all {
		call := p.ready(t, s)
		running.Go(func() { outcomes[i].Invocation, outcomes[i].Err = call() })
	}
	running.Wait()
	return outcomes
}

// together makes as many parallel calls on the memory id 1 as fill its history.
func together(t *testing.T, p *play, _ step) []client.Evicted {
	t.Helper()
	var calls []step
	for n := range fullTurns {
		calls = append(calls, step{call: wideChat, params: []string{"id", "1", "msg", fmt.Sprintf("U%d", n)}})
	}
	outcomes := parallel(t, p, calls)
	stored := p.actor(t, "").Stored("wide", "1")
	if len(stored) != 1+2*len(calls) || stored[0] != "system:S" {
		t.Fatalf("%d messages are stored: %q", len(stored), stored)
	}
	turns := map[string]string{}
	for i := 1; i < len(stored); i += 2 {
		turns[stored[i]] = stored[i+1]
		// The model calls of one id follow one another as its turns do.
		n := p.before + i/2 + 1
		same(t, fmt.Sprintf("send %d", i/2+1), p.model.Send(n), stored[:i+1]...)
	}
	for n, o := range outcomes {
		if got := turns[fmt.Sprintf("user:U%d", n)]; o.Err != nil || got != fmt.Sprintf("assistant:%v", o.Output) {
			t.Errorf("turn U%d is stored with %q, its caller was told %v, %v", n, got, o.Output, o.Err)
		}
	}
	return nil
}

// crosswise makes requests that use the memory ids left and right, in both
// orders. Nothing that holds a turn runs guest code here, so that not even
// memory_busy may come of it. That of two requests which do wait for each
// other the younger is refused is shown by host/invoke/waitdie_test.go.
func crosswise(t *testing.T, p *play, _ step) []client.Evicted {
	t.Helper()
	const each = fullTurns / 2 / 2
	var calls []step
	for range each {
		for _, order := range [][2]string{{"left", "right"}, {"right", "left"}} {
			calls = append(calls, step{call: inScopes + "both", params: []string{"first", order[0], "second", order[1]}})
		}
	}
	for i, o := range parallel(t, p, calls) {
		if o.Err != nil {
			t.Errorf("%q: %v", calls[i].params, o.Err)
		}
	}
	for _, id := range []string{"left", "right"} {
		stored := p.actor(t, "").Stored("scopes", id)
		if len(stored) != 1+2*2*each {
			t.Errorf("%s has %d messages, want a system message and %d turns", id, len(stored), 2*each)
		}
		for i := 1; i+1 < len(stored); i += 2 {
			if !strings.HasPrefix(stored[i], "user:") || !strings.HasPrefix(stored[i+1], "assistant:") {
				t.Errorf("%s: turn %d is %q, %q", id, i/2+1, stored[i], stored[i+1])
			}
		}
	}
	return nil
}

// entangled makes requests whose handlers use the memory ids 1 and 2, each of
// which ends with the first of them to end.
func entangled(t *testing.T, p *play, _ step) []client.Evicted {
	t.Helper()
	calls := slices.Repeat([]step{{call: inScopes + "alternate"}, {call: inScopes + "restCall", params: []string{"id", "2"}}}, 20)
	for i, o := range parallel(t, p, calls) {
		// What a guest was refused, it passes on: that its history ended with
		// another request is such a refusal.
		if code := testenv.CodeOf(o.Err); code != abi.OK && code != abi.MemoryBusy && code != abi.GuestFailed {
			t.Errorf("%s: %v", calls[i].call, o.Err)
		}
	}
	return nil
}
