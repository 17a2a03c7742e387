package scope_test

import (
	"context"
	"errors"
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

var ann = carrel.Caller{Tenant: acme, Key: "key_1", Role: carrel.RoleCaller, Subject: "ann"}

// sessions bounds sessions and goes by the clock of the bubble.
func sessions(c *scope.Config) {
	c.Sessions = scope.SessionLimits{
		Sessions: 2000, DefaultIdle: time.Minute, DefaultMax: time.Hour, MostIdle: 2 * time.Hour, MostMax: 24 * time.Hour,
	}
	c.Now, c.NewID = time.Now, nil
}

// inBubble runs a test with a registry of sessions and a clock of its own.
func inBubble(t *testing.T, do func(t *testing.T, d *disk, r *scope.Registry)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		do(t, d, registry(t, d, "one", sessions))
	})
}

func openSession(t *testing.T, r *scope.Registry, n scope.NewSession) store.Session {
	t.Helper()
	if n.Owner == (carrel.Caller{}) {
		n.Owner = ann
	}
	s, err := r.OpenSession(t.Context(), n)
	noError(t, err)
	return s
}

func enter(t *testing.T, r *scope.Registry, id carrel.SessionID) (*scope.Session, func()) {
	t.Helper()
	s, leave, err := r.Enter(t.Context(), ann, id)
	noError(t, err)
	if s.ID() != id {
		t.Fatalf("entered %s", s.ID())
	}
	return s, leave
}

// wantClosed wants a session to be closed for its owner, whatever it asks.
func wantClosed(t *testing.T, r *scope.Registry, id carrel.SessionID, why carrel.EvictionReason) store.Session {
	t.Helper()
	_, _, err := r.Enter(t.Context(), ann, id)
	wantCode(t, err, abi.SessionClosed)
	s, err := r.Find(t.Context(), ann, id)
	noError(t, err)
	if s.ClosedAt.IsZero() || s.Reason != why {
		t.Errorf("the session is %+v, want it to be closed: %s", s, why)
	}
	if slices.Contains(listed(t, r, ann), id) {
		t.Error("it is listed among the open ones")
	}
	return s
}

func listed(t *testing.T, r *scope.Registry, who carrel.Caller) []carrel.SessionID {
	t.Helper()
	rows, err := r.Sessions(t.Context(), who, "", 1000)
	noError(t, err)
	var ids []carrel.SessionID
	for _, s := range rows {
		ids = append(ids, s.ID)
	}
	return ids
}

// inSession is the use of an explicit id by a session-scoped service.
func inSession(s *scope.Session, id carrel.MemoryID) scope.Use {
	return scope.Use{Key: key(id), Plugin: chat, Service: carrel.ScopeSession, Session: s, By: someone}
}

func wait(d time.Duration) { <-time.After(d) }

