package host_test

import (
	"testing"
	"time"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/host"
	"github.com/carrelhost/carrel/internal/testenv"
	"github.com/carrelhost/carrel/internal/testproc"
)

// deleteTurn deletes a turn of the history of bot with a memory id.
func deleteTurn(t *testing.T, a *testenv.Actor, id string, turn int64) {
	t.Helper()
	if err := a.Client().DeleteTurn(t.Context(), handle(t, a, id), turn); err != nil {
		t.Fatal(err)
	}
}

func TestEventsThatMayTellOfADeletedTurnAreGone(t *testing.T) {
	testenv.EachStore(t, func(t *testing.T, cfg host.Config) {
		cfg.Limits.EventsKept = time.Hour
		env := testenv.New(t, cfg)
		acme := env.Tenant("acme")
		acme.Install(talking("one"))
		secret := left(t, env, acme, botMethod, "1", "secret")
		repeats := left(t, env, acme, botMethod, "1", "as you said: secret")
		other := left(t, env, acme, botMethod, "2", "other")
		before := len(acme.Stored("bot", "1"))
		deleteTurn(t, acme, "1", 1)
		gone := acme.WantCode(abi.NotFound)
		gone.Check("the turn's events", testenv.Outcome{Err: acme.Events(t.Context(), secret, 0).Err()})
		gone.Check("those of a turn that read it", testenv.Outcome{Err: acme.Events(t.Context(), repeats, 0).Err()})
		acme.Events(t.Context(), other, 0).Rest()
		if n := len(acme.Stored("bot", "1")); n != before-2 {
			t.Errorf("%d messages are left of %d", n, before)
		}
	})
}

func TestEventsOfAnErasedSubjectAreGone(t *testing.T) {
	testenv.EachStore(t, func(t *testing.T, cfg host.Config) {
		cfg.Limits.EventsKept = time.Hour
		env := testenv.New(t, cfg)
		owner := env.Tenant("acme")
		owner.Install(testenv.Example(t, "smallest-scope"))
		backend := env.Key("acme", client.NewKey{Role: "caller", AssertSubject: true})
		ann, bob := backend.As("ann"), backend.As("bob")
		hers := left(t, env, ann, lasting, "1", "secret")
		his := left(t, env, bob, lasting, "2", "his")
		socket := ann.Socket(client.SocketOptions{})
		if done, err := owner.Client().EraseSubject(t.Context(), "ann"); err != nil || len(done.Evicted) != 1 {
			t.Fatalf("%+v, %v", done, err)
		}
		ann.WantCode(abi.NotFound).Check("her events", testenv.Outcome{Err: ann.Events(t.Context(), hers, 0).Err()})
		bob.Events(t.Context(), his, 0).Rest()
		socket.Chat(lasting, "id", "3", "msg", "still connected")
		if n := len(bob.Stored("smallest-scope", "2")); n < 3 {
			t.Errorf("%d messages are left of bob's", n)
		}
	})
}

func TestEventsOfAnExpiredHistoryAreGone(t *testing.T) {
	testenv.EachStore(t, func(t *testing.T, cfg host.Config) {
		cfg.Limits.EventsKept = time.Hour
		cfg.Limits.Timeout = 3 * time.Second
		cfg.Memory.HistoryIdleTTL = cfg.Limits.Timeout + time.Millisecond
		env := testenv.New(t, cfg)
		acme := env.Tenant("acme")
		acme.Install(talking("one"))
		id := left(t, env, acme, botMethod, "1", "secret")
		testproc.Until(t, "the end of the histories", func() bool { return len(acme.Memories("")) == 0 }) // long before a sweep
		acme.WantCode(abi.NotFound).Check("its events", testenv.Outcome{Err: acme.Events(t.Context(), id, 0).Err()})
	})
}
