package host_test

import (
	"testing"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/host"
	"github.com/carrelhost/carrel/internal/testenv"
	"github.com/carrelhost/carrel/internal/testproc"
)

func TestAHostCountsItsScopesAndTheWaitsForTurns(t *testing.T) {
	testenv.EachStore(t, func(t *testing.T, cfg host.Config) {
		env := testenv.New(t, cfg)
		numbers := func() host.Stats {
			t.Helper()
			s, err := env.Stats(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		acme := env.Tenant("acme")
		acme.Install(talking("one"))
		acme.Chat(botMethod, "id", "1", "msg", "U1")
		if s := numbers(); s.Scopes.Scopes[carrel.ScopeApplication] != 1 || s.Scopes.Histories != 1 || s.Scopes.Touches != 1 ||
			s.Turns.Waits != 0 || s.Turns.Waiting != 0 {
			t.Errorf("after a call the numbers are %+v", s)
		}
		call := acme.Hold(t.Context(), botMethod, "id", "1", "msg", "U2")
		queued := acme.Begin(t.Context(), botMethod, "id", "1", "msg", "U3")
		testproc.Until(t, "a turn that waits", func() bool { return numbers().Turns.Waiting == 1 })
		call.Release()
		acme.Check("the call", call.Outcome())
		acme.Check("the call that waited", <-queued)
		if s := numbers(); s.Turns.Waits != 1 || s.Turns.Waited <= 0 || s.Turns.Waiting != 0 {
			t.Errorf("after a wait the numbers are %+v", s.Turns)
		}
		late := acme.Hold(t.Context(), botMethod, "id", "1", "msg", "U4")
		acme.End("bot", "1")
		late.Release()
		late.Outcome()
		if s := numbers(); s.Scopes.LateCommits != 1 || s.Scopes.Evictions[carrel.ReasonDeleted] != 1 || s.Scopes.Histories != 0 || !s.Scopes.Scrub.Due {
			t.Errorf("after a deletion under a turn the numbers are %+v", s.Scopes)
		}
		if _, err := env.Admin().Scrub(t.Context()); err != nil {
			t.Fatal(err)
		}
		if s := numbers(); s.Scopes.Scrub.Due || s.Scopes.Scrub.At.IsZero() {
			t.Errorf("after a scrub the numbers are %+v", s.Scopes)
		}
	})
}
