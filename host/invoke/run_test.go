package invoke_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/invoke"
	"github.com/carrelhost/carrel/host/model"
)

// seeded returns an environment with one turn under the id 1 of App.
func seeded(t *testing.T, change func(*invoke.Config)) *env {
	t.Helper()
	e := newEnv(t, change)
	e.run(e.call("p/App.chat", "id", "1", "msg", "U1"), "A1")
	return e
}

const firstTurn = "system:You are nice user:U1 assistant:A1"

func TestTheResultOfACall(t *testing.T) {
	e := newEnv(t, func(c *invoke.Config) { c.NewID = func() string { return "inv_1" } })
	sent, o := e.run(e.call("p/App.chat", "id", "1", "msg", "U1"), "A1")
	want := invoke.Result{
		ID: "inv_1", Output: "A1", MemoryID: "1", Model: "scripted-1", FinishReason: model.FinishStop,
		Usage: invoke.Usage{Usage: carrel.Usage{InputTokens: 3, OutputTokens: 4}},
	}
	if o.Result != want || o.Pending || len(o.Evicted) != 0 || sent != "system:You are nice user:U1" {
		t.Errorf("got %+v for %q", o, sent)
	}
}

func TestRefusedBeforeAnyWork(t *testing.T) {
	as := func(r carrel.KeyRole) func(*invoke.Call) { return func(c *invoke.Call) { c.Caller.Role = r } }
	for name, tc := range map[string]struct {
		address string
		params  []string
		change  func(*invoke.Call)
		code    abi.Code
		limit   string
	}{
		"a publisher may not call":              {"p/Req.chat", []string{"id", "1", "msg", "U"}, as(carrel.RolePublisher), abi.Forbidden, ""},
		"a viewer may not call":                 {"p/Req.chat", []string{"id", "1", "msg", "U"}, as(carrel.RoleViewer), abi.Forbidden, ""},
		"a caller of no role may not call":      {"p/Req.chat", []string{"id", "1", "msg", "U"}, as(""), abi.Forbidden, ""},
		"a timeout above the limit":             {"p/Req.chat", []string{"id", "1", "msg", "U"}, func(c *invoke.Call) { c.Timeout = time.Minute + 1 }, abi.LimitExceeded, "timeout"},
		"a plugin that is not there":            {"q/Req.chat", []string{"id", "1", "msg", "U"}, nil, abi.NotFound, ""},
		"a service that is not there":           {"p/Nil.chat", []string{"id", "1", "msg", "U"}, nil, abi.NotFound, ""},
		"a method that is not there":            {"p/Req.none", []string{"id", "1", "msg", "U"}, nil, abi.NotFound, ""},
		"a version that is not there":           {"p@2/Req.chat", []string{"id", "1", "msg", "U"}, nil, abi.NotFound, ""},
		"a tenant that is not there":            {"p/Req.chat", []string{"id", "1", "msg", "U"}, func(c *invoke.Call) { c.Caller.Tenant = "nobody" }, abi.NotFound, ""},
		"a param that is missing":               {"p/Req.chat", []string{"id", "1"}, nil, abi.InvalidParams, ""},
		"a param of another type":               {"p/Req.chat", []string{"id", "1"}, func(c *invoke.Call) { c.Args.Value["msg"] = true }, abi.InvalidParams, ""},
		"a param that no template uses":         {"p/Req.chat", []string{"id", "1", "msg", "U", "n", "many"}, nil, abi.InvalidParams, ""},
		"no params at all":                      {"p/Req.chat", nil, func(c *invoke.Call) { c.Args.Value = map[string]any{"id": "1"} }, abi.InvalidParams, ""},
		"a user message that is empty":          {"p/Req.chat", []string{"id", "1", "msg", ""}, nil, abi.InvalidParams, ""},
		"a template that comes out empty":       {"p/Req.topic", []string{"topic", ""}, nil, abi.InvalidParams, ""},
		"a memory id that is missing":           {"p/App.chat", []string{"msg", "U"}, nil, abi.InvalidMemoryID, ""},
		"a memory id before the schema":         {"p/App.chat", []string{"id", ""}, nil, abi.InvalidMemoryID, ""},
		"a memory id that is too long":          {"p/Req.chat", []string{"id", strings.Repeat("1", 257), "msg", "U"}, nil, abi.InvalidMemoryID, ""},
		"a header that the memory id needs":     {"conv/App.chat", []string{"msg", "U"}, nil, abi.DefaultIDLeak, ""},
		"a header that is there twice":          {"conv/App.chat", []string{"msg", "U"}, func(c *invoke.Call) { c.Header = func(string) []string { return []string{"a", "b"} } }, abi.InvalidMemoryID, ""},
		"a timeout that has passed before then": {"p/Req.chat", []string{"id", "1", "msg", "U"}, func(c *invoke.Call) { c.Timeout = -1 }, abi.Timeout, "timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			// The request-scoped service would end the history 1 if it
			// touched it.
			e := seeded(t, nil)
			c := e.call(tc.address, tc.params...)
			if tc.change != nil {
				tc.change(&c)
			}
			if o := e.refused(c, tc.code, tc.limit); len(o.Evicted) != 0 || o.Pending {
				t.Errorf("the call touched something: %+v", o.Closed)
			}
			e.wantStored("1", firstTurn)
		})
	}
}