func TestOpenSession(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *disk, r *scope.Registry) {
		s := openSession(t, r, scope.NewSession{Metadata: []byte(`{"a":1}`)})
		if _, err := carrel.ParseSessionID(string(s.ID)); err != nil {
			t.Errorf("the id %q is none: %v", s.ID, err)
		}
		found, err := r.Find(t.Context(), ann, s.ID)
		noError(t, err)
		for _, s := range []store.Session{s, found} {
			if s.IdleTTL != time.Minute || s.MaxTTL != time.Hour || s.Owner != (store.Toucher{Key: "key_1", Subject: "ann"}) || s.Tenant != acme ||
				string(s.Metadata) != `{"a":1}` || !s.CreatedAt.Equal(time.Now()) || !s.LastUsedAt.Equal(s.CreatedAt) || !s.ClosedAt.IsZero() {
				t.Errorf("got %+v", s)
			}
		}
		s = openSession(t, r, scope.NewSession{IdleTTL: 2 * time.Hour, MaxTTL: 24 * time.Hour})
		if s.IdleTTL != 2*time.Hour || s.MaxTTL != 24*time.Hour {
			t.Errorf("got %+v", s)
		}
		for name, tc := range map[string]struct {
			n     scope.NewSession
			code  abi.Code
			limit string
		}{
			"an idle TTL above the limit": {scope.NewSession{IdleTTL: 2*time.Hour + 1}, abi.LimitExceeded, "sessionIdleTtlMax"},
			"a max TTL above the limit":   {scope.NewSession{MaxTTL: 24*time.Hour + 1}, abi.LimitExceeded, "sessionMaxTtlMax"},
			"an idle TTL below 0":         {scope.NewSession{IdleTTL: -1}, abi.BadRequest, ""},
			"a max TTL below 0":           {scope.NewSession{MaxTTL: -1}, abi.BadRequest, ""},
			"a tenant that is not there":  {scope.NewSession{Owner: carrel.Caller{Tenant: "nobody"}}, abi.NotFound, ""},
		} {
			if tc.n.Owner == (carrel.Caller{}) {
				tc.n.Owner = ann
			}
			_, err := r.OpenSession(t.Context(), tc.n)
			if carrel.CodeOf(err) != tc.code || limitOf(err) != tc.limit {
				t.Errorf("%s: got %v", name, err)
			}
		}
		if n := len(listed(t, r, ann)); n != 2 {
			t.Errorf("%d sessions are open", n)
		}
	})
}

// Sessions that are over count no more, swept or not.
func TestTheQuotaOfSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		r := registry(t, d, "one", func(c *scope.Config) {
			sessions(c)
			c.Sessions.Sessions = 2
		})
		openSession(t, r, scope.NewSession{})
		long := openSession(t, r, scope.NewSession{IdleTTL: time.Hour})
		_, err := r.OpenSession(t.Context(), scope.NewSession{Owner: ann})
		wantCode(t, err, abi.QuotaExceeded)
		wait(time.Minute)
		third := openSession(t, r, scope.NewSession{})
		_, err = r.OpenSession(t.Context(), scope.NewSession{Owner: ann})
		wantCode(t, err, abi.QuotaExceeded)
		if got := listed(t, r, ann); len(got) != 2 || !slices.Contains(got, long.ID) || !slices.Contains(got, third.ID) {
			t.Errorf("open are %v", got)
		}
	})
}

// Nothing sweeps here: the TTLs are judged by whoever reads.
func TestTTLsAreJudgedOnRead(t *testing.T) {
	reads := map[string]func(t *testing.T, r *scope.Registry, id carrel.SessionID){
		"by entering": func(t *testing.T, r *scope.Registry, id carrel.SessionID) {
			_, _, err := r.Enter(t.Context(), ann, id)
			wantCode(t, err, abi.SessionClosed)
		},
		"by finding": func(t *testing.T, r *scope.Registry, id carrel.SessionID) {
			s, err := r.Find(t.Context(), ann, id)
			noError(t, err)
			if s.ClosedAt.IsZero() || s.Reason != carrel.ReasonExpired || len(s.Evicted) != 1 {
				t.Errorf("got %+v", s)
			}
		},
		"by closing": func(t *testing.T, r *scope.Registry, id carrel.SessionID) {
			s, closed, err := r.CloseSession(t.Context(), ann, id)
			noError(t, err)
			if s.Reason != carrel.ReasonExpired || len(closed.Evicted) != 1 || closed.Pending {
				t.Errorf("got %+v, %+v", s, closed)
			}
		},
		"by listing": func(t *testing.T, r *scope.Registry, id carrel.SessionID) {
			if slices.Contains(listed(t, r, ann), id) {
				t.Error("it is listed")
			}
		},
	}
	for name, read := range reads {
		for ttl, after := range map[string]time.Duration{"idle": time.Minute, "max": time.Hour} {
			t.Run(name+", the "+ttl+" TTL", func(t *testing.T) {
				inBubble(t, func(t *testing.T, d *disk, r *scope.Registry) {
					idle := time.Minute
					if ttl == "max" {
						idle = 2 * time.Hour
					}
					s := openSession(t, r, scope.NewSession{IdleTTL: idle})
					in, leave := enter(t, r, s.ID)
					q := r.Begin(acme, "req_1")
					chatOnce(t, d, q, inSession(in, "a"), 1)
					if closed := q.Close(t.Context()); len(closed.Evicted) != 0 {
						t.Errorf("the request's end evicted %+v", closed)
					}
					leave()
					wait(after - time.Microsecond)
					if found, err := r.Find(t.Context(), ann, s.ID); err != nil || !found.ClosedAt.IsZero() || !slices.Contains(listed(t, r, ann), s.ID) {
						t.Fatalf("a moment before it is %+v, %v", found, err)
					}
					wait(time.Microsecond)
					read(t, r, s.ID)
					closed := wantClosed(t, r, s.ID, carrel.ReasonExpired)
					if len(closed.Evicted) != 1 || closed.Evicted[0].Key.ID != "a" || closed.Evicted[0].Reason != carrel.ReasonExpired || len(histories(t, d)) != 0 {
						t.Errorf("evicted %+v, left are %v", closed.Evicted, histories(t, d))
					}
				})
			})
		}
	}
}

