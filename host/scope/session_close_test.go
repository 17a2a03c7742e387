package scope_test

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/scope"
	"github.com/carrelhost/carrel/store"
)

func TestSessionsAreTheirOwners(t *testing.T) {
	inBubble(t, func(t *testing.T, d *disk, r *scope.Registry) {
		noError(t, d.CreateTenant(t.Context(), store.Tenant{ID: "other"}))
		s := openSession(t, r, scope.NewSession{})
		for name, who := range map[string]carrel.Caller{
			"another key":                            {Tenant: acme, Key: "key_2", Role: carrel.RoleCaller, Subject: "ann"},
			"another subject":                        {Tenant: acme, Key: "key_1", Role: carrel.RoleCaller, Subject: "bob"},
			"the key without a subject":              {Tenant: acme, Key: "key_1", Role: carrel.RoleCaller},
			"a viewer":                               {Tenant: acme, Key: "key_3", Role: carrel.RoleViewer},
			"a publisher":                            {Tenant: acme, Key: "key_3", Role: carrel.RolePublisher},
			"the same names in another tenant":       {Tenant: "other", Key: "key_1", Role: carrel.RoleCaller, Subject: "ann"},
			"the owner of another tenant":            {Tenant: "other", Key: "key_9", Role: carrel.RoleOwner},
			"the tenant's owner, who may only close": {Tenant: acme, Key: "key_9", Role: carrel.RoleOwner},
		} {
			_, _, err := r.Enter(t.Context(), who, s.ID)
			if carrel.CodeOf(err) != abi.NotFound {
				t.Errorf("%s entered: %v", name, err)
			}
			if who.Tenant == acme && who.Role == carrel.RoleOwner {
				continue
			}
			_, err = r.Find(t.Context(), who, s.ID)
			_, closed, closeErr := r.CloseSession(t.Context(), who, s.ID)
			if carrel.CodeOf(err) != abi.NotFound || carrel.CodeOf(closeErr) != abi.NotFound || closed.Evicted != nil || len(listed(t, r, who)) != 0 {
				t.Errorf("%s: found with %v, closed with %v", name, err, closeErr)
			}
		}
		if _, _, err := r.Enter(t.Context(), ann, "ses_none"); carrel.CodeOf(err) != abi.NotFound {
			t.Errorf("a session that is not there: %v", err)
		}
		_, leave := enter(t, r, s.ID) // nobody closed it
		leave()
		owner := carrel.Caller{Tenant: acme, Key: "key_9", Role: carrel.RoleOwner}
		if found, err := r.Find(t.Context(), owner, s.ID); err != nil || found.ID != s.ID || !slices.Equal(listed(t, r, owner), []carrel.SessionID{s.ID}) {
			t.Errorf("the owner finds %+v, %v", found, err)
		}
		if _, _, err := r.CloseSession(t.Context(), owner, s.ID); err != nil {
			t.Errorf("the owner cannot close it: %v", err)
		}
		wantClosed(t, r, s.ID, carrel.ReasonScopeClosed)
	})
}

func TestTwoClosesHaveOneReport(t *testing.T) {
	for name, at := range map[string]struct{ together bool }{"one after the other": {}, "at once": {true}} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, d *disk, r *scope.Registry) {
				s := openSession(t, r, scope.NewSession{})
				in, leave := enter(t, r, s.ID)
				q := r.Begin(acme, "req_1")
				chatOnce(t, d, q, inSession(in, "a"), 1)
				noError(t, q.Touch(t.Context(), inSession(in, "b")))
				chatOnce(t, d, q, request("r"), 1)
				leave()
				type answer struct {
					s      store.Session
					closed scope.Closed
					err    error
				}
				answers := make(chan answer, 2)
				ask := func() {
					s, closed, err := r.CloseSession(t.Context(), ann, s.ID)
					answers <- answer{s, closed, err}
				}
				if at.together { // each has found it open before one closes it
					var closings sync.WaitGroup
					closings.Add(2)
					d.watch(func(context.Context, string) {
						closings.Done()
						closings.Wait()
					})
					go ask()
					go ask()
				} else {
					ask()
					ask()
				}
				for range 2 {
					got := <-answers
					noError(t, got.err)
					ids := map[carrel.MemoryID]int64{}
					for _, e := range got.closed.Evicted {
						ids[e.Key.ID] = e.Messages
					}
					if !maps.Equal(ids, map[carrel.MemoryID]int64{"a": 2, "b": 0}) || got.closed.Pending || got.s.ClosedAt.IsZero() || got.s.Reason != carrel.ReasonScopeClosed {
						t.Errorf("got %+v, %+v", got.s, got.closed)
					}
				}
				d.watch(nil)
				if left := histories(t, d); !maps.Equal(left, map[carrel.MemoryID]int64{"r": 2}) {
					t.Errorf("left are %v", left)
				}
				q.Close(t.Context())
			})
		})
	}
}

func TestAClosedSessionIsKeptForAWhile(t *testing.T) {
	for name, tc := range map[string]struct{ idle, kept time.Duration }{
		"an hour":                        {time.Minute, time.Hour},
		"its idle TTL if that is longer": {2 * time.Hour, 2 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, _ *disk, r *scope.Registry) {
				defer run(t, r)()
				s := openSession(t, r, scope.NewSession{IdleTTL: tc.idle})
				if _, _, err := r.CloseSession(t.Context(), ann, s.ID); err != nil {
					t.Fatal(err)
				}
				wait(tc.kept - time.Second)
				wantClosed(t, r, s.ID, carrel.ReasonScopeClosed)
				wait(31 * time.Second)
				_, err := r.Find(t.Context(), ann, s.ID)
				wantCode(t, err, abi.NotFound)
			})
		})
	}
}

