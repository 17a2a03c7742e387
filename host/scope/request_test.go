package scope_test

import (
	"context"
	"errors"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/scope"
	"github.com/carrelhost/carrel/store"
)

func TestATouchIsDurableBeforeTheCommit(t *testing.T) {
	d := newDisk(t)
	r := registry(t, d, "one", nil)
	q := r.Begin(acme, "req_1")
	noError(t, q.Touch(t.Context(), request("a")))
	if got := histories(t, d); !maps.Equal(got, map[carrel.MemoryID]int64{"a": 0}) {
		t.Errorf("got %v, want one empty history", got)
	}
	orphans, err := d.Orphans(t.Context(), "the next run", 10)
	noError(t, err)
	if len(orphans) != 1 || orphans[0].ID != "req_1" || orphans[0].Node != "one" || orphans[0].Scope != carrel.ScopeRequest {
		t.Errorf("after a crash the next run would find %+v", orphans)
	}
	q.Close(t.Context())
}

func TestATouchOfTheRequestsOwnIDIsLeftToTheCommit(t *testing.T) {
	d := newDisk(t)
	q := registry(t, d, "one", nil).Begin(acme, "req_1")
	u := request("req_1#S.m")
	u.Key.Kind = carrel.KindRequest
	noError(t, q.Touch(t.Context(), u))
	if w := d.written(); len(w) != 0 || open(t, d, carrel.ScopeRequest) != 0 {
		t.Fatalf("the touch wrote %v", w)
	}
	noError(t, commitTo(t.Context(), q, u, 0, 1))
	if got := histories(t, d); got["req_1#S.m"] != 2 || open(t, d, carrel.ScopeRequest) != 1 {
		t.Fatalf("the commit left %v", got)
	}
	closed := q.Close(t.Context())
	if len(closed.Evicted) != 1 || len(histories(t, d)) != 0 || open(t, d, carrel.ScopeRequest) != 0 {
		t.Errorf("got %+v", closed)
	}
}

// An application-scoped service that accepts leaks touches before the model
// all the same: nothing else will ever name that history.
func TestATouchOfTheRequestsOwnIDInTheApplicationIsNotLeftToTheCommit(t *testing.T) {
	d := newDisk(t)
	r := registry(t, d, "one", nil)
	u := application(activate(t, d, r, chat), "req_1#S.m")
	u.Key.Kind = carrel.KindRequest
	q := r.Begin(acme, "req_1")
	noError(t, q.Touch(t.Context(), u))
	if got := histories(t, d); len(got) != 1 {
		t.Errorf("got %v", got)
	}
	if closed := q.Close(t.Context()); len(closed.Evicted) != 0 || len(histories(t, d)) != 1 {
		t.Errorf("the request's end evicted %+v", closed)
	}
}

func TestCloseEvictsExactlyWhatWasTouched(t *testing.T) {
	d := newDisk(t)
	r := registry(t, d, "one", nil)
	app := activate(t, d, r, chat)
	q, other := r.Begin(acme, "req_1"), r.Begin(acme, "req_2")
	chatOnce(t, d, q, request("a"), 1)
	chatOnce(t, d, q, request("b"), 1)
	chatOnce(t, d, q, request("a"), 2)
	noError(t, q.Touch(t.Context(), request("only touched")))
	chatOnce(t, d, q, application(app, "kept"), 1)
	chatOnce(t, d, other, request("another request's"), 1)

	closed := q.Close(t.Context())
	got := map[carrel.MemoryID]int64{}
	for _, e := range closed.Evicted {
		got[e.Key.ID] = e.Messages
		if e.Reason != carrel.ReasonScopeClosed || e.Plugin != chat || e.Handle != r.Handle(e.Key) || !e.At.Equal(noon) || e.Bytes != 2*e.Messages {
			t.Errorf("got %+v", e)
		}
	}
	if want := map[carrel.MemoryID]int64{"a": 4, "b": 2, "only touched": 0}; !maps.Equal(got, want) || closed.Pending {
		t.Errorf("evicted %v, want %v", got, want)
	}
	if left := histories(t, d); !maps.Equal(left, map[carrel.MemoryID]int64{"kept": 2, "another request's": 2}) {
		t.Errorf("left are %v", left)
	}
	other.Close(t.Context())
}

