package invoke_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/invoke"
	"github.com/carrelhost/carrel/store"
)

// below runs a call below the one that holds the turn of a key; its outcome
// arrives on the channel.
func (e *env) below(k carrel.MemoryKey, c invoke.Call) <-chan outcome {
	done := make(chan outcome, 1)
	go func() {
		r, err := e.Below(e.t.Context(), k, c.Address, c.Args)
		done <- outcome{Result: r, err: err}
	}()
	return done
}

// nest runs a call below the one that holds the turn of a key, and returns
// what the model was sent for it.
func (e *env) nest(k carrel.MemoryKey, c invoke.Call, answer string) string {
	e.t.Helper()
	done := e.below(k, c)
	select {
	case m := <-e.model.calls:
		m.say(answer)
		if o := <-done; o.err != nil {
			e.t.Fatal(o.err)
		}
		return m.sent()
	case o := <-done:
		e.t.Fatalf("it ended before the model was called: %+v", o)
		return ""
	}
}

// What ends a history while a turn runs on it ends the turn: nothing of it is
// stored, and a turn that starts later begins anew.
func TestWhatEndsAHistoryEndsItsTurn(t *testing.T) {
	ends := map[string]func(e *env, k carrel.MemoryKey){
		"it is deleted": func(e *env, k carrel.MemoryKey) {
			if _, err := e.scopes.Delete(e.t.Context(), k); err != nil {
				e.t.Error(err)
			}
		},
		"its subject is erased": func(e *env, _ carrel.MemoryKey) {
			if gone, err := e.scopes.Erase(e.t.Context(), acme, "ann"); err != nil || gone.Histories != 1 {
				e.t.Errorf("erased %+v, %v", gone, err)
			}
		},
		"it expires, and nobody has deleted it": func(*env, carrel.MemoryKey) { <-time.After(3 * time.Hour) },
		"it expires, and is deleted": func(e *env, _ carrel.MemoryKey) {
			<-time.After(3 * time.Hour)
			if gone, err := e.scopes.Histories().ExpireHistories(e.t.Context(), store.Cutoff{}, time.Now(), 10); err != nil || len(gone) != 1 {
				e.t.Errorf("expired %+v, %v", gone, err)
			}
		},
		"it is deleted, and somebody else touches the key": func(e *env, k carrel.MemoryKey) {
			if _, err := e.scopes.Delete(e.t.Context(), k); err != nil {
				e.t.Error(err)
			}
			touch := store.Touch{
				Scope: store.ScopeInstance{ID: "another", Tenant: acme, Scope: carrel.ScopeRequest, Node: "one"},
				Key:   k, Handle: e.scopes.Handle(k), Plugin: "w", At: time.Now(),
			}
			if _, err := e.disk.Touch(e.t.Context(), touch); err != nil {
				e.t.Error(err)
			}
		},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := newWindowEnv(t, func(c *invoke.Config) {
					c.Limits.Timeout, c.Histories = 24*time.Hour, c.Scopes.Histories()
				})
				call := func(msg string) invoke.Call {
					c := e.call("w/App.seeded", "id", "1", "msg", msg)
					c.Caller.Subject = "ann"
					return c
				}
				e.run(call("U1"), "A1")
				held, done := e.hold(call("U2"))
				end(e, explicit("1"))
				held.say("A2")
				wantError(t, (<-done).err, abi.ScopeClosed, "")
				e.wantSent(call("U3"), "A3", "user:u assistant:a user:U3")
				e.wantStored("1", "user:u assistant:a user:U3 assistant:A3")
			})
		})
	}
}