func TestTheSweeperClosesAllThatAreOver(t *testing.T) {
	inBubble(t, func(t *testing.T, d *disk, r *scope.Registry) {
		for range 1100 { // more than it lists at once, twice
			openSession(t, r, scope.NewSession{})
		}
		long := openSession(t, r, scope.NewSession{IdleTTL: time.Hour})
		defer run(t, r)()
		wait(90*time.Second + time.Millisecond)
		synctest.Wait()
		if n := open(t, d, carrel.ScopeSession); n != 1 {
			t.Errorf("%d sessions are open", n)
		}
		_, leave := enter(t, r, long.ID)
		leave()
	})
}

// A page of sessions is full although some of what was read is over.
func TestAPageOfSessions(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *disk, r *scope.Registry) {
		want := []carrel.SessionID{}
		for i := range 20 {
			idle := time.Minute
			if i%4 == 0 {
				idle = time.Hour
			}
			if s := openSession(t, r, scope.NewSession{IdleTTL: idle}); i%4 == 0 {
				want = append(want, s.ID)
			}
		}
		slices.Sort(want)
		wait(time.Minute)
		var got []carrel.SessionID
		for after := carrel.SessionID(""); ; after = got[len(got)-1] {
			page, err := r.Sessions(t.Context(), ann, after, 2)
			noError(t, err)
			for _, s := range page {
				got = append(got, s.ID)
			}
			if len(page) < 2 {
				break
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	})
}

// A session whose eviction failed is closed for everybody, and its report is
// there once the eviction has succeeded.
func TestASessionWhoseEvictionFails(t *testing.T) {
	inBubble(t, func(t *testing.T, d *disk, r *scope.Registry) {
		s := openSession(t, r, scope.NewSession{})
		in, leave := enter(t, r, s.ID)
		q := r.Begin(acme, "req_1")
		chatOnce(t, d, q, inSession(in, "a"), 1)
		leave()
		d.failAll(true)
		for range 2 {
			if _, closed, err := r.CloseSession(t.Context(), ann, s.ID); err != nil || !closed.Pending || closed.Evicted != nil {
				t.Errorf("got %+v, %v", closed, err)
			}
			wantClosed(t, r, s.ID, carrel.ReasonScopeClosed)
		}
		d.failAll(false)
		stop := run(t, r)
		synctest.Wait()
		stop()
		if _, closed, err := r.CloseSession(t.Context(), ann, s.ID); err != nil || closed.Pending || len(closed.Evicted) != 1 {
			t.Errorf("got %+v, %v", closed, err)
		}
		wantClosed(t, r, s.ID, carrel.ReasonScopeClosed)
	})
}

func TestSocketsAndSessionsOfADeadProcess(t *testing.T) {
	d := newDisk(t)
	inNode := func(node string) *scope.Registry {
		return registry(t, d, node, func(c *scope.Config) {
			sessions(c)
			c.Now = func() time.Time { return noon }
		})
	}
	dead, alive := inNode("dead"), inNode("alive")
	socket, err := dead.OpenSocket(t.Context(), acme)
	noError(t, err)
	mine, err := alive.OpenSocket(t.Context(), acme)
	noError(t, err)
	s := openSession(t, dead, scope.NewSession{})
	in, leave := enter(t, dead, s.ID)
	q := dead.Begin(acme, "req_1")
	chatOnce(t, d, q, inSession(socket, "on the socket"), 1)
	chatOnce(t, d, q, inSession(mine, "on mine"), 1)
	chatOnce(t, d, q, inSession(in, "in the session"), 1)
	leave()

	wantRecovered(t, alive, scope.Recovered{Scopes: 1, Histories: 1})
	if left := histories(t, d); !maps.Equal(left, map[carrel.MemoryID]int64{"on mine": 2, "in the session": 2}) {
		t.Errorf("left are %v", left)
	}
	in, leave = enter(t, alive, s.ID) // it survived, with what is in it
	chatOnce(t, d, alive.Begin(acme, "req_2"), inSession(in, "in the session"), 2)
	leave()
	if _, closed, err := alive.CloseSession(t.Context(), ann, s.ID); err != nil || len(closed.Evicted) != 1 || closed.Evicted[0].Messages != 4 {
		t.Errorf("got %+v, %v", closed, err)
	}
	// A socket's own session is nobody's HTTP session.
	_, _, err = alive.Enter(t.Context(), ann, mine.ID())
	wantCode(t, err, abi.NotFound)
	_, err = alive.Find(t.Context(), carrel.Caller{Tenant: acme, Role: carrel.RoleOwner}, mine.ID())
	wantCode(t, err, abi.NotFound)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if closed := mine.Close(ended); len(closed.Evicted) != 1 || closed.Evicted[0].Key.ID != "on mine" || closed.Evicted[0].Reason != carrel.ReasonScopeClosed {
		t.Errorf("got %+v", closed)
	}
	if closed := mine.Close(t.Context()); closed.Evicted != nil || closed.Pending {
		t.Errorf("the second close did %+v", closed)
	}
	if n := len(histories(t, d)); n != 0 {
		t.Errorf("%d histories are left", n)
	}
}