func TestTheSmallestScopeWins(t *testing.T) {
	for name, uses := range map[string]func(app store.ScopeInstance) []scope.Use{
		"the application's service first": func(app store.ScopeInstance) []scope.Use {
			return []scope.Use{application(app, "1234"), request("1234")}
		},
		"the request's service first": func(app store.ScopeInstance) []scope.Use {
			return []scope.Use{request("1234"), application(app, "1234")}
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDisk(t)
			r := registry(t, d, "one", nil)
			app := activate(t, d, r, chat)
			q := r.Begin(acme, "req_1")
			for i, u := range uses(app) {
				chatOnce(t, d, q, u, i)
			}
			if got := histories(t, d); got["1234"] != 4 {
				t.Fatalf("both turns make %v", got)
			}
			if closed := q.Close(t.Context()); len(closed.Evicted) != 1 || len(histories(t, d)) != 0 {
				t.Errorf("got %+v, left are %v", closed, histories(t, d))
			}
			if open(t, d, carrel.ScopeApplication) != 1 {
				t.Error("the application scope is closed, too")
			}
			q = r.Begin(acme, "req_2") // the next request starts empty
			chatOnce(t, d, q, application(app, "1234"), 9)
			q.Close(t.Context())
			if got := histories(t, d); got["1234"] != 2 {
				t.Errorf("the next request finds %v", got)
			}
		})
	}
}

func TestNoWriteFollowsTheClose(t *testing.T) {
	d := newDisk(t)
	r := registry(t, d, "one", nil)
	app := activate(t, d, r, chat)
	for name, u := range map[string]scope.Use{"request": request("a"), "application": application(app, "a")} {
		q := r.Begin(acme, "req_1")
		q.Close(t.Context())
		before := len(d.written())
		wantCode(t, q.Touch(t.Context(), u), abi.ScopeClosed)
		wantCode(t, commitTo(t.Context(), q, u, 0, 1), abi.ScopeClosed)
		if len(d.written()) != before || len(histories(t, d)) != 0 {
			t.Errorf("%s: wrote %v", name, d.written()[before:])
		}
	}
}

func TestCloseWaitsForAWriteUnderWay(t *testing.T) {
	d := newDisk(t)
	q := registry(t, d, "one", nil).Begin(acme, "req_1")
	noError(t, q.Touch(t.Context(), request("a")))
	v, err := d.View(t.Context(), key("a"), store.ViewLimit{Messages: 10})
	noError(t, err)

	committing, goOn := make(chan struct{}), make(chan struct{})
	early := make(chan struct{}, 1)
	d.watch(func(_ context.Context, write string) {
		switch {
		case strings.HasPrefix(write, "commit"):
			close(committing)
			<-goOn
		case strings.HasPrefix(write, "close"):
			select {
			case <-goOn:
			default:
				early <- struct{}{}
			}
		}
	})
	committed, closed := make(chan error, 1), make(chan scope.Closed, 1)
	go func() { committed <- commitTo(t.Context(), q, request("a"), v.Generation, 1) }()
	<-committing
	go func() { closed <- q.Close(t.Context()) }()
	for range 1000 { // room for a close that does not wait to show itself
		runtime.Gosched()
	}
	close(goOn)
	noError(t, <-committed)
	if c := <-closed; len(c.Evicted) != 1 || c.Evicted[0].Messages != 2 {
		t.Errorf("got %+v, want the committed turn evicted", c)
	}
	if len(early) != 0 {
		t.Error("the scope was closed during the commit")
	}
	if w := d.written(); !slices.Equal(w, []string{"touch a", "commit a", "close req_1 scope_closed"}) {
		t.Errorf("got %v", w)
	}
}

