package smallestscope_test

import (
	"os"
	"slices"
	"testing"

	"github.com/carrelhost/carrel/internal/testenv"
)

func TestTheSmallerScopeEndsASharedMemoryID(t *testing.T) {
	source, err := os.ReadFile("smallest-scope.md")
	if err != nil {
		t.Fatal(err)
	}
	env := testenv.New(t, testenv.Config())
	acme := env.Tenant("acme")
	acme.Install(string(source))
	const lasting, fleeting = "smallest-scope/com.acme.Lasting.chat", "smallest-scope/com.acme.Fleeting.chat"

	acme.Chat(lasting, "id", "7", "msg", "one")
	if out := acme.Chat(lasting, "id", "7", "msg", "two"); len(out.Evicted) != 0 {
		t.Errorf("application-scoped memory ended with a request: %+v", out.Evicted)
	}
	acme.Chat(lasting, "id", "8", "msg", "not shared")
	third := acme.Chat(fleeting, "id", "7", "msg", "three")

	want := []string{"system:You forget", "user:one", "assistant:A1", "user:two", "assistant:A2", "user:three"}
	if got := env.Model.Send(4); !slices.Equal(got, want) {
		t.Errorf("the request-scoped service sent %q, want %q", got, want)
	}
	if len(third.Evicted) != 1 || third.Evicted[0].MemoryID != "7" || third.Evicted[0].Messages != 7 {
		t.Errorf("evicted is %+v, want memory 7 with 7 messages", third.Evicted)
	}
	if left := acme.MemoryIDs("smallest-scope"); !slices.Equal(left, []string{"8"}) {
		t.Errorf("histories %q are left, want only the one that is not shared", left)
	}
	acme.Chat(lasting, "id", "7", "msg", "who am I?")
	if got := env.Model.Send(5); !slices.Equal(got, []string{"system:You remember", "user:who am I?"}) {
		t.Errorf("after its end the memory id still knew something: %q", got)
	}
}
