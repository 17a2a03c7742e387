package invoke_test

import (
	"errors"
	"testing"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/invoke"
)

// wantSent runs a call and holds what the model receives against want.
func (e *env) wantSent(c invoke.Call, answer, want string) outcome {
	e.t.Helper()
	sent, o := e.run(c, answer)
	if sent != want {
		e.t.Errorf("sent %q, want %q", sent, want)
	}
	return o
}

// Scenario 1.
func TestAnotherServiceChangesTheOneSystemMessage(t *testing.T) {
	e := newEnv(t, nil)
	e.wantSent(e.call("p/App.chat", "id", "1", "msg", "U1"), "A1", "system:You are nice user:U1")
	e.wantSent(e.call("p/Mean.chat", "id", "1", "msg", "U2"), "A2", "system:You are mean user:U1 assistant:A1 user:U2")
	e.wantStored("1", "system:You are mean user:U1 assistant:A1 user:U2 assistant:A2")
}

// Scenario 3, and the default id's form.
func TestTwoRequestsWithoutMemoryID(t *testing.T) {
	e := newEnv(t, nil)
	for _, id := range []carrel.MemoryID{"req_1#Req.chat", "req_2#Req.chat"} {
		o := e.wantSent(e.call("p/Req.chat", "msg", "U"), "A", "user:U")
		if o.MemoryID != id || len(o.Evicted) != 1 || o.Evicted[0].Key.ID != id || o.Evicted[0].Messages != 2 {
			t.Errorf("got %+v, want the id %s, gone with its request", o, id)
		}
	}
	e.wantStored()
}

// Scenarios 5 and 6.
func TestARequestScopedServiceEndsWhatItShares(t *testing.T) {
	e := newEnv(t, nil)
	e.run(e.call("p/App.chat", "id", "1", "msg", "U1"), "A1")
	e.run(e.call("p/App.chat", "id", "2", "msg", "U1"), "A1")
	o := e.wantSent(e.call("p/Req.chat", "id", "1", "msg", "U2"), "A2", "system:You are nice user:U1 assistant:A1 user:U2")
	if len(o.Evicted) != 1 || o.Evicted[0].Messages != 5 || o.Evicted[0].Reason != carrel.ReasonScopeClosed {
		t.Errorf("evicted %+v", o.Evicted)
	}
	e.wantStored("2", firstTurn)
	e.wantSent(e.call("p/App.chat", "id", "1", "msg", "U3"), "A3", "system:You are nice user:U3")
}

// Scenario 7.
func TestAModelThatFailsLeavesTheHistoryAsItWas(t *testing.T) {
	e := seeded(t, nil)
	cause := errors.New("what is this")
	for name, failure := range map[string]error{
		"the provider's": &carrel.Error{Op: "scripted", Code: abi.ModelFailed, Msg: "the model is not well", Err: cause},
		"unclassified":   cause,
	} {
		done := e.start(t.Context(), e.call("p/Mean.chat", "id", "1", "msg", "U2"))
		(<-e.model.calls).fail(failure)
		o := <-done
		if !errors.Is(o.err, cause) || carrel.CodeOf(o.err) != carrel.CodeOf(failure) || o.Result != (invoke.Result{}) {
			t.Errorf("%s: got %+v", name, o)
		}
		e.wantStored("1", firstTurn)
	}
	e.wantSent(e.call("p/App.chat", "id", "1", "msg", "U2"), "A2", "system:You are nice user:U1 assistant:A1 user:U2")
	e.wantStored("1", firstTurn+" user:U2 assistant:A2")
}

// A failed call still touches: the history that it shared ends with it.
func TestAFailedCallStillTouches(t *testing.T) {
	e := seeded(t, nil)
	done := e.start(t.Context(), e.call("p/Req.chat", "id", "1", "msg", "U2"))
	(<-e.model.calls).fail(carrel.Fail("scripted", abi.ModelFailed, "not well"))
	o := <-done
	wantError(t, o.err, abi.ModelFailed, "")
	if len(o.Evicted) != 1 || o.Evicted[0].Key.ID != "1" {
		t.Errorf("evicted %+v", o.Evicted)
	}
	e.wantStored()
}

// The touch is durable while the model works: a crash then is recovered from.
func TestTheTouchComesBeforeTheModel(t *testing.T) {
	e := newEnv(t, nil)
	held, done := e.hold(e.call("p/Req.chat", "id", "r", "msg", "U"))
	orphans, err := e.disk.Orphans(t.Context(), "the next run", 10)
	if err != nil || len(orphans) != 1 || orphans[0].ID != "req_1" {
		t.Errorf("the next run would find %+v, %v", orphans, err)
	}
	e.wantStored("r", "")
	held.say("A")
	<-done
}