// Whatever the order in which writers and the close get on: what was written
// is gone, and nothing is written afterwards.
func TestWritersThatRaceWithTheClose(t *testing.T) {
	for range 200 {
		d := newDisk(t)
		q := registry(t, d, "one", nil).Begin(acme, "req_1")
		var writers sync.WaitGroup
		start := make(chan struct{})
		for _, id := range []carrel.MemoryID{"a", "b", "c", "d"} {
			writers.Go(func() {
				<-start
				for {
					err := q.Touch(t.Context(), request(id))
					if err == nil {
						continue
					}
					if carrel.CodeOf(err) != abi.ScopeClosed {
						t.Error(err)
					}
					return
				}
			})
		}
		close(start)
		for len(d.written()) == 0 {
			runtime.Gosched()
		}
		q.Close(t.Context())
		writers.Wait()
		w := d.written()
		if w[len(w)-1] != "close req_1 scope_closed" {
			t.Fatalf("%q follows the close", w[len(w)-1])
		}
		if left := histories(t, d); len(left) != 0 || open(t, d, carrel.ScopeRequest) != 0 {
			t.Fatalf("left are %v", left)
		}
	}
}

func TestCloseEvictsAfterTheClientWentAway(t *testing.T) {
	d := newDisk(t)
	q := registry(t, d, "one", nil).Begin(acme, "req_1")
	chatOnce(t, d, q, request("a"), 1)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if closed := q.Close(gone); closed.Pending || len(closed.Evicted) != 1 || len(histories(t, d)) != 0 {
		t.Errorf("got %+v", closed)
	}
}

func TestASecondCloseDoesNothing(t *testing.T) {
	d := newDisk(t)
	r := registry(t, d, "one", nil)
	q := r.Begin(acme, "req_1")
	chatOnce(t, d, q, request("a"), 1)
	var all sync.WaitGroup
	evicted := make(chan int, 10)
	for range cap(evicted) {
		all.Go(func() { evicted <- len(q.Close(t.Context()).Evicted) })
	}
	all.Wait()
	sum := 0
	for range cap(evicted) {
		sum += <-evicted
	}
	if w := d.written(); sum != 1 || len(w) != 3 {
		t.Errorf("%d evictions were reported by %v", sum, w)
	}
}

func TestARequestThatTouchedNothingWritesNothing(t *testing.T) {
	d := newDisk(t)
	q := registry(t, d, "one", nil).Begin(acme, "req_1")
	if q.ID() != "req_1" {
		t.Errorf("got id %s", q.ID())
	}
	closed := q.Close(t.Context())
	if w := d.written(); len(w) != 0 || closed.Pending || closed.Evicted != nil {
		t.Errorf("got %+v after %v", closed, w)
	}
}

// A touch that failed may have happened: the close must not rely on it not to.
func TestATouchOfUnknownOutcomeIsEvicted(t *testing.T) {
	d := newDisk(t)
	q := registry(t, d, "one", nil).Begin(acme, "req_1")
	d.failNth(1, true)
	if err := q.Touch(t.Context(), request("a")); !errors.Is(err, errDisk) {
		t.Fatalf("got %v", err)
	}
	if len(histories(t, d)) != 1 {
		t.Fatal("the touch did not happen after all")
	}
	if closed := q.Close(t.Context()); len(closed.Evicted) != 1 || len(histories(t, d)) != 0 {
		t.Errorf("got %+v", closed)
	}
}

func TestATouchOfAnApplicationThatWasClosed(t *testing.T) {
	d := newDisk(t)
	r := registry(t, d, "one", nil)
	app := activate(t, d, r, chat)
	q := r.Begin(acme, "req_1")
	noError(t, q.Touch(t.Context(), application(app, "a")))
	before, err := d.Deactivate(t.Context(), acme, chat)
	noError(t, err)
	closed := r.CloseApplication(t.Context(), before.Scope, carrel.ReasonPluginRemoved)
	if len(closed.Evicted) != 1 || closed.Evicted[0].Reason != carrel.ReasonPluginRemoved {
		t.Errorf("got %+v", closed)
	}
	wantCode(t, q.Touch(t.Context(), application(app, "a")), abi.ScopeClosed)
	wantCode(t, commitTo(t.Context(), q, application(app, "a"), 0, 1), abi.ScopeClosed)
	q.Close(t.Context())
	if left := histories(t, d); len(left) != 0 {
		t.Errorf("left are %v", left)
	}
}

