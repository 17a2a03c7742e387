package invoke_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/invoke"
)

// hold starts a call and waits until the model has it.
func (e *env) hold(c invoke.Call) (held *modelCall, done <-chan outcome) {
	done = e.start(e.t.Context(), c)
	return <-e.model.calls, done
}

func theirs(c invoke.Call) invoke.Call {
	c.Caller.Tenant = other
	return c
}

func TestATenantHasItsOwnLimit(t *testing.T) {
	e := newEnv(t, func(c *invoke.Config) { c.Limits.PerTenant = 2 })
	one, oneDone := e.hold(e.call("p/Req.chat", "msg", "1"))
	two, twoDone := e.hold(e.call("p/Req.chat", "msg", "2"))
	o := e.refused(e.call("p/Req.chat", "msg", "3"), abi.QuotaExceeded, "concurrentInvocations")
	if failure, ok := errors.AsType[*carrel.Error](o.err); !ok || failure.Wait <= 0 {
		t.Errorf("%v does not say when to try again", o.err)
	}
	e.run(theirs(e.call("p/Req.chat", "msg", "another tenant's")), "A")
	one.say("A")
	if o := <-oneDone; o.err != nil {
		t.Fatal(o.err)
	}
	e.run(e.call("p/Req.chat", "msg", "4"), "A") // there is room again
	two.fail(errors.New("broken"))               // what fails makes room, too
	<-twoDone
	one, oneDone = e.hold(e.call("p/Req.chat", "msg", "5"))
	e.run(e.call("p/Req.chat", "msg", "6"), "A")
	one.say("A")
	<-oneDone
}

func TestTheHostHasALimitForAllTenants(t *testing.T) {
	e := newEnv(t, func(c *invoke.Config) { c.Limits.Invocations = 2 })
	one, oneDone := e.hold(e.call("p/Req.chat", "msg", "1"))
	two, twoDone := e.hold(theirs(e.call("p/Req.chat", "msg", "2")))
	for _, c := range []invoke.Call{e.call("p/Req.chat", "msg", "3"), theirs(e.call("p/Req.chat", "msg", "3"))} {
		o := e.refused(c, abi.Overloaded, "invocations")
		if failure, ok := errors.AsType[*carrel.Error](o.err); !ok || failure.Wait <= 0 {
			t.Errorf("%v does not say when to try again", o.err)
		}
	}
	one.say("A")
	<-oneDone
	e.run(theirs(e.call("p/Req.chat", "msg", "4")), "A")
	two.say("A")
	<-twoDone
}

func TestADrainWaitsForWhatRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnv(t, nil)
		held, done := e.hold(e.call("p/App.chat", "id", "1", "msg", "U1"))
		waiting := e.start(t.Context(), e.call("p/App.chat", "id", "1", "msg", "U2"))
		synctest.Wait()
		drained := make(chan struct{})
		go func() {
			defer close(drained)
			e.Drain(t.Context())
		}()
		synctest.Wait()
		e.refused(e.call("p/App.chat", "id", "2", "msg", "U3"), abi.Draining, "")
		held.say("A1")
		if o := <-done; o.err != nil {
			t.Fatal(o.err)
		}
		synctest.Wait()
		select {
		case <-drained:
			t.Fatal("the drain ended before the waiter did")
		default:
		}
		(<-e.model.calls).say("A2")
		if o := <-waiting; o.err != nil {
			t.Fatal(o.err)
		}
		<-drained
		e.wantStored("1", "system:You are nice user:U1 assistant:A1 user:U2 assistant:A2")
	})
}