func TestOnlyUseMovesTheIdleTime(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *disk, r *scope.Registry) {
		s := openSession(t, r, scope.NewSession{})
		for range 5 { // the use of it does
			wait(50 * time.Second)
			_, leave := enter(t, r, s.ID)
			leave()
		}
		wait(30 * time.Second)
		if _, err := r.Find(t.Context(), ann, s.ID); err != nil { // reading does not
			t.Fatal(err)
		}
		listed(t, r, ann)
		wait(30 * time.Second)
		wantClosed(t, r, s.ID, carrel.ReasonExpired)
	})
}

func TestASessionInUseIsNotIdle(t *testing.T) {
	for name, sweeps := range map[string]bool{"without the sweeper": false, "under the sweeper": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, _ *disk, r *scope.Registry) {
				if sweeps {
					defer run(t, r)()
				}
				s := openSession(t, r, scope.NewSession{})
				_, leaveFirst := enter(t, r, s.ID)
				wait(10 * time.Minute)
				_, leaveSecond := enter(t, r, s.ID) // others may enter
				leaveFirst()
				wait(10 * time.Minute)
				if found, err := r.Find(t.Context(), ann, s.ID); err != nil || !found.ClosedAt.IsZero() || !slices.Contains(listed(t, r, ann), s.ID) {
					t.Fatalf("it is %+v, %v", found, err)
				}
				leaveSecond() // its idle time begins now
				wait(59 * time.Second)
				if found, err := r.Find(t.Context(), ann, s.ID); err != nil || !found.ClosedAt.IsZero() {
					t.Fatalf("it is %+v, %v", found, err)
				}
				wait(time.Second)
				wantClosed(t, r, s.ID, carrel.ReasonExpired)
			})
		})
	}
}

// reader is a store whose reads of sessions a test interrupts: after they read
// and before they return.
type reader struct {
	*disk
	mu   sync.Mutex // guards then
	then func()
}

func (s *reader) interrupt() {
	s.mu.Lock()
	then := s.then
	s.then = nil
	s.mu.Unlock()
	if then != nil {
		then()
	}
}

func (s *reader) Session(ctx context.Context, t carrel.TenantID, id carrel.SessionID, by *store.Toucher) (store.Session, error) {
	defer s.interrupt()
	return s.disk.Session(ctx, t, id, by)
}

func (s *reader) ExpiredSessions(ctx context.Context, now time.Time, limit int) ([]store.Session, error) {
	defer s.interrupt()
	return s.disk.ExpiredSessions(ctx, now, limit)
}

