package invoke_test

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/invoke"
	"github.com/carrelhost/carrel/host/model"
	"github.com/carrelhost/carrel/host/scope"
)

// keyed gives a call the idempotency key K.
func keyed(c invoke.Call) invoke.Call {
	c.IdempotencyKey = "K"
	return c
}

// wantReplay wants a call to get the answer of an earlier one without a model
// call.
func (e *env) wantReplay(c invoke.Call, first outcome) {
	e.t.Helper()
	sent, o := e.answered(c)
	if o.err != nil || len(sent) != 0 {
		e.t.Fatalf("sent %q, got %v", sent, o.err)
	}
	first.Replayed, first.Closed = true, scope.Closed{}
	if !reflect.DeepEqual(o, first) {
		e.t.Errorf("got %+v, the first call got %+v", o, first)
	}
}

func TestARepeatedChatGetsTheSameAnswerAndIsOneTurn(t *testing.T) {
	e := seeded(t, func(c *invoke.Config) { c.Limits.MessagesPerHistory = 4 })
	_, first := e.run(keyed(e.call("p/App.chat", "id", "1", "msg", "U2")), "A2\n\x00ü")
	if first.Trimmed == 0 || first.Replayed {
		t.Fatalf("the first call got %+v", first)
	}
	for range 2 {
		e.wantReplay(keyed(e.call("p/App.chat", "id", "1", "msg", "U2")), first)
	}
	e.wantStored("1", "system:You are nice user:U2 assistant:A2\n\x00ü")
}

func TestARepeatedCallEndsNothingAndTouchesNothing(t *testing.T) {
	e := newEnv(t, nil)
	_, first := e.run(keyed(e.call("p/Req.chat", "id", "1", "msg", "U1")), "A1")
	if len(first.Evicted) != 1 {
		t.Fatalf("the first call got %+v", first)
	}
	e.run(e.call("p/App.chat", "id", "1", "msg", "U"), "A")
	e.wantReplay(keyed(e.call("p/Req.chat", "id", "1", "msg", "U1")), first)
	e.wantStored("1", "system:You are nice user:U assistant:A")
}

func TestARepeatedCallDoesNotUseItsSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newGuestEnv(t, nil)
		id := e.session()
		c := keyed(e.in(id, "Ses.chat", "msg", "U1"))
		_, first := e.run(c, "A1")
		before, err := e.scopes.Find(t.Context(), c.Caller, id)
		if err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Second)
		e.wantReplay(keyed(e.in(id, "Ses.chat", "msg", "U1")), first)
		if after, err := e.scopes.Find(t.Context(), c.Caller, id); err != nil || !after.LastUsedAt.Equal(before.LastUsedAt) {
			t.Errorf("the session was last used at %v, before the replay at %v, %v", after.LastUsedAt, before.LastUsedAt, err)
		}
		e.refused(keyed(e.in("", "Ses.chat", "msg", "U1")), abi.IdempotencyMismatch, "")
	})
}

func TestARepeatedHandlerGetsTheSameAnswer(t *testing.T) {
	for address, params := range map[string]string{
		"g/H.typed": `{"n": 1}`, "g/H.echo": `{"a":"` + "ü\\n\\u0000" + `"}`, "g/H.says": `{}`,
		"g/App.run": script(invokes("App", "chat", `{"id":"1","msg":"U"}`)),
	} {
		t.Run(address, func(t *testing.T) {
			e := newGuestEnv(t, nil)
			_, first := e.answered(keyed(e.raw(address, params)))
			if first.err != nil {
				t.Fatal(first.err)
			}
			logged := len(e.log.After(acme, "g", 0, 100))
			e.wantReplay(keyed(e.raw(address, params)), first)
			if now := len(e.log.After(acme, "g", 0, 100)); now != logged {
				t.Error("the plugin's code ran again")
			}
			if _, isJSON := first.Output.(json.RawMessage); isJSON != (address == "g/H.typed") {
				t.Errorf("the output is a %T", first.Output)
			}
		})
	}
}

