package invoke_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/invoke"
)

// queue starts calls one after the other, each when the one before waits.
func (e *env) queue(ctx context.Context, n int) []<-chan outcome {
	var out []<-chan outcome
	for i := range n {
		out = append(out, e.start(ctx, e.call("p/App.chat", "id", "1", "msg", fmt.Sprintf("U%d", i))))
		synctest.Wait()
	}
	return out
}

func TestFiftyWaitersAreServedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnv(t, nil)
		done := e.queue(t.Context(), 51)
		var want []string
		for i := range done {
			c := <-e.model.calls
			if c.asked() != fmt.Sprintf("U%d", i) {
				t.Fatalf("turn %d is that of %s", i, c.asked())
			}
			synctest.Wait()
			select {
			case early := <-e.model.calls:
				t.Fatalf("%s runs beside %s", early.asked(), c.asked())
			default:
			}
			c.say(fmt.Sprintf("A%d", i))
			if o := <-done[i]; o.err != nil || o.Output != fmt.Sprintf("A%d", i) {
				t.Fatalf("got %+v", o)
			}
			want = append(want, fmt.Sprintf("user:U%d assistant:A%d", i, i))
		}
		e.wantStored("1", "system:You are nice "+strings.Join(want, " "))
	})
}

// Scenario 14.
func TestTwentyParallelCallsAreTwentyWholeTurns(t *testing.T) {
	e := newEnv(t, nil)
	var done []<-chan outcome
	for i := range 20 {
		done = append(done, e.start(t.Context(), e.call("p/App.chat", "id", "1", "msg", fmt.Sprintf("U%d", i))))
	}
	var want []string
	for range done {
		c := <-e.model.calls
		answer := strings.Replace(c.asked(), "U", "A", 1)
		want = append(want, "user:"+c.asked()+" assistant:"+answer)
		c.say(answer)
	}
	for _, d := range done {
		if o := <-d; o.err != nil {
			t.Error(o.err)
		}
	}
	e.wantStored("1", "system:You are nice "+strings.Join(want, " "))
}

func TestACallThatWillNotWaitIsBusy(t *testing.T) {
	e := newEnv(t, nil)
	c := e.call("p/App.chat", "id", "1", "msg", "U1")
	c.RejectBusy = true
	first := e.start(t.Context(), c) // nobody holds it: that is no conflict
	holder := <-e.model.calls
	c = e.call("p/App.chat", "id", "1", "msg", "U2")
	c.RejectBusy = true
	e.refused(c, abi.MemoryBusy, "")
	holder.say("A1")
	if o := <-first; o.err != nil {
		t.Fatal(o.err)
	}
	e.wantStored("1", "system:You are nice user:U1 assistant:A1")
}

// A refused call of a request-scoped service has touched nothing.
func TestABusyCallEndsNoHistory(t *testing.T) {
	e := newEnv(t, nil)
	first := e.start(t.Context(), e.call("p/App.chat", "id", "1", "msg", "U1"))
	holder := <-e.model.calls
	c := e.call("p/Req.chat", "id", "1", "msg", "U2")
	c.RejectBusy = true
	if o := e.refused(c, abi.MemoryBusy, ""); len(o.Evicted) != 0 {
		t.Errorf("evicted %+v", o.Evicted)
	}
	holder.say("A1")
	if o := <-first; o.err != nil {
		t.Fatal(o.err)
	}
	e.wantStored("1", "system:You are nice user:U1 assistant:A1")
}

func TestWaitersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnv(t, func(c *invoke.Config) { c.Limits.TurnWaiters = 2 })
		done := e.queue(t.Context(), 2)
		impatient, leave := context.WithCancel(t.Context())
		third := e.start(impatient, e.call("p/App.chat", "id", "1", "msg", "leaves"))
		synctest.Wait()
		over := e.start(t.Context(), e.call("p/App.chat", "id", "1", "msg", "over"))
		wantError(t, (<-over).err, abi.MemoryBusy, "turnWaiters")
		leave()
		wantError(t, (<-third).err, abi.Canceled, "")
		done = append(done, e.start(t.Context(), e.call("p/App.chat", "id", "1", "msg", "U2"))) // in its place
		for i, d := range done {
			c := <-e.model.calls
			if c.asked() != fmt.Sprintf("U%d", i) {
				t.Errorf("turn %d is that of %s", i, c.asked())
			}
			c.say("A")
			if o := <-d; o.err != nil {
				t.Error(o.err)
			}
		}
	})
}

func TestWaitersThatLeaveHoldUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnv(t, nil)
		first := e.queue(t.Context(), 1)
		gone, leave := context.WithCancel(t.Context())
		var leaving, staying []<-chan outcome
		for i := range 10 {
			leaving = append(leaving, e.start(gone, e.call("p/App.chat", "id", "1", "msg", "leaves")))
			synctest.Wait()
			staying = append(staying, e.start(t.Context(), e.call("p/App.chat", "id", "1", "msg", fmt.Sprintf("stays%d", i))))
			synctest.Wait()
		}
		late := e.call("p/App.chat", "id", "1", "msg", "late")
		late.Timeout = time.Second
		expired := e.start(t.Context(), late)
		leave()
		for _, d := range leaving {
			wantError(t, (<-d).err, abi.Canceled, "")
		}
		wantError(t, (<-expired).err, abi.Timeout, "timeout") // a waiter's own deadline
		(<-e.model.calls).say("A")
		if o := <-first[0]; o.err != nil {
			t.Fatal(o.err)
		}
		for i, d := range staying {
			c := <-e.model.calls
			if c.asked() != fmt.Sprintf("stays%d", i) {
				t.Errorf("turn %d is that of %s", i, c.asked())
			}
			c.say("A")
			if o := <-d; o.err != nil {
				t.Error(o.err)
			}
		}
	})
}

