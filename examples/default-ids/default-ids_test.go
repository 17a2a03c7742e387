package defaultids_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/carrelhost/carrel/internal/testenv"
)

const chat = "default-ids/com.acme.MyChat.chat"

func TestEachRequestHasAMemoryOfItsOwnThatEndsWithIt(t *testing.T) {
	source, err := os.ReadFile("default-ids.md")
	if err != nil {
		t.Fatal(err)
	}
	env := testenv.New(t, testenv.Config())
	acme := env.Tenant("acme")
	acme.Install(string(source))

	ids := map[string]bool{}
	for n, msg := range []string{"hello", "hello again"} {
		out := acme.Chat(chat, "msg", msg)
		want := []string{"system:You are a nice assistant", "user:" + msg}
		if got := env.Model.Send(n + 1); !slices.Equal(got, want) {
			t.Errorf("send %d was %q, want %q", n+1, got, want)
		}
		if !strings.HasPrefix(out.MemoryID, "req_") || !strings.HasSuffix(out.MemoryID, "#com.acme.MyChat.chat") {
			t.Errorf("the default memory id is %q, want the request's and the method's", out.MemoryID)
		}
		ids[out.MemoryID] = true
		if len(out.Evicted) != 1 || out.Evicted[0].MemoryID != out.MemoryID || out.Evicted[0].Messages != 3 {
			t.Errorf("evicted is %+v, want the request's own history of 3 messages", out.Evicted)
		}
	}
	if len(ids) != 2 {
		t.Errorf("two requests had the memory ids %v", ids)
	}
	if left := acme.MemoryIDs("default-ids"); len(left) != 0 {
		t.Errorf("histories are left: %q", left)
	}
}