// A turn that is deleted ends no other: the one that runs was sent it, and is
// stored behind what is left.
func TestATurnIsDeletedWhileAnotherRuns(t *testing.T) {
	e := newWindowEnv(t, nil)
	seeded := func(msg string) invoke.Call { return e.call("w/App.seeded", "id", "1", "msg", msg) }
	e.run(seeded("U1"), "A1")
	deleteTurn := func(turn int64) {
		t.Helper()
		h, err := e.disk.History(t.Context(), acme, e.scopes.Handle(explicit("1")), nil, store.Cutoff{})
		if err != nil {
			t.Fatal(err)
		}
		if err := e.scopes.DeleteTurn(t.Context(), h, turn); err != nil {
			t.Fatal(err)
		}
	}
	held, done := e.hold(seeded("U2"))
	deleteTurn(2)
	held.say("A2")
	if o := <-done; o.err != nil {
		t.Fatal(o.err)
	}
	e.wantStored("1", "user:u assistant:a user:U2 assistant:A2")
	e.wantSent(seeded("U3"), "A3", "user:u assistant:a user:U2 assistant:A2 user:U3")

	// All of them are deleted while one runs: it is not seeded, for it was sent
	// what is no more. The next history without turns is.
	held, done = e.hold(seeded("U4"))
	for _, turn := range []int64{1, 3, 4} {
		deleteTurn(turn)
	}
	held.say("A4")
	if o := <-done; o.err != nil {
		t.Fatal(o.err)
	}
	e.wantStored("1", "user:U4 assistant:A4")
	deleteTurn(5)
	e.wantStored("1", "")
	e.wantSent(seeded("U5"), "A5", "user:u assistant:a user:U5")
}

// An inner turn on a key that its ancestor holds does not see the ancestor's,
// and is stored before it.
func TestInnerTurnsOnAnAncestorsKey(t *testing.T) {
	request := func(c invoke.Call, method string) carrel.MemoryKey {
		return carrel.MemoryKey{Tenant: acme, Namespace: "w", Kind: carrel.KindRequest, ID: carrel.MemoryID(string(c.Request) + "#Req." + method)}
	}
	t.Run("an empty history is seeded once, by the inner turn", func(t *testing.T) {
		e := newWindowEnv(t, nil)
		held, done := e.hold(e.call("w/App.seeded", "id", "1", "msg", "U1"))
		if sent := e.nest(explicit("1"), e.call("w/App.seeded", "id", "1", "msg", "U2"), "A2"); sent != "user:u assistant:a user:U2" {
			t.Errorf("the inner turn was sent %q", sent)
		}
		held.say("A1")
		if o := <-done; o.err != nil {
			t.Fatal(o.err)
		}
		e.wantStored("1", "user:u assistant:a user:U2 assistant:A2 user:U1 assistant:A1")
	})
	t.Run("a default history that the inner turn began is the outer one's too", func(t *testing.T) {
		e := newWindowEnv(t, nil)
		c := e.call("w/Req.seeded", "msg", "U1")
		held, done := e.hold(c)
		e.nest(request(c, "seeded"), e.call("w/Req.seeded", "msg", "U2"), "A2")
		if sent := e.nest(request(c, "seeded"), e.call("w/Req.seeded", "msg", "U3"), "A3"); sent != "user:u assistant:a user:U2 assistant:A2 user:U3" {
			t.Errorf("the second inner turn was sent %q", sent)
		}
		held.say("A1")
		if o := <-done; o.err != nil || len(o.Evicted) != 1 || o.Evicted[0].Messages != 8 {
			t.Errorf("got %+v", o)
		}
		e.wantStored()
	})
	t.Run("a default history that ended in between ends the outer turn", func(t *testing.T) {
		for name, again := range map[string]bool{"for good": false, "and was begun anew": true} {
			t.Run(name, func(t *testing.T) {
				e := newWindowEnv(t, nil)
				c := e.call("w/Req.seeded", "msg", "U1")
				k := request(c, "seeded")
				held, done := e.hold(c)
				e.nest(k, e.call("w/Req.seeded", "msg", "U2"), "A2")
				if _, err := e.scopes.Delete(t.Context(), k); err != nil {
					t.Fatal(err)
				}
				if again {
					e.nest(k, e.call("w/Req.seeded", "msg", "U3"), "A3")
				}
				held.say("A1")
				wantError(t, (<-done).err, abi.ScopeClosed, "")
				e.wantStored()
			})
		}
	})
	t.Run("a window that is retained drops nothing that the inner turn added", func(t *testing.T) {
		e := newWindowEnv(t, nil)
		keeps := func(msg string) invoke.Call { return e.call("w/App.keeps", "id", "1", "msg", msg) }
		e.run(keeps("U1"), "A1")
		e.run(keeps("U2"), "A2")
		held, done := e.hold(keeps("U3"))
		if sent := e.nest(explicit("1"), keeps("U4"), "A4"); sent != "user:U2 assistant:A2 user:U4" {
			t.Errorf("the inner turn was sent %q", sent)
		}
		e.wantStored("1", "user:U2 assistant:A2 user:U4 assistant:A4")
		held.say("A3")
		if o := <-done; o.err != nil {
			t.Fatal(o.err)
		}
		e.wantStored("1", "user:U2 assistant:A2 user:U4 assistant:A4 user:U3 assistant:A3")
		e.wantSent(keeps("U5"), "A5", "user:U3 assistant:A3 user:U5")
		e.wantStored("1", "user:U3 assistant:A3 user:U5 assistant:A5")
	})
	t.Run("an inner turn whose ancestor fails is stored", func(t *testing.T) {
		e := newWindowEnv(t, nil)
		held, done := e.hold(e.call("w/App.both", "id", "1", "msg", "U1"))
		e.nest(explicit("1"), e.call("w/App.both", "id", "1", "msg", "U2"), "A2")
		held.fail(carrel.Fail("scripted", abi.ModelFailed, "not well"))
		wantError(t, (<-done).err, abi.ModelFailed, "")
		e.wantStored("1", "user:u assistant:a user:U2 assistant:A2")
	})
}