// Scenario 11: the history holds what the window leaves out.
func TestAWindowOfFourMessages(t *testing.T) {
	e := newEnv(t, nil)
	for _, turn := range []struct{ user, answer, sent string }{
		{"U1", "A1", "system:You are mean user:U1"},
		{"U2", "A2", "system:You are mean user:U1 assistant:A1 user:U2"},
		{"U3", "A3", "system:You are mean user:U2 assistant:A2 user:U3"},
		{"U4", "A4", "system:You are mean user:U3 assistant:A3 user:U4"},
	} {
		e.wantSent(e.call("p/Mean.short", "id", "1", "msg", turn.user), turn.answer, turn.sent)
	}
	e.wantStored("1", "system:You are mean user:U1 assistant:A1 user:U2 assistant:A2 user:U3 assistant:A3 user:U4 assistant:A4")
}

// Scenario 13.
func TestADeleteDuringATurn(t *testing.T) {
	e := seeded(t, nil)
	held, done := e.hold(e.call("p/App.chat", "id", "1", "msg", "U2"))
	key := carrel.MemoryKey{Tenant: acme, Namespace: "p", Kind: carrel.KindExplicit, ID: "1"}
	if _, err := e.scopes.Delete(t.Context(), key); err != nil { // it waits for no turn
		t.Fatal(err)
	}
	held.say("A2")
	wantError(t, (<-done).err, abi.ScopeClosed, "")
	e.wantStored()
	e.wantSent(e.call("p/App.chat", "id", "1", "msg", "U3"), "A3", "system:You are nice user:U3")
}

// A plugin that is deactivated during a turn takes the turn with it.
func TestADeactivationDuringATurn(t *testing.T) {
	e := seeded(t, nil)
	held, done := e.hold(e.call("p/App.chat", "id", "1", "msg", "U2"))
	before, err := e.disk.Deactivate(t.Context(), acme, "p")
	if err != nil {
		t.Fatal(err)
	}
	e.scopes.CloseApplication(t.Context(), before.Scope, carrel.ReasonPluginRemoved)
	held.say("A2")
	wantError(t, (<-done).err, abi.ScopeClosed, "")
	e.wantStored()
}

// Scenario 17.
func TestAHeaderNamesTheConversation(t *testing.T) {
	e := newEnv(t, nil)
	call := func(key carrel.KeyID, subject carrel.Subject, conversation, msg string) invoke.Call {
		c := e.call("conv/App.chat", "msg", msg)
		c.Caller.Key, c.Caller.Subject = key, subject
		c.Header = func(name string) []string {
			if name != "X-Conversation" {
				return nil
			}
			return []string{conversation}
		}
		return c
	}
	o := e.wantSent(call("key_1", "", "c1", "U1"), "A1", "user:U1")
	if o.MemoryID != "c1#App.chat" {
		t.Errorf("got the id %s", o.MemoryID)
	}
	e.wantSent(call("key_1", "", "c1", "U2"), "A2", "user:U1 assistant:A1 user:U2")
	e.wantSent(call("key_2", "", "c1", "U3"), "A3", "user:U3")
	e.wantSent(call("key_1", "key_1", "c1", "U4"), "A4", "user:U4")
	e.wantSent(call("key_1", "", "c2", "U5"), "A5", "user:U5")
	e.wantSent(call("key_3", "key_1", "c1", "U6"), "A6", "user:U4 assistant:A4 user:U6")
}

// Another tenant's history of the same plugin, service and id is another one.
func TestTenantsShareNothing(t *testing.T) {
	e := seeded(t, nil)
	e.wantSent(theirs(e.call("p/App.chat", "id", "1", "msg", "theirs")), "A", "system:You are nice user:theirs")
	e.wantStored("1", firstTurn)
	if got := e.stored(other)["1"]; got != "system:You are nice user:theirs assistant:A" {
		t.Errorf("the other tenant has %q", got)
	}
}

func TestATemplateMakesTheUserMessage(t *testing.T) {
	e := newEnv(t, nil)
	o := e.wantSent(e.call("p/Req.topic", "topic", "carrels"), "A", "user:carrels")
	if o.MemoryID != "req_1#Req.topic" {
		t.Errorf("got the id %s", o.MemoryID)
	}
}

// Whoever operates several models learns which one it was.
func TestAModelThatFailsIsNamedByItsAlias(t *testing.T) {
	e := newEnv(t, nil)
	done := e.start(t.Context(), e.call("p/Req.chat", "id", "1", "msg", "U"))
	(<-e.model.calls).fail(carrel.Fail("scripted", abi.ModelFailed, "the model is not well"))
	o := <-done
	if failure, ok := errors.AsType[*carrel.Error](o.err); !ok || failure.Msg != `model "default": the model is not well` {
		t.Errorf("got %v", o.err)
	}
}
