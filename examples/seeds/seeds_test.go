package seeds_test

import (
	"os"
	"slices"
	"testing"

	"github.com/carrelhost/carrel/internal/testenv"
)

func TestExamplesAreTurnsOfAWindowOfTokens(t *testing.T) {
	source, err := os.ReadFile("seeds.md")
	if err != nil {
		t.Fatal(err)
	}
	env := testenv.New(t, testenv.Config())
	acme := env.Tenant("acme")
	acme.Install(string(source))

	// Tokens by the estimate: 13 of the system message, 17 of each example.
	const system = "system:You sort mail. Answer with one word"
	first := []string{"user:The parcel never came", "assistant:complaint"}
	second := []string{"user:Do you deliver on Sundays?", "assistant:question"}
	for n, call := range []struct {
		msg          string
		sent, stored []string
	}{
		{"Thank you!", // 7 tokens, and 5 of each answer
			slices.Concat([]string{system}, first, second, []string{"user:Thank you!"}),
			slices.Concat([]string{system}, first, second, []string{"user:Thank you!", "assistant:A1"})},
		{"My order is wrong", // 9 tokens: with both examples it would be 68
			slices.Concat([]string{system}, second, []string{"user:Thank you!", "assistant:A1", "user:My order is wrong"}),
			slices.Concat([]string{system}, second, []string{"user:Thank you!", "assistant:A1", "user:My order is wrong", "assistant:A2"})},
		{"And it is late", // 8 tokens: with the other example it would be 64
			[]string{system, "user:Thank you!", "assistant:A1", "user:My order is wrong", "assistant:A2", "user:And it is late"},
			[]string{system, "user:Thank you!", "assistant:A1", "user:My order is wrong", "assistant:A2", "user:And it is late", "assistant:A3"}},
	} {
		acme.Chat("seeds/com.acme.Sorter.sort", "id", "1", "msg", call.msg)
		if got := env.Model.Send(n + 1); !slices.Equal(got, call.sent) {
			t.Errorf("send %d was %q, want %q", n+1, got, call.sent)
		}
		if got := acme.Stored("seeds", "1"); !slices.Equal(got, call.stored) {
			t.Errorf("after call %d stored is %q, want %q", n+1, got, call.stored)
		}
	}
}