func TestADrainThatRunsOutOfPatienceCancels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnv(t, nil)
		_, running := e.hold(e.call("p/App.chat", "id", "1", "msg", "U1"))
		waiting := e.start(t.Context(), e.call("p/App.chat", "id", "1", "msg", "U2"))
		request := e.start(t.Context(), e.call("p/Req.chat", "id", "r", "msg", "U3"))
		<-e.model.calls
		patience, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		begun := time.Now()
		e.Drain(patience)
		if took := time.Since(begun); took != 5*time.Second {
			t.Errorf("the drain took %v", took)
		}
		for _, d := range []<-chan outcome{running, waiting, request} {
			o := <-d
			wantError(t, o.err, abi.Draining, "")
			if failure, ok := errors.AsType[*carrel.Error](o.err); !ok || failure.Wait <= 0 {
				t.Errorf("%v does not say when to try again", o.err)
			}
		}
		e.wantStored("1", "") // it was touched, and its scope is open
		e.refused(e.call("p/App.chat", "id", "1", "msg", "U4"), abi.Draining, "")
	})
}

// A commit that is under way when patience ends is waited for, and counts.
func TestADrainDoesNotCutACommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnv(t, nil)
		committing, goOn := make(chan struct{}), make(chan struct{})
		e.disk.commit = func(ctx context.Context) error {
			close(committing)
			select {
			case <-goOn:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		held, done := e.hold(e.call("p/App.chat", "id", "1", "msg", "U1"))
		held.say("A1")
		<-committing
		patience, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		drained := make(chan struct{})
		go func() {
			defer close(drained)
			e.Drain(patience)
		}()
		<-time.After(2 * time.Second)
		close(goOn)
		if o := <-done; o.err != nil {
			t.Error(o.err)
		}
		<-drained
		e.wantStored("1", "system:You are nice user:U1 assistant:A1")
	})
}

func TestADrainOfAnIdleHostReturnsAtOnce(t *testing.T) {
	e := newEnv(t, nil)
	e.run(e.call("p/Req.chat", "msg", "U"), "A")
	e.Drain(t.Context())
	e.Drain(t.Context()) // a second one as well
	e.StopAccepting()
	e.refused(e.call("p/Req.chat", "msg", "U"), abi.Draining, "")
}

func TestStopAcceptingLetsRunWhatRuns(t *testing.T) {
	e := newEnv(t, nil)
	held, done := e.hold(e.call("p/App.chat", "id", "1", "msg", "U1"))
	e.StopAccepting()
	e.StopAccepting()
	e.refused(e.call("p/App.chat", "id", "2", "msg", "U"), abi.Draining, "")
	held.say("A1")
	if o := <-done; o.err != nil {
		t.Error(o.err)
	}
	e.Drain(t.Context())
	e.wantStored("1", "system:You are nice user:U1 assistant:A1")
}

// Calls that begin while the host begins to drain either run to their end or
// are refused before anything.
func TestCallsThatRaceWithTheDrain(t *testing.T) {
	e := newEnv(t, nil)
	var done []<-chan outcome
	for i := range 40 {
		done = append(done, e.start(t.Context(), e.call("p/App.chat", "id", fmt.Sprint(i), "msg", "U")))
	}
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		e.Drain(t.Context())
	}()
	all := make(chan struct{})
	go func() { // the model
		for {
			select {
			case c := <-e.model.calls:
				c.say("A")
			case <-all:
				return
			}
		}
	}()
	answered := 0
	for _, d := range done {
		if o := <-d; o.err == nil {
			answered++
		} else {
			wantError(t, o.err, abi.Draining, "")
		}
	}
	close(all)
	<-drained
	stored := e.stored(acme)
	if len(stored) != answered {
		t.Errorf("%d calls were answered, %d histories are there", answered, len(stored))
	}
	for id, text := range stored {
		if text != "system:You are nice user:U assistant:A" {
			t.Errorf("%s holds %q", id, text)
		}
	}
}

func TestNewReportsEveryFault(t *testing.T) {
	_, err := invoke.New(invoke.Config{})
	if err == nil {
		t.Fatal("want an error")
	}
	for _, want := range []string{"Catalog", "CommitTimeout", "TurnWaiters", "MessagesPerHistory", "WindowBytes"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not name %s", err, want)
		}
	}
}
