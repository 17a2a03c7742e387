package host_test

import (
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/host/model/modeltest"
	"github.com/carrelhost/carrel/internal/testenv"
)

// scopesExample is the example plugin in Go with one chat service per scope
// and handlers that use them.
var scopesExample = filepath.Join("..", "examples", "scopes")

const (
	appChat     = "scopes/com.acme.AppChat.chat"
	sessionChat = "scopes/com.acme.SessionChat.chat"
	requestChat = "scopes/com.acme.RequestChat.chat"
)

// withGuest starts the program, with the example's guest in it.
func withGuest(t *testing.T) (p *process, data string, m *modeltest.Server, owner *testenv.Actor) {
	t.Helper()
	data, m = t.TempDir(), modeltest.NewServer(t)
	p = listening(t, command(t, "", data, m))
	owner = p.owner(t, data, m)
	owner.Build(scopesExample)
	return p, data, m, owner
}

func TestScenariosOfGuestsOnTheProgram(t *testing.T) {
	_, _, m, acme := withGuest(t)

	t.Run("2: two ids in one request are two conversations, gone at its end", func(t *testing.T) {
		acme, first := acme.In(t), len(m.Calls())
		acme.Chat(appChat, "id", "bystander", "msg", "hello")
		out := acme.Chat("scopes/com.acme.Rest.alternate")
		if got := m.Send(first + 4); len(got) != 4 || got[1] != "user:I am one" || got[3] != "user:Who am I?" {
			t.Errorf("send 3 is %q", got)
		}
		if len(out.Evicted) != 2 || out.Evicted[0].Messages != 5 || out.Evicted[1].Messages != 5 {
			t.Errorf("evicted is %+v, want two histories of two turns", out.Evicted)
		}
		if left := acme.MemoryIDs("scopes"); !slices.Equal(left, []string{"bystander"}) {
			t.Errorf("histories %q are left", left)
		}
	})

	t.Run("4: a socket's messages share a default id, and a request-scoped service starts empty", func(t *testing.T) {
		acme := acme.In(t)
		acme.Install("---\nname: defaults\nservices:\n- {name: S, scope: session}\n- {name: R, scope: request}\n---\n# S\nses\n\n# R\nreq")
		s := acme.Socket(client.SocketOptions{})
		first := len(m.Calls())
		one, two := s.Chat("defaults/S.chat", "msg", "one"), s.Chat("defaults/S.chat", "msg", "two")
		if want := s.Session + "#S.chat"; one.MemoryID != want || two.MemoryID != want {
			t.Errorf("the memory ids are %q and %q, want %q", one.MemoryID, two.MemoryID, want)
		}
		if got := m.Send(first + 2); len(got) != 4 || got[1] != "user:one" {
			t.Errorf("the second message sent %q", got)
		}
		three, four := s.Chat("defaults/R.chat", "msg", "three"), s.Chat("defaults/R.chat", "msg", "four")
		if want := s.Session + "#R.chat"; three.MemoryID != want || len(three.Evicted) != 1 || len(four.Evicted) != 1 {
			t.Errorf("the request-scoped service used %q and ended %+v", three.MemoryID, three.Evicted)
		}
		if got := m.Send(first + 4); !slices.Equal(got, []string{"system:req", "user:four"}) {
			t.Errorf("the fourth message sent %q", got)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		// The end of a connection tells nobody when.
		eventually(t, func() bool { return len(acme.MemoryIDs("defaults")) == 0 })
	})

	t.Run("5: an application-scoped and a request-scoped service on one id end it with the request", func(t *testing.T) {
		acme, first := acme.In(t), len(m.Calls())
		out := acme.Chat("scopes/com.acme.Rest.restCall", "id", "1234")
		if got := m.Send(first + 2); len(got) != 4 || got[1] != "user:My name is Ada" {
			t.Errorf("the second service sent %q", got)
		}
		if len(out.Evicted) != 1 || out.Evicted[0].MemoryID != "1234" {
			t.Errorf("evicted is %+v", out.Evicted)
		}
		acme.Chat(appChat, "id", "1234", "msg", "who am I?")
		if got := m.Send(first + 3); len(got) != 2 {
			t.Errorf("the next request sent %q, want it to start empty", got)
		}
	})

	t.Run("16: requests that take two ids in opposite orders all end, with every turn whole", func(t *testing.T) {
		const each = 10
		acme := acme.In(t)
		var all sync.WaitGroup
		for range each {
			for _, order := range [][2]string{{"left", "right"}, {"right", "left"}} {
				all.Go(func() {
					// Nothing that holds a turn runs guest code here, so that not
					// even memory_busy may come of it.
					if _, err := acme.Call(t.Context(), "scopes/com.acme.Rest.both", "first", order[0], "second", order[1]); err != nil {
						t.Errorf("first %s: %v", order[0], err)
					}
				})
			}
		}
		all.Wait()
		for _, id := range []string{"left", "right"} {
			stored := acme.Stored("scopes", id)
			if len(stored) != 1+2*2*each {
				t.Errorf("%s has %d messages, want a system message and %d turns", id, len(stored), 2*each)
			}
			for i := 1; i+1 < len(stored); i += 2 {
				if !strings.HasPrefix(stored[i], "user:") || !strings.HasPrefix(stored[i+1], "assistant:") {
					t.Errorf("%s: turn %d is %q, %q", id, i/2+1, stored[i], stored[i+1])
				}
			}
		}
	})

	// Handlers hold no turn while they wait for what they call, so these
	// requests never wait for each other crosswise. That of two which do, the
	// younger is refused, is shown by host/invoke/waitdie_test.go.
	t.Run("forty handlers whose calls use the same ids all end, and leave nothing", func(t *testing.T) {
		acme := acme.In(t)
		var all sync.WaitGroup
		for range 20 {
			for _, method := range []string{"alternate", "restCall"} {
				all.Go(func() {
					var params []string
					if method == "restCall" {
						params = []string{"id", "2"}
					}
					_, err := acme.Call(t.Context(), "scopes/com.acme.Rest."+method, params...)
					// What a guest was refused, it passes on: that its history
					// ended with another request is such a refusal.
					if code := testenv.CodeOf(err); code != abi.OK && code != abi.MemoryBusy && code != abi.GuestFailed {
						t.Errorf("%s: %v", method, err)
					}
				})
			}
		}
		all.Wait()
		for _, id := range acme.MemoryIDs("scopes") {
			if id == "1" || id == "2" {
				t.Errorf("memory %q outlived its requests", id)
			}
		}
	})
}

func TestNothingOfOpenSocketsIsLeftWhenTheHostIsKilled(t *testing.T) {
	p, data, m, acme := withGuest(t)
	acme.Chat(appChat, "id", "kept", "msg", "hello")
	session := acme.Open(client.NewSession{})
	acme.With("Carrel-Session", session.ID).Chat(sessionChat, "id", "of-the-session", "msg", "hello")
	for range 5 {
		s := acme.Socket(client.SocketOptions{})
		s.Chat(sessionChat, "id", "of-"+s.Session, "msg", "hello")
		s.Chat(appChat, "id", "app-"+s.Session, "msg", "hello")
		s.Chat(sessionChat, "id", "app-"+s.Session, "msg", "the smaller scope wins")
	}
	release, calls := m.Hold(), len(m.Calls())
	defer release()
	held := acme.Socket(client.SocketOptions{})
	held.Begin(requestChat, "id", "in-flight", "msg", "hello")
	if err := m.Arrived(t.Context(), calls+1); err != nil {
		t.Fatal(err)
	}
	if before := len(acme.MemoryIDs("scopes")); before < 12 {
		t.Fatalf("%d histories before the kill", before)
	}
	p.end(t, syscall.SIGKILL)

	again := listening(t, command(t, "", data, m))
	acme = again.owner(t, data, m)
	left := acme.MemoryIDs("scopes")
	slices.Sort(left)
	if !slices.Equal(left, []string{"kept", "of-the-session"}) {
		t.Errorf("histories %q are left, want those of the application and of the HTTP session", left)
	}
	acme.With("Carrel-Session", session.ID).Chat(sessionChat, "id", "of-the-session", "msg", "again")
	if got := acme.Stored("scopes", "of-the-session"); len(got) != 5 {
		t.Errorf("the HTTP session's history is %q, want both turns", got)
	}
	if code := again.end(t, syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if out := again.stdout.String(); !strings.Contains(out, "recovered: ") {
		t.Errorf("it does not say what it recovered:\n%s", out)
	}
}
