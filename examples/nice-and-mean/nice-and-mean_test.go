package niceandmean_test

import (
	"os"
	"slices"
	"testing"

	"github.com/carrelhost/carrel/internal/testenv"
)

func TestTwoServicesShareAMemoryIDAndNeverASystemMessage(t *testing.T) {
	source, err := os.ReadFile("nice-and-mean.md")
	if err != nil {
		t.Fatal(err)
	}
	env := testenv.New(t, testenv.Config())
	acme := env.Tenant("acme")
	acme.Install(string(source))

	acme.Chat("nice-and-mean/com.acme.MyChat.chat", "id", "42", "msg", "My name is Ada")
	second := acme.Chat("nice-and-mean/com.acme.AnotherChat.chat", "id", "42", "msg", "What is my name?")

	for n, want := range [][]string{
		{"system:You are a nice assistant", "user:My name is Ada"},
		{"system:You are a mean assistant", "user:My name is Ada", "assistant:A1", "user:What is my name?"},
	} {
		if got := env.Model.Send(n + 1); !slices.Equal(got, want) {
			t.Errorf("send %d was %q, want %q", n+1, got, want)
		}
	}
	if len(second.Evicted) != 0 {
		t.Errorf("application-scoped memory ended with a request: %+v", second.Evicted)
	}
	want := []string{
		"system:You are a mean assistant",
		"user:My name is Ada", "assistant:A1", "user:What is my name?", "assistant:A2",
	}
	if got := acme.Stored("nice-and-mean", "42"); !slices.Equal(got, want) {
		t.Errorf("stored is %q, want %q", got, want)
	}
}