func (s *reader) ListSessions(ctx context.Context, t carrel.TenantID, by *store.Toucher, after carrel.SessionID, limit int) ([]store.Session, error) {
	defer s.interrupt()
	return s.disk.ListSessions(ctx, t, by, after, limit)
}

// The row that was read says that the session is idle for long; the invocation
// that made it no such thing ends before the row is judged.
func TestAUseThatEndsWhileTheSessionIsJudged(t *testing.T) {
	for name, judge := range map[string]func(t *testing.T, r *scope.Registry, id carrel.SessionID){
		"by finding": func(t *testing.T, r *scope.Registry, id carrel.SessionID) {
			if s, err := r.Find(t.Context(), ann, id); err != nil || !s.ClosedAt.IsZero() {
				t.Errorf("got %+v, %v", s, err)
			}
		},
		"by entering": func(t *testing.T, r *scope.Registry, id carrel.SessionID) {
			_, leave := enter(t, r, id)
			leave()
		},
		"by listing": func(t *testing.T, r *scope.Registry, id carrel.SessionID) {
			if !slices.Contains(listed(t, r, ann), id) {
				t.Error("it is not listed")
			}
		},
		"by the sweeper": func(t *testing.T, r *scope.Registry, _ carrel.SessionID) {
			stop := run(t, r)
			synctest.Wait()
			stop()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &reader{disk: newDisk(t)}
				r := registry(t, d.disk, "one", func(c *scope.Config) {
					sessions(c)
					c.Store = d
				})
				s := openSession(t, r, scope.NewSession{})
				_, leave := enter(t, r, s.ID)
				wait(10 * time.Minute)
				d.mu.Lock()
				d.then = leave
				d.mu.Unlock()
				judge(t, r, s.ID)
				if d.then != nil {
					t.Fatal("nothing was read")
				}
				wait(59 * time.Second)
				if found, err := r.Find(t.Context(), ann, s.ID); err != nil || !found.ClosedAt.IsZero() {
					t.Errorf("it is %+v, %v", found, err)
				}
			})
		})
	}
}

// A turn that runs when the max TTL passes is cut: it is never stored.
func TestTheMaxTTLCutsWhatRuns(t *testing.T) {
	for name, sweeps := range map[string]bool{"by a reader": false, "by the sweeper": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, d *disk, r *scope.Registry) {
				if sweeps {
					defer run(t, r)()
				}
				s := openSession(t, r, scope.NewSession{})
				in, leave := enter(t, r, s.ID)
				defer leave()
				q := r.Begin(acme, "req_1")
				chatOnce(t, d, q, inSession(in, "a"), 1)
				noError(t, q.Touch(t.Context(), inSession(in, "a")))
				v, err := d.View(t.Context(), key("a"), store.ViewLimit{Messages: 10})
				noError(t, err)
				wait(time.Hour + 30*time.Second) // the sweeper comes each half minute
				if !sweeps {
					wantClosed(t, r, s.ID, carrel.ReasonExpired)
				}
				if n := len(histories(t, d)); n != 0 {
					t.Errorf("%d histories are left", n)
				}
				wantCode(t, commitTo(t.Context(), q, inSession(in, "a"), v.Generation, 2), abi.ScopeClosed)
				wantCode(t, q.Touch(t.Context(), inSession(in, "b")), abi.ScopeClosed)
				wantCode(t, commitTo(t.Context(), q, inSession(in, "b"), 0, 1), abi.ScopeClosed)
				chatOnce(t, d, q, request("r"), 1) // the request itself goes on
				q.Close(t.Context())
				if n := len(histories(t, d)); n != 0 {
					t.Errorf("%d histories are left", n)
				}
				wantClosed(t, r, s.ID, carrel.ReasonExpired)
			})
		})
	}
}

func limitOf(err error) string {
	if e, ok := errors.AsType[*carrel.Error](err); ok {
		return e.Limit
	}
	return ""
}
