package owndefaultid_test

import (
	"os"
	"slices"
	"testing"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/internal/testenv"
)

const (
	chat   = "own-default-id/com.acme.MyChat.chat"
	header = "X-Conversation"
	system = "system:You are a nice assistant"
)

// install starts a host with the example and returns it with the example's
// owner.
func install(t *testing.T) (*testenv.Env, *testenv.Actor) {
	t.Helper()
	source, err := os.ReadFile("own-default-id.md")
	if err != nil {
		t.Fatal(err)
	}
	env := testenv.New(t, testenv.Config())
	acme := env.Tenant("acme")
	acme.Install(string(source))
	return env, acme
}

func wantSend(t *testing.T, env *testenv.Env, n int, want ...string) {
	t.Helper()
	if got := env.Model.Send(n); !slices.Equal(got, want) {
		t.Errorf("send %d was %q, want %q", n, got, want)
	}
}

func TestRequestsWithOneHeaderShareAHistoryAcrossARestart(t *testing.T) {
	env, acme := install(t)
	blue := acme.With(header, "blue")
	out := blue.Chat(chat, "msg", "hello")
	if out.MemoryID != "blue#com.acme.MyChat.chat" || len(out.Evicted) != 0 {
		t.Errorf("memory id %q, evicted %+v; want one that outlives the request", out.MemoryID, out.Evicted)
	}
	blue.Chat(chat, "msg", "hello again")
	wantSend(t, env, 2, system, "user:hello", "assistant:A1", "user:hello again")

	env.Restart()
	blue.Chat(chat, "msg", "still there?")
	wantSend(t, env, 3, system, "user:hello", "assistant:A1", "user:hello again", "assistant:A2", "user:still there?")

	acme.With(header, "red").Chat(chat, "msg", "hello")
	wantSend(t, env, 4, system, "user:hello")
}

func TestTheSameHeaderOfAnotherCallerIsAnotherHistory(t *testing.T) {
	env, acme := install(t)
	acme.With(header, "blue").Chat(chat, "msg", "my secret")

	env.Key("acme", client.NewKey{Role: "caller"}).With(header, "blue").Chat(chat, "msg", "another key")
	wantSend(t, env, 2, system, "user:another key")

	backend := env.Key("acme", client.NewKey{Role: "caller", AssertSubject: true}).With(header, "blue")
	backend.As("ada").Chat(chat, "msg", "I am Ada")
	backend.As("bob").Chat(chat, "msg", "I am Bob")
	wantSend(t, env, 4, system, "user:I am Bob")

	// The subject owns the history, whichever key speaks for it.
	env.Key("acme", client.NewKey{Role: "caller", Subject: "ada"}).With(header, "blue").Chat(chat, "msg", "me again")
	wantSend(t, env, 5, system, "user:I am Ada", "assistant:A3", "user:me again")
}

func TestACallWithoutTheHeaderIsRefused(t *testing.T) {
	env, acme := install(t)
	acme.WantCode(abi.DefaultIDLeak).Chat(chat, "msg", "hello")
	if n := len(env.Model.Calls()); n != 0 {
		t.Errorf("the model was called %d times for a refused call", n)
	}
	if left := acme.MemoryIDs("own-default-id"); len(left) != 0 {
		t.Errorf("histories are left: %q", left)
	}
}