// The turn lasts until the request's scope has closed: whoever waits for it
// must not build upon a history that is about to be evicted.
func TestTheNextTurnComesAfterTheEviction(t *testing.T) {
	for name, address := range map[string]string{
		"of a request-scoped service":      "p/Req.chat",
		"of an application-scoped service": "p/App.chat",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := newEnv(t, nil)
				held, first := e.hold(e.call("p/Req.chat", "id", "1", "msg", "U1"))
				second := e.start(t.Context(), e.call(address, "id", "1", "msg", "U2"))
				synctest.Wait()
				closing, goOn := make(chan struct{}), make(chan struct{})
				e.disk.close = sync.OnceValue(func() error {
					close(closing)
					<-goOn
					return nil
				})
				held.say("A1")
				<-closing
				synctest.Wait()
				select {
				case c := <-e.model.calls:
					t.Errorf("the next turn began before the eviction, with %q", c.sent())
					c.say("A2")
				default:
				}
				close(goOn)
				if o := <-first; o.err != nil || len(o.Evicted) != 1 {
					t.Errorf("got %+v", o)
				}
				select {
				case c := <-e.model.calls:
					if strings.Contains(c.sent(), "U1") {
						t.Errorf("the next turn was sent %q", c.sent())
					}
					c.say("A2")
					if o := <-second; o.err != nil {
						t.Error(o.err)
					}
				case o := <-second:
					t.Error(o.err)
				}
			})
		})
	}
}

func TestParallelCallsOfARequestScopedServiceAllSucceed(t *testing.T) {
	e := newEnv(t, nil)
	var done []<-chan outcome
	for i := range 20 {
		done = append(done, e.start(t.Context(), e.call("p/Req.chat", "id", "1", "msg", fmt.Sprintf("U%d", i))))
	}
	for range done {
		c := <-e.model.calls
		if c.sent() != "user:"+c.asked() {
			t.Errorf("sent %q, want each to start empty", c.sent())
		}
		c.say("A")
	}
	for _, d := range done {
		if o := <-d; o.err != nil || len(o.Evicted) != 1 {
			t.Errorf("got %+v", o)
		}
	}
	e.wantStored()
}

func TestOtherKeysDoNotWait(t *testing.T) {
	e := newEnv(t, nil)
	held := e.start(t.Context(), e.call("p/App.chat", "id", "1", "msg", "U1"))
	holder := <-e.model.calls
	theirs := e.call("p/App.chat", "id", "1", "msg", "another tenant's 1")
	theirs.Caller.Tenant = other
	header := e.call("conv/App.chat", "msg", "another plugin's 1")
	header.Header = func(string) []string { return []string{"1"} }
	for _, c := range []invoke.Call{
		e.call("p/App.chat", "id", "2", "msg", "another id"), theirs, header,
		e.call("p/Req.chat", "msg", "a default id"),
	} {
		c.RejectBusy = true
		e.run(c, "A")
	}
	holder.say("A1")
	if o := <-held; o.err != nil {
		t.Error(o.err)
	}
}

func yield(times int) {
	for range times {
		runtime.Gosched()
	}
}

// Waiters give up at the very moment at which the turn is handed to them. No
// turn is ever lost, and no two run at once.
func TestTurnsThatRaceWithTheirWaitersEnd(t *testing.T) {
	turns := invoke.NewTurns(1000)
	keys := []carrel.MemoryKey{{ID: "a"}, {ID: "b"}}
	running := make([]atomic.Int32, len(keys))
	var all sync.WaitGroup
	var got, gaveUp atomic.Int32
	for i := range 16 {
		all.Go(func() {
			k := i % len(keys)
			for round := range 300 {
				ctx, cancel := context.WithCancel(t.Context())
				var racing sync.WaitGroup
				racing.Go(func() {
					yield(round % 8)
					cancel()
				})
				release, err := turns.Acquire(ctx, keys[k], invoke.Root(uint64(i)), false)
				switch {
				case err == nil:
					if n := running[k].Add(1); n != 1 {
						t.Errorf("%d turns run at once", n)
					}
					got.Add(1)
					yield(3)
					running[k].Add(-1)
					release()
				case errors.Is(err, context.Canceled):
					gaveUp.Add(1)
				default:
					t.Error(err)
				}
				racing.Wait()
			}
		})
	}
	all.Wait()
	if got.Load() == 0 || gaveUp.Load() == 0 {
		t.Errorf("%d turns were got, %d given up: nothing raced", got.Load(), gaveUp.Load())
	}
	if n := turns.Held(); n != 0 {
		t.Errorf("%d keys are held after all", n)
	}
}

// The hand-over and the end of the waiter's context are both there when the
// waiter wakes up: whichever it sees, the next one gets its turn.
func TestAHandOverToAWaiterThatIsGone(t *testing.T) {
	for range 200 {
		synctest.Test(t, func(t *testing.T) {
			turns := invoke.NewTurns(10)
			k := carrel.MemoryKey{ID: "a"}
			release, err := turns.Acquire(t.Context(), k, invoke.Root(1), false)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			type got struct {
				release func()
				err     error
			}
			wait := func(ctx context.Context) <-chan got {
				c := make(chan got, 1)
				go func() {
					release, err := turns.Acquire(ctx, k, invoke.Root(2), false)
					c <- got{release, err}
				}()
				synctest.Wait()
				return c
			}
			first, second := wait(ctx), wait(t.Context())
			go cancel()
			go release()
			if g := <-first; g.err == nil {
				g.release()
			}
			g := <-second
			if g.err != nil {
				t.Fatal(g.err)
			}
			g.release()
			if n := turns.Held(); n != 0 {
				t.Errorf("%d keys are held", n)
			}
		})
	}
}