func TestCloseOfNoApplicationDoesNothing(t *testing.T) {
	d := newDisk(t)
	r := registry(t, d, "one", nil)
	if c := r.CloseApplication(t.Context(), "", carrel.ReasonPluginRemoved); c.Pending || len(d.written()) != 0 {
		t.Errorf("got %+v after %v", c, d.written())
	}
}

// Scenario 13: a history that is deleted during a turn stays deleted.
func TestADeleteDuringATurn(t *testing.T) {
	for name, use := range map[string]func(app store.ScopeInstance) scope.Use{
		"request":     func(store.ScopeInstance) scope.Use { return request("a") },
		"application": func(app store.ScopeInstance) scope.Use { return application(app, "a") },
	} {
		t.Run("of a service of scope "+name, func(t *testing.T) {
			d := newDisk(t)
			r := registry(t, d, "one", nil)
			u := use(activate(t, d, r, chat))
			q := r.Begin(acme, carrel.RequestID("req_"+name))
			chatOnce(t, d, q, u, 1)
			v, err := d.View(t.Context(), u.Key, store.ViewLimit{Messages: 10})
			noError(t, err)
			e, err := r.Delete(t.Context(), u.Key)
			noError(t, err)
			if e.Reason != carrel.ReasonDeleted || e.Messages != 2 || e.Handle != r.Handle(u.Key) {
				t.Errorf("got %+v", e)
			}
			wantCode(t, commitTo(t.Context(), q, u, v.Generation, 2), abi.ScopeClosed)
			if left := histories(t, d); len(left) != 0 {
				t.Errorf("left are %v", left)
			}
			_, err = r.Delete(t.Context(), u.Key)
			wantCode(t, err, abi.NotFound)
			chatOnce(t, d, q, u, 3) // a turn that starts later begins anew
			if got := histories(t, d); got["a"] != 2 {
				t.Errorf("got %v", got)
			}
			q.Close(t.Context())
			if left := histories(t, d)["a"]; name == "request" && left != 0 {
				t.Error("what was made anew outlives its scope")
			}
		})
	}
}

// A deleted history that somebody else made anew is not the one the turn read.
func TestALateTurnDoesNotReachANewGeneration(t *testing.T) {
	d := newDisk(t)
	r := registry(t, d, "one", nil)
	app := activate(t, d, r, chat)
	q := r.Begin(acme, "req_1")
	chatOnce(t, d, q, application(app, "a"), 1)
	v, err := d.View(t.Context(), key("a"), store.ViewLimit{Messages: 10})
	noError(t, err)
	_, err = r.Delete(t.Context(), key("a"))
	noError(t, err)
	chatOnce(t, d, q, application(app, "a"), 2)
	wantCode(t, commitTo(t.Context(), q, application(app, "a"), v.Generation, 3), abi.ScopeClosed)
	now, err := d.View(t.Context(), key("a"), store.ViewLimit{Messages: 10})
	noError(t, err)
	if len(now.Recent) != 1 || now.Recent[0].Messages[0].Content != "U2" {
		t.Errorf("got %+v", now.Recent)
	}
}

func TestASessionIsNotOpenInARequest(t *testing.T) {
	d := newDisk(t)
	q := registry(t, d, "one", nil).Begin(acme, "req_1")
	u := request("a")
	u.Service = carrel.ScopeSession
	if err := q.Touch(t.Context(), u); err == nil || len(d.written()) != 0 {
		t.Errorf("got %v after %v", err, d.written())
	}
}
