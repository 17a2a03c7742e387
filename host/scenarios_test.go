package host_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/examples"
	"github.com/carrelhost/carrel/host"
	"github.com/carrelhost/carrel/internal/testenv"
)

// Addresses of the examples' methods.
const (
	nice      = "nice-and-mean/com.acme.MyChat.chat"
	mean      = "nice-and-mean/com.acme.AnotherChat.chat"
	unnamed   = "default-ids/com.acme.MyChat.chat"
	lasting   = "smallest-scope/com.acme.Lasting.chat"
	fleeting  = "smallest-scope/com.acme.Fleeting.chat"
	goldfish  = "short-memory/com.acme.Goldfish.chat"
	byHeader  = "own-default-id/com.acme.MyChat.chat"
	sysNice   = "system:You are a nice assistant"
	sysMean   = "system:You are a mean assistant"
	sysLast   = "system:You remember"
	sysShort  = "system:You have a short memory"
	headerKey = "X-Conversation"
)

// example returns the source of an example's plugin.
func example(t testing.TB, name string) string {
	t.Helper()
	b, err := examples.Files.ReadFile(name + "/" + name + ".md")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// same holds messages against what they must be.
func same(t testing.TB, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

// gone checks that there is no history under a memory id, not even an empty
// one.
func gone(t testing.TB, a *testenv.Actor, plugin, id string) {
	t.Helper()
	if got := a.Stored(plugin, id); got != nil {
		t.Errorf("the history %q of %s is there: %q", id, plugin, got)
	}
}

func TestTheSecondServiceOnAnIDReplacesTheSystemMessageOfTheFirst(t *testing.T) {
	testenv.EachStore(t, func(t *testing.T, cfg host.Config) {
		env := testenv.New(t, cfg)
		acme := env.Tenant("acme")
		acme.Install(example(t, "nice-and-mean"))
		first := acme.Chat(nice, "id", "42", "msg", "U1")
		same(t, "send 1", env.Model.Send(1), sysNice, "user:U1")
		second := acme.Chat(mean, "id", "42", "msg", "U2")
		same(t, "send 2", env.Model.Send(2), sysMean, "user:U1", "assistant:A1", "user:U2")
		same(t, "stored", acme.Stored("nice-and-mean", "42"),
			sysMean, "user:U1", "assistant:A1", "user:U2", "assistant:A2")
		for n, out := range []client.Invocation{first, second} {
			if out.Output != fmt.Sprintf("A%d", n+1) || out.MemoryID != "42" || out.Evicted == nil || len(out.Evicted) > 0 {
				t.Errorf("answer %d is %+v", n+1, out)
			}
		}
	})
}

func TestWithoutAMemoryIDEveryRequestHasAHistoryThatEndsWithIt(t *testing.T) {
	testenv.EachStore(t, func(t *testing.T, cfg host.Config) {
		env := testenv.New(t, cfg)
		acme := env.Tenant("acme")
		acme.Install(example(t, "default-ids"))
		seen := map[string]bool{}
		for n := 1; n <= 2; n++ {
			out := acme.Chat(unnamed, "msg", "hello")
			same(t, "send", env.Model.Send(n), sysNice, "user:hello")
			if id, ok := strings.CutSuffix(out.MemoryID, "#com.acme.MyChat.chat"); !ok || id == "" || seen[id] {
				t.Errorf("memory id %q is not a fresh one of this method", out.MemoryID)
			} else {
				seen[id] = true
			}
			if len(out.Evicted) != 1 || out.Evicted[0].MemoryID != out.MemoryID ||
				out.Evicted[0].Reason != "scope_closed" || out.Evicted[0].Messages != 3 {
				t.Errorf("evicted %+v, want the history of %s with 3 messages", out.Evicted, out.MemoryID)
			}
			if left := acme.Memories(""); len(left) > 0 {
				t.Errorf("%d histories are left: %+v", len(left), left)
			}
		}
	})
}

func TestTheSmallestScopeThatUsedAnIDEndsIt(t *testing.T) {
	testenv.EachStore(t, func(t *testing.T, cfg host.Config) {
		env := testenv.New(t, cfg)
		acme := env.Tenant("acme")
		acme.Install(example(t, "smallest-scope"))
		for _, id := range []string{"1234", "untouched"} {
			if out := acme.Chat(lasting, "id", id, "msg", "U1"); len(out.Evicted) > 0 {
				t.Errorf("the application's request evicted %+v", out.Evicted)
			}
		}
		out := acme.Chat(fleeting, "id", "1234", "msg", "U2")
		same(t, "send of the request's service", env.Model.Send(3), "system:You forget", "user:U1", "assistant:A1", "user:U2")
		if len(out.Evicted) != 1 || out.Evicted[0].MemoryID != "1234" || out.Evicted[0].Messages != 5 {
			t.Errorf("evicted %+v, want 1234 with 5 messages", out.Evicted)
		}
		gone(t, acme, "smallest-scope", "1234")
		same(t, "the other id", acme.Stored("smallest-scope", "untouched"), sysLast, "user:U1", "assistant:A2")
		acme.Chat(lasting, "id", "1234", "msg", "U3")
		same(t, "send of the next request", env.Model.Send(4), sysLast, "user:U3")
	})
}

func TestExplicitIDsOfAnApplicationSurviveRequestsAndARestart(t *testing.T) {
	env := testenv.New(t, testenv.Config())
	acme := env.Tenant("acme")
	acme.Install(example(t, "nice-and-mean"))
	acme.Chat(nice, "id", "1", "msg", "one")
	acme.Chat(nice, "id", "2", "msg", "two")
	env.Restart()
	for id, want := range map[string][]string{
		"1": {sysNice, "user:one", "assistant:A1"},
		"2": {sysNice, "user:two", "assistant:A2"},
	} {
		same(t, "after the restart, "+id, acme.Stored("nice-and-mean", id), want...)
	}
	acme.Chat(nice, "id", "2", "msg", "more")
	same(t, "the send after the restart", env.Model.Send(3), sysNice, "user:two", "assistant:A2", "user:more")
	if done := acme.End("nice-and-mean", "1"); len(done.Evicted) != 1 || done.Evicted[0].MemoryID != "1" ||
		done.Evicted[0].Reason != "deleted" || done.Evicted[0].Messages != 3 {
		t.Errorf("the deletion evicted %+v", done.Evicted)
	}
	env.Restart()
	gone(t, acme, "nice-and-mean", "1")
	same(t, "the other one", acme.Stored("nice-and-mean", "2"),
		sysNice, "user:two", "assistant:A2", "user:more", "assistant:A3")
}

func TestATurnThatTheModelFailedIsNotStoredAndItsRetryIsNotDoubled(t *testing.T) {
	for _, status := range []int{500, 429, 400} {
		t.Run(fmt.Sprintf("status %d", status), func(t *testing.T) {
			testenv.EachStore(t, func(t *testing.T, cfg host.Config) {
				env := testenv.New(t, cfg)
				acme := env.Tenant("acme")
				acme.Install(example(t, "nice-and-mean"))
				acme.Chat(nice, "id", "1", "msg", "U1")
				env.Model.FailNext(status, `{"error":{"message":"upstream secret detail"}}`)
				_, err := acme.Call(t.Context(), nice, "id", "1", "msg", "U2")
				if code := testenv.CodeOf(err); code != abi.ModelFailed {
					t.Fatalf("the failed call: %v", err)
				}
				same(t, "stored after the failure", acme.Stored("nice-and-mean", "1"), sysNice, "user:U1", "assistant:A1")
				acme.Chat(nice, "id", "1", "msg", "U2")
				same(t, "the retry's send", env.Model.Send(3), sysNice, "user:U1", "assistant:A1", "user:U2")
				same(t, "stored after the retry", acme.Stored("nice-and-mean", "1"),
					sysNice, "user:U1", "assistant:A1", "user:U2", "assistant:A3")
			})
		})
	}
}

func TestAWindowSendsTheNewestWholeTurnsAndTheHistoryKeepsAll(t *testing.T) {
	history := []string{sysShort, "user:U1", "assistant:A1", "user:U2", "assistant:A2", "user:U3", "assistant:A3"}
	for what, c := range map[string]struct {
		window string
		send3  []string
	}{
		"four messages, as the example says":    {"max: 4", []string{sysShort, "user:U2", "assistant:A2", "user:U3"}},
		"five messages, with no room for half":  {"max: 5", []string{sysShort, "user:U2", "assistant:A2", "user:U3"}},
		"three messages, with no room for more": {"max: 3", []string{sysShort, "user:U3"}},
		"one message, which the turn exceeds":   {"max: 1", []string{sysShort, "user:U3"}},
		"six messages, all there are":           {"max: 6", history[:6]},
	} {
		t.Run(what, func(t *testing.T) {
			testenv.EachStore(t, func(t *testing.T, cfg host.Config) {
				env := testenv.New(t, cfg)
				acme := env.Tenant("acme")
				acme.Install(strings.Replace(example(t, "short-memory"), "max: 4", c.window, 1))
				for _, msg := range []string{"U1", "U2", "U3"} {
					acme.Chat(goldfish, "id", "1", "msg", msg)
				}
				same(t, "send 3", env.Model.Send(3), c.send3...)
				same(t, "stored", acme.Stored("short-memory", "1"), history...)
			})
		})
	}
}

func TestAHistoryDeletedDuringATurnStaysDeleted(t *testing.T) {
	testenv.EachStore(t, func(t *testing.T, cfg host.Config) {
		env := testenv.New(t, cfg)
		acme := env.Tenant("acme")
		acme.Install(example(t, "nice-and-mean"))
		acme.Chat(nice, "id", "1", "msg", "U1")
		call := acme.Hold(t.Context(), nice, "id", "1", "msg", "U2")
		acme.End("nice-and-mean", "1") // waits for no turn
		gone(t, acme, "nice-and-mean", "1")
		call.Release()
		acme.WantCode(abi.ScopeClosed).Check("the turn", call.Outcome())
		gone(t, acme, "nice-and-mean", "1")
		acme.Chat(nice, "id", "1", "msg", "anew")
		same(t, "the send of a turn that began later", env.Model.Send(3), sysNice, "user:anew")
	})
}
