package testenv

import (
	"context"

	"github.com/carrelhost/carrel/client"
)

// Outcome is what became of a call.
type Outcome struct {
	client.Invocation
	Err error
}

// Begin starts a call and returns without waiting for it. The channel gets its
// one outcome.
func (a *Actor) Begin(ctx context.Context, address string, params ...string) <-chan Outcome {
	done := make(chan Outcome, 1)
	go func() {
		out, err := a.Call(ctx, address, params...)
		done <- Outcome{out, err}
	}()
	return done
}

// Held is a call that waits for the model.
type Held struct {
	N       int            // the number of its model call
	Release func()         // lets the model answer; safe to call twice
	Outcome func() Outcome // waits for the end of the call; for one use
}

// Hold starts a call and returns when the model has received it, which then
// waits for the release. Nobody else may be calling the model meanwhile.
func (a *Actor) Hold(ctx context.Context, address string, params ...string) Held {
	a.t.Helper()
	h := Held{N: len(a.model.Calls()) + 1, Release: a.model.Hold()}
	a.t.Cleanup(h.Release)
	begun := a.Begin(ctx, address, params...)
	arrived := make(chan error, 1)
	life := context.WithoutCancel(ctx) // the call's client may go away at any time
	go func() { arrived <- a.model.Arrived(life, h.N) }()
	select {
	case err := <-arrived:
		if err != nil {
			a.t.Fatalf("hold %s: %v", address, err)
		}
	case o := <-begun:
		a.t.Fatalf("hold %s: it ended before the model was called: %v", address, o.Err)
	}
	h.Outcome = func() Outcome { return <-begun }
	return h
}

// Check holds the outcome of a call that the actor began against what it
// wants.
func (a *Actor) Check(what string, o Outcome) client.Invocation {
	a.t.Helper()
	a.check(what, o.Err)
	return o.Invocation
}
