package host_test

import (
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/host/model/modeltest"
)

func TestNothingOfOpenSocketsIsLeftWhenTheHostIsKilled(t *testing.T) {
	data, m := t.TempDir(), modeltest.NewServer(t)
	p := program.Serve(t, data, m)
	acme := p.Owner(t, data, m)
	acme.Upload(scopes.Module(t))
	acme.Chat(appChat, "id", "kept", "msg", "hello")
	session := acme.Open(client.NewSession{})
	acme.With("Carrel-Session", session.ID).Chat(sesChat, "id", "of-the-session", "msg", "hello")
	for range 5 {
		s := acme.Socket(client.SocketOptions{})
		s.Chat(sesChat, "id", "of-"+s.Session, "msg", "hello")
		s.Chat(appChat, "id", "app-"+s.Session, "msg", "hello")
		s.Chat(sesChat, "id", "app-"+s.Session, "msg", "the smaller scope wins")
	}
	release, calls := m.Hold(), len(m.Calls())
	defer release()
	held := acme.Socket(client.SocketOptions{})
	held.Begin(reqChat, "id", "in-flight", "msg", "hello")
	if err := m.Arrived(t.Context(), calls+1); err != nil {
		t.Fatal(err)
	}
	if before := len(acme.MemoryIDs("scopes")); before < 12 {
		t.Fatalf("%d histories before the kill", before)
	}
	p.End(t, syscall.SIGKILL)

	again := program.Serve(t, data, m)
	acme = again.Owner(t, data, m)
	left := acme.MemoryIDs("scopes")
	slices.Sort(left)
	if !slices.Equal(left, []string{"kept", "of-the-session"}) {
		t.Errorf("histories %q are left, want those of the application and of the HTTP session", left)
	}
	acme.With("Carrel-Session", session.ID).Chat(sesChat, "id", "of-the-session", "msg", "again")
	if got := acme.Stored("scopes", "of-the-session"); len(got) != 5 {
		t.Errorf("the HTTP session's history is %q, want both turns", got)
	}
	if code := again.End(t, syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if out := again.Stdout.String(); !strings.Contains(out, "recovered: ") {
		t.Errorf("it does not say what it recovered:\n%s", out)
	}
}