// A turn inside a handler that fails is stored, and is no answer of the
// handler.
func TestOnlyTheClientsOwnInvocationAnswers(t *testing.T) {
	e := newGuestEnv(t, nil)
	params := script(invokes("App", "chat", `{"id":"1","msg":"U1"}`), invokes("App", "chat", `{"id":"1","msg":"U2"}`))
	ctx, leave := context.WithCancel(t.Context())
	done := e.start(ctx, keyed(e.raw("g/App.run", params)))
	(<-e.model.calls).say("A1")
	<-e.model.calls // by now the first turn is stored
	leave()
	wantError(t, (<-done).err, abi.Canceled, "")
	e.wantStored("1", "user:U1 assistant:A1")
	sent, o := e.answered(keyed(e.raw("g/App.run", params)))
	if o.err != nil || o.Replayed || len(sent) != 2 || sent[0] != "user:U1 assistant:A1 user:U1" {
		t.Errorf("the repeated call sent %q, got %+v", sent, o)
	}
}

// Its work is done: the client gets the answer, and nobody a second run.
func TestAHandlersAnswerThatCannotBeKeptIsGivenOnce(t *testing.T) {
	e := newGuestEnv(t, nil)
	e.disk.answer = func() error {
		if n := len(e.log.After(acme, "g", 0, 100)); n != 4 {
			t.Errorf("it was to be kept when the code had logged %d lines", n)
		}
		return carrel.Fail("test", abi.StorageFull, "the disk is full")
	}
	if _, o := e.answered(keyed(e.raw("g/H.says", `{}`))); o.err != nil || o.Output != "" {
		t.Errorf("got %+v", o)
	}
	e.disk.answer = nil
	for range 2 {
		e.refused(keyed(e.raw("g/H.says", `{}`)), abi.IdempotencyInterrupted, "")
	}
	if n := len(e.log.After(acme, "g", 0, 100)); n != 4 {
		t.Errorf("the code has logged %d lines", n)
	}
}

func TestAFailureFreesTheKey(t *testing.T) {
	gone := errors.New("the client is gone")
	for name, fail := range map[string]func(e *env, c invoke.Call) error{
		"a model that fails": func(e *env, c invoke.Call) error {
			held, done := e.hold(c)
			held.fail(errors.New("no"))
			return (<-done).err
		},
		"a client that goes away": func(e *env, c invoke.Call) error {
			ctx, leave := context.WithCancel(e.t.Context())
			done := e.start(ctx, c)
			<-e.model.calls
			leave()
			return (<-done).err
		},
		"a stream that ends": func(e *env, c invoke.Call) error {
			c.Stream = &streamed{err: gone}
			return (<-e.start(e.t.Context(), c)).err
		},
		"a commit that the store refuses": func(e *env, c invoke.Call) error {
			e.disk.commit = func(context.Context) error {
				e.disk.commit = nil
				return carrel.Fail("test", abi.StorageFull, "the disk is full")
			}
			held, done := e.hold(c)
			held.say("A")
			return (<-done).err
		},
		"a panic": func(e *env, c invoke.Call) error {
			panicked := make(chan any, 1)
			go func() {
				defer func() { panicked <- recover() }()
				_, _, _ = e.Run(e.t.Context(), c)
			}()
			(<-e.model.calls).reply <- func() (model.Response, error) { panic("a fault") }
			err, _ := (<-panicked).(string)
			return errors.New(err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t, nil)
			if err := fail(e, keyed(e.call("p/App.chat", "id", "1", "msg", "U1"))); err == nil {
				t.Fatal("it did not fail")
			}
			e.run(keyed(e.call("p/App.chat", "id", "1", "msg", "other params")), "A1")
			e.wantStored("1", "system:You are nice user:other params assistant:A1")
		})
	}
}