// Scenario 16: the later request dies at once, and the earlier one gets both.
func TestTwoRequestsThatTakeTwoKeysInOppositeOrder(t *testing.T) {
	e := newWindowEnv(t, nil)
	seeded := func(id, msg string) invoke.Call { return e.call("w/App.keeps", "id", id, "msg", msg) }
	first, firstDone := e.hold(seeded("1", "U1"))
	second, secondDone := e.hold(seeded("2", "U2"))
	wantError(t, (<-e.below(explicit("2"), seeded("1", "V2"))).err, abi.MemoryBusy, "")
	inner := e.below(explicit("1"), seeded("2", "V1"))
	second.say("A2")
	if o := <-secondDone; o.err != nil {
		t.Error(o.err)
	}
	(<-e.model.calls).say("B1")
	if o := <-inner; o.err != nil {
		t.Error(o.err)
	}
	first.say("A1")
	if o := <-firstDone; o.err != nil {
		t.Error(o.err)
	}
	e.wantStored("1", "user:U1 assistant:A1", "2", "user:U2 assistant:A2 user:V1 assistant:B1")
}

func TestTheWaitsForTurnsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnv(t, nil)
		if s := e.Stats(); s != (invoke.Stats{}) {
			t.Errorf("at first there are %+v", s)
		}
		held, first := e.hold(e.call("p/App.chat", "id", "1", "msg", "U1"))
		gone, leave := context.WithCancel(t.Context())
		second := e.start(t.Context(), e.call("p/App.chat", "id", "1", "msg", "U2"))
		third := e.start(gone, e.call("p/App.chat", "id", "1", "msg", "U3"))
		e.run(e.call("p/App.chat", "id", "2", "msg", "U"), "A") // it waits for nobody
		synctest.Wait()
		if s := e.Stats(); s != (invoke.Stats{Waits: 2, Waiting: 2}) {
			t.Errorf("while two wait there are %+v", s)
		}
		<-time.After(time.Second)
		leave()
		wantError(t, (<-third).err, abi.Canceled, "")
		<-time.After(time.Second)
		held.say("A1")
		<-first
		(<-e.model.calls).say("A2")
		<-second
		if s := e.Stats(); s != (invoke.Stats{Waits: 2, Waited: 3 * time.Second}) {
			t.Errorf("after them there are %+v", s)
		}
	})
}