func TestDeadlines(t *testing.T) {
	for name, tc := range map[string]struct{ own, takes time.Duration }{
		"the caller's own":                   {3 * time.Second, 3 * time.Second},
		"the limit if the caller names none": {0, time.Minute},
		"the limit is the most":              {time.Minute, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := seeded(t, nil)
				c := e.call("p/Mean.chat", "id", "1", "msg", "U2")
				c.Timeout = tc.own
				begun := time.Now()
				_, done := e.hold(c)
				o := <-done
				wantError(t, o.err, abi.Timeout, "timeout")
				if took := time.Since(begun); took != tc.takes {
					t.Errorf("it took %v", took)
				}
				e.wantStored("1", firstTurn)
			})
		})
	}
}

func TestAClientThatGoesAway(t *testing.T) {
	for name, deaf := range map[string]bool{
		"cancels the model call":                       false,
		"cancels the turn although the model answered": true,
	} {
		t.Run(name, func(t *testing.T) {
			e := seeded(t, nil)
			e.model.deaf = deaf
			ctx, leave := context.WithCancel(t.Context())
			done := e.start(ctx, e.call("p/Mean.chat", "id", "1", "msg", "U2"))
			c := <-e.model.calls
			leave()
			if deaf {
				c.say("A2")
			}
			wantError(t, (<-done).err, abi.Canceled, "")
			e.wantStored("1", firstTurn)
			e.model.deaf = false
			e.run(e.call("p/App.chat", "id", "1", "msg", "U2"), "A2") // the turn is free
		})
	}
}

func TestAClientThatGoesAwayDuringTheCommit(t *testing.T) {
	e := seeded(t, nil)
	ctx, leave := context.WithCancel(t.Context())
	e.disk.commit = func(commit context.Context) error {
		leave()
		<-ctx.Done()
		return commit.Err()
	}
	done := e.start(ctx, e.call("p/App.chat", "id", "1", "msg", "U2"))
	(<-e.model.calls).say("A2")
	if o := <-done; o.err != nil || o.Output != "A2" {
		t.Errorf("got %+v", o)
	}
	e.wantStored("1", firstTurn+" user:U2 assistant:A2")
}

