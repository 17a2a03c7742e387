package main_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/internal/testenv"
)

func TestScopes(t *testing.T) {
	env := testenv.New(t, testenv.Config())
	acme := env.Tenant("acme")
	acme.Build(".")
	if r := acme.Report("scopes"); r.Class != "chat" || r.Path != "reset" || r.Image == nil || r.Fuel == 0 || r.Measured == nil {
		t.Errorf("the report is %+v", r)
	}

	t.Run("a rest call with two scopes on one memory id ends the memory with the request", func(t *testing.T) {
		acme, first := acme.In(t), len(env.Model.Calls())
		acme.Chat("scopes/com.acme.AppChat.chat", "id", "1234", "msg", "hello")
		out := acme.Chat("scopes/com.acme.Rest.restCall", "id", "1234")
		inner := env.Model.Send(first + 3)
		want := []string{
			"system:You are a nice assistant", "user:hello", "assistant:A1",
			"user:My name is Ada", "assistant:A2", "user:What is my name?",
		}
		if !slices.Equal(inner, want) {
			t.Errorf("the request-scoped service sent %q, want %q", inner, want)
		}
		if got, _ := out.Output.(map[string]any); got["stored"] != 7.0 || got["app"] != "A2" || got["request"] != "A3" {
			t.Errorf("the handler returned %v", out.Output)
		}
		if len(out.Evicted) != 1 || out.Evicted[0].MemoryID != "1234" || out.Evicted[0].Messages != 7 {
			t.Errorf("evicted is %+v, want the memory 1234 with 7 messages", out.Evicted)
		}
		if left := acme.MemoryIDs("scopes"); len(left) != 0 {
			t.Errorf("histories %q are left", left)
		}
	})

	t.Run("two ids in one request are two conversations, and end with it", func(t *testing.T) {
		acme, first := acme.In(t), len(env.Model.Calls())
		acme.Chat("scopes/com.acme.AppChat.chat", "id", "bystander", "msg", "nobody touches me")
		out := acme.Chat("scopes/com.acme.Rest.alternate")
		third := env.Model.Send(first + 4)
		if len(third) != 4 || third[1] != "user:I am one" || third[3] != "user:Who am I?" {
			t.Errorf("the third call sent %q", third)
		}
		ended := map[string]int64{}
		for _, e := range out.Evicted {
			ended[e.MemoryID] = e.Messages
		}
		if len(ended) != 2 || ended["1"] != 5 || ended["2"] != 5 {
			t.Errorf("evicted is %v, want the memories 1 and 2 with two turns each", ended)
		}
		if left := acme.MemoryIDs("scopes"); !slices.Equal(left, []string{"bystander"}) {
			t.Errorf("histories %q are left, want only what nobody touched", left)
		}
	})

	t.Run("session-scoped memory needs a session, and ends with it", func(t *testing.T) {
		acme := acme.In(t)
		acme.WantCode(abi.NoSession).Chat("scopes/com.acme.SessionChat.chat", "id", "s", "msg", "hello")
		s, err := acme.Client().OpenSession(t.Context(), client.NewSession{})
		if err != nil {
			t.Fatal(err)
		}
		inside := acme.With("Carrel-Session", s.ID)
		inside.Chat("scopes/com.acme.SessionChat.chat", "id", "s", "msg", "one")
		inside.Chat("scopes/com.acme.SessionChat.chat", "id", "s", "msg", "two")
		if got := acme.Stored("scopes", "s"); len(got) != 5 || !strings.HasSuffix(got[3], "two") {
			t.Errorf("stored is %q, want both turns", got)
		}
		closed, err := acme.Client().CloseSession(t.Context(), s.ID)
		if err != nil || len(closed.Evicted) != 1 || closed.Evicted[0].MemoryID != "s" {
			t.Errorf("closing the session ended %+v (%v), want the memory s", closed.Evicted, err)
		}
	})
}
