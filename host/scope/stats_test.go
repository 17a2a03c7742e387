package scope_test

import (
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/scope"
	"github.com/carrelhost/carrel/store"
)

func stats(t *testing.T, r *scope.Registry) scope.Stats {
	t.Helper()
	s, err := r.Stats(t.Context())
	noError(t, err)
	return s
}

func TestStatsCountWhatIsThere(t *testing.T) {
	inBubble(t, func(t *testing.T, d *disk, r *scope.Registry) {
		if s := stats(t, r); s.Histories+s.Touches+s.Leaking+s.LateCommits != 0 || s.Pending != 0 || len(s.Evictions) != 0 || s.ScrubAge != 0 {
			t.Errorf("at first they are %+v", s)
		}
		app := activate(t, d, r, chat)
		openSession(t, r, scope.NewSession{})
		socket, err := r.OpenSocket(t.Context(), acme)
		noError(t, err)
		q := r.Begin(acme, "req_1")
		chatOnce(t, d, q, application(app, "a"), 1)
		chatOnce(t, d, q, inSession(socket, "a"), 2)
		chatOnce(t, d, q, request("b"), 1)
		leak := application(app, "req_1#Chat.chat")
		leak.Key.Kind = carrel.KindRequest
		chatOnce(t, d, q, leak, 1)

		s := stats(t, r)
		if want := map[carrel.Scope]int64{carrel.ScopeRequest: 1, carrel.ScopeSession: 2, carrel.ScopeApplication: 1}; !maps.Equal(s.Scopes, want) {
			t.Errorf("open scopes are %v, want %v", s.Scopes, want)
		}
		if s.Histories != 3 || s.Touches != 4 || s.Leaking != 1 {
			t.Errorf("%d histories, %d touches, %d leaking; want 3, 4, 1", s.Histories, s.Touches, s.Leaking)
		}
		q.Close(t.Context())
		if s := stats(t, r); s.Scopes[carrel.ScopeRequest] != 0 || s.Histories != 2 || s.Touches != 3 || s.Leaking != 1 {
			t.Errorf("after the request they are %+v", s)
		}
		socket.Close(t.Context())
		if s := stats(t, r); s.Scopes[carrel.ScopeSession] != 1 || s.Histories != 1 || s.Touches < 1 || s.Touches > 2 {
			t.Errorf("after the socket they are %+v", s)
		}
	})
}

func TestStatsCountTheEndsOfHistoriesByReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		dead := registry(t, d, "dead", expiring)
		app := activate(t, d, dead, chat)
		chatOnce(t, d, dead.Begin(acme, "req_killed"), request("killed"), 1)

		r := registry(t, d, "one", expiring)
		want := map[carrel.EvictionReason]int64{}
		expect := func(what string, why carrel.EvictionReason, n int64) {
			t.Helper()
			if n > 0 {
				want[why] += n
			}
			if got := stats(t, r).Evictions; !maps.Equal(got, want) {
				t.Errorf("%s: %v, want %v", what, got, want)
			}
		}
		wantRecovered(t, r, scope.Recovered{Scopes: 1, Histories: 1})
		expect("a request that was killed", carrel.ReasonScopeClosed, 1)
		chatIn(t, d, r, request("a"))
		expect("the end of a request", carrel.ReasonScopeClosed, 1)
		s := openSession(t, r, scope.NewSession{})
		turnIn(t, d, r, s.ID, "b")
		expect("a use", "", 0)
		wait(time.Minute)
		seen(t, r)
		expect("the time of a session", carrel.ReasonExpired, 1)
		chatIn(t, d, r, application(app, "c"))
		_, err := r.Delete(t.Context(), key("c"))
		noError(t, err)
		expect("a deletion", carrel.ReasonDeleted, 1)
		chatIn(t, d, r, application(app, "d"))
		chatIn(t, d, r, application(app, "e"))
		_, err = r.Erase(t.Context(), acme, "ann")
		noError(t, err)
		expect("an erasure", carrel.ReasonErased, 2)
		chatIn(t, d, r, application(app, "f"))
		wait(idle)
		stop := run(t, r)
		synctest.Wait()
		stop()
		expect("a sweep of histories", carrel.ReasonExpired, 1)
		chatIn(t, d, r, application(app, "g"))
		before, err := d.Deactivate(t.Context(), acme, chat)
		noError(t, err)
		r.CloseApplication(t.Context(), before.Scope, carrel.ReasonPluginRemoved)
		expect("a deactivation", carrel.ReasonPluginRemoved, 1)

		got := stats(t, r).Evictions
		got["mine"] = 1 // belongs to whoever asked
		expect("a reader that writes", "", 0)
	})
}

func TestStatsCountTurnsThatCameTooLate(t *testing.T) {
	inBubble(t, func(t *testing.T, d *disk, r *scope.Registry) {
		app := activate(t, d, r, chat)
		use := application(app, "a")
		chatIn(t, d, r, use)
		h := only(t, r)
		_, err := r.Delete(t.Context(), use.Key)
		noError(t, err)
		q := r.Begin(acme, "req_1")
		wantCode(t, commitTo(t.Context(), q, use, h.Generation, 2), abi.ScopeClosed)
		q.Close(t.Context())
		wantCode(t, commitTo(t.Context(), q, use, 0, 2), abi.ScopeClosed)
		q = r.Begin(acme, "req_2")
		defer q.Close(t.Context())
		d.failNth(1, false)
		if err := commitTo(t.Context(), q, use, 0, 3); err == nil {
			t.Fatal("the store did not fail")
		}
		if n := stats(t, r).LateCommits; n != 2 {
			t.Errorf("%d turns came too late; the one that the store failed is none", n)
		}
	})
}

func TestStatsCountWhatWaitsForItsEviction(t *testing.T) {
	inBubble(t, func(t *testing.T, d *disk, r *scope.Registry) {
		q := r.Begin(acme, "req_1")
		chatOnce(t, d, q, request("a"), 1)
		d.failAll(true)
		q.Close(t.Context())
		if s := stats(t, r); s.Pending != 1 || s.Scopes[carrel.ScopeRequest] != 1 || len(s.Evictions) != 0 {
			t.Errorf("they are %+v", s)
		}
		d.failAll(false)
		stop := run(t, r)
		defer stop()
		wait(2 * time.Second)
		if s := stats(t, r); s.Pending != 0 || s.Evictions[carrel.ReasonScopeClosed] != 1 {
			t.Errorf("then they are %+v", s)
		}
	})
}

func TestStatsSayHowLongAgoTheLastScrubWasAndWhetherOneIsDue(t *testing.T) {
	inBubble(t, func(t *testing.T, d *disk, r *scope.Registry) {
		if s := stats(t, r); s.Scrub != (store.Scrub{}) || s.ScrubAge != 0 {
			t.Errorf("before the first they are %+v", s)
		}
		done, err := r.Scrub(t.Context())
		noError(t, err)
		wait(time.Hour)
		if s := stats(t, r); s.Scrub != done || s.ScrubAge != time.Hour || s.Scrub.Due {
			t.Errorf("an hour later they are %+v", s)
		}
		chatIn(t, d, r, request("a"))
		if s := stats(t, r); !s.Scrub.Due {
			t.Errorf("after an eviction they are %+v", s)
		}
		_, err = r.Scrub(t.Context())
		noError(t, err)
		if s := stats(t, r); s.Scrub.Due || s.ScrubAge != 0 {
			t.Errorf("after a scrub they are %+v", s)
		}
	})
}
