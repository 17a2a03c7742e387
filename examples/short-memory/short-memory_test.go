package shortmemory_test

import (
	"os"
	"slices"
	"testing"

	"github.com/carrelhost/carrel/internal/testenv"
)

func TestAWindowOverALongerHistory(t *testing.T) {
	source, err := os.ReadFile("short-memory.md")
	if err != nil {
		t.Fatal(err)
	}
	env := testenv.New(t, testenv.Config())
	acme := env.Tenant("acme")
	acme.Install(string(source))

	const system = "system:You have a short memory"
	for _, msg := range []string{"one", "two", "three", "four"} {
		acme.Chat("short-memory/com.acme.Goldfish.chat", "id", "1", "msg", msg)
	}
	for n, want := range [][]string{
		{system, "user:one"},
		{system, "user:one", "assistant:A1", "user:two"},
		{system, "user:two", "assistant:A2", "user:three"},
		{system, "user:three", "assistant:A3", "user:four"},
	} {
		if got := env.Model.Send(n + 1); !slices.Equal(got, want) {
			t.Errorf("send %d was %q, want %q", n+1, got, want)
		}
	}
	want := []string{
		system, "user:one", "assistant:A1", "user:two", "assistant:A2",
		"user:three", "assistant:A3", "user:four", "assistant:A4",
	}
	if got := acme.Stored("short-memory", "1"); !slices.Equal(got, want) {
		t.Errorf("stored is %q, want everything that was said: %q", got, want)
	}
}