// Whether the store has the turn or not, its answer is with it.
func TestACommitOfUnknownOutcomeAndTheCallAfterIt(t *testing.T) {
	for name, stored := range map[string]bool{
		"the turn is stored: the repeated call gets its answer": true,
		"the turn is not stored: the repeated call makes it":    false,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := newEnv(t, nil)
				e.disk.commit = func(ctx context.Context) error {
					if !stored {
						<-ctx.Done()
					}
					return ctx.Err()
				}
				e.disk.committed = func(ctx context.Context) error {
					<-ctx.Done()
					return ctx.Err()
				}
				held, done := e.hold(keyed(e.call("p/App.chat", "id", "1", "msg", "U1")))
				waiting := e.start(t.Context(), keyed(e.call("p/App.chat", "id", "1", "msg", "U1")))
				held.say("A1")
				wantError(t, (<-done).err, abi.Timeout, "commitTimeout")
				e.disk.mu.Lock()
				e.disk.commit, e.disk.committed = nil, nil
				e.disk.mu.Unlock()
				var o outcome
				if stored {
					o = <-waiting
				} else {
					(<-e.model.calls).say("A2")
					o = <-waiting
				}
				want := map[bool]string{true: "A1", false: "A2"}[stored]
				if o.err != nil || o.Output != want || o.Replayed != stored {
					t.Errorf("got %+v", o)
				}
				e.wantStored("1", "system:You are nice user:U1 assistant:"+want)
			})
		})
	}
}

func TestParallelRepeatsAreOneModelCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnv(t, nil)
		held, first := e.hold(keyed(e.call("p/App.chat", "id", "1", "msg", "U1")))
		others := make([]outcome, 19)
		var all sync.WaitGroup
		for n := range others {
			all.Go(func() { others[n] = <-e.start(t.Context(), keyed(e.call("p/App.chat", "id", "1", "msg", "U1"))) })
		}
		synctest.Wait()
		held.say("A1")
		one := <-first
		all.Wait()
		for _, o := range others {
			if o.err != nil || !o.Replayed || o.ID != one.ID || o.Output != "A1" {
				t.Errorf("got %+v", o)
			}
		}
		e.wantStored("1", "system:You are nice user:U1 assistant:A1")
	})
}

func TestARepeatThatWaitsEndsWithItsDeadlineOrTheHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnv(t, nil)
		held, first := e.hold(keyed(e.call("p/App.chat", "id", "1", "msg", "U1")))
		c := keyed(e.call("p/App.chat", "id", "1", "msg", "U1"))
		c.Timeout = time.Second
		o := e.refused(c, abi.Timeout, "timeout")
		if failure, ok := errors.AsType[*carrel.Error](o.err); !ok || failure.Op != "idempotency.Enter" {
			t.Errorf("got %v", o.err)
		}
		waiting := e.start(t.Context(), keyed(e.call("p/App.chat", "id", "1", "msg", "U1")))
		synctest.Wait()
		over, cancel := context.WithCancel(t.Context())
		cancel()
		e.Drain(over)
		wantError(t, (<-waiting).err, abi.Draining, "")
		wantError(t, (<-first).err, abi.Draining, "")
		held.say("A1")
	})
}

func TestAStreamedReplayBeginsWithTheFirstCallsID(t *testing.T) {
	e := newEnv(t, nil)
	_, first := e.run(keyed(e.call("p/App.chat", "id", "1", "msg", "U1")), "A1")
	s := &streamed{}
	c := keyed(e.call("p/App.chat", "id", "1", "msg", "U1"))
	c.Stream = s
	c.Replaying = func() { s.started = append(s.started, "replaying") }
	e.wantReplay(c, first)
	if !slices.Equal(s.started, []string{"replaying", first.ID}) || s.deltas != nil {
		t.Errorf("told %+v", s)
	}
}

func TestWhatIsNotThereAnyMoreReplaysNothing(t *testing.T) {
	e := newEnv(t, nil)
	e.run(keyed(e.call("p/App.chat", "id", "1", "msg", "U1")), "A1")
	if _, err := e.catalog.Deactivate(t.Context(), acme, "p"); err != nil {
		t.Fatal(err)
	}
	e.refused(keyed(e.call("p/App.chat", "id", "1", "msg", "U1")), abi.NotFound, "")
}