// A request-scoped service's histories end although nobody waits any more.
func TestAClientThatGoesAwayLeavesNothingOfItsRequest(t *testing.T) {
	e := newEnv(t, nil)
	ctx, leave := context.WithCancel(t.Context())
	e.disk.commit = func(context.Context) error {
		leave()
		return nil
	}
	done := e.start(ctx, e.call("p/Req.chat", "id", "r", "msg", "U"))
	(<-e.model.calls).say("A")
	if o := <-done; o.err != nil || len(o.Evicted) != 1 {
		t.Errorf("got %+v", o)
	}
	e.wantStored()
}

func TestACommitThatTakesTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, timeout := range map[string]time.Duration{
			"within the request's time": 30 * time.Second,
			"beyond the request's time": time.Second,
		} {
			e := newEnv(t, nil)
			e.disk.commit = func(ctx context.Context) error {
				<-ctx.Done()
				return ctx.Err()
			}
			c := e.call("p/App.chat", "id", "1", "msg", "U1")
			c.Timeout = timeout
			held, done := e.hold(c)
			held.say("A1")
			o := <-done
			wantError(t, o.err, abi.Timeout, "commitTimeout")
			if failure, ok := errors.AsType[*carrel.Error](o.err); !ok || strings.Contains(failure.Msg, "nothing of it was stored") {
				t.Errorf("%s: %v promises what nobody knows", name, o.err)
			}
		}
	})
}

func TestACommitThatFails(t *testing.T) {
	e := seeded(t, nil)
	full := carrel.Fail("test", abi.StorageFull, "the disk is full")
	e.disk.commit = func(context.Context) error { return full }
	done := e.start(t.Context(), e.call("p/Mean.chat", "id", "1", "msg", "U2"))
	(<-e.model.calls).say("A2")
	o := <-done
	if wantError(t, o.err, abi.StorageFull, ""); !errors.Is(o.err, full) || o.Output != nil {
		t.Errorf("got %+v", o)
	}
	e.wantStored("1", firstTurn)
}

func TestAnEvictionThatFailsIsPending(t *testing.T) {
	e := newEnv(t, nil)
	e.disk.close = func() error { return errors.New("the disk is on fire") }
	_, o := e.run(e.call("p/Req.chat", "id", "r", "msg", "U"), "A")
	if !o.Pending || o.Output != "A" || e.scopes.Pending() != 1 {
		t.Errorf("got %+v", o)
	}
}

// What a host keeps of each request, it would keep until it stops.
func TestNothingIsKeptOfARequestThatEnded(t *testing.T) {
	e := newEnv(t, nil)
	type mark [64]byte
	type markKey struct{}
	run := func() weak.Pointer[mark] {
		m := &mark{}
		done := e.start(context.WithValue(t.Context(), markKey{}, m), e.call("p/App.chat", "id", "1", "msg", "U"))
		(<-e.model.calls).say("A")
		if o := <-done; o.err != nil {
			t.Fatal(o.err)
		}
		return weak.Make(m)
	}
	kept := run()
	defer runtime.KeepAlive(e)
	for range 100 { // the goroutine that ran it may still be on its way out
		if runtime.GC(); kept.Value() == nil {
			return
		}
		runtime.Gosched()
	}
	t.Error("the request's context is still held")
}

// A fault of the host's own code must not keep a history, a turn or a place.
func TestAPanicLeavesNothingBehind(t *testing.T) {
	e := newEnv(t, func(c *invoke.Config) { c.Limits.PerTenant = 1 })
	e.run(e.call("p/App.chat", "id", "1", "msg", "U1"), "A1")
	panicked := make(chan any, 1)
	go func() {
		defer func() { panicked <- recover() }()
		_, _, _ = e.Run(t.Context(), e.call("p/Req.chat", "id", "1", "msg", "U"))
	}()
	(<-e.model.calls).reply <- func() (model.Response, error) { panic("a fault") }
	if got := <-panicked; got != "a fault" {
		t.Fatalf("recovered %v", got)
	}
	e.wantStored()
	c := e.call("p/App.chat", "id", "1", "msg", "U1")
	c.RejectBusy = true
	e.run(c, "A1")
}
