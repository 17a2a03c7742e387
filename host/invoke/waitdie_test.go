package invoke_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/invoke"
)

// turn is a turn that was asked for.
type turn struct {
	name string
	done chan struct{} // closed when it was given or refused
	err  error
	give func()
}

// court is turn locks whose turns a test asks for by name. It lives in one
// synctest bubble.
type court struct {
	t     *testing.T
	turns invoke.Turns
	all   map[string]*turn
}

func newCourt(t *testing.T) *court {
	return &court{t, invoke.NewTurns(100), map[string]*turn{}}
}

func id(name string) carrel.MemoryKey { return carrel.MemoryKey{ID: carrel.MemoryID(name)} }

// ask asks for the turn of a key and waits until nothing moves any more.
func (c *court) ask(name, key string, f invoke.Frame) {
	c.t.Helper()
	w := &turn{name: name, done: make(chan struct{})}
	c.all[name] = w
	go func() {
		w.give, w.err = c.turns.Acquire(c.t.Context(), id(key), f, false)
		close(w.done)
	}()
	synctest.Wait()
}

// end gives a turn back.
func (c *court) end(name string) {
	c.t.Helper()
	c.all[name].give()
	synctest.Wait()
}

// want wants turns to have been given (+name), refused as busy (-name), or to
// be waited for (?name).
func (c *court) want(states ...string) {
	c.t.Helper()
	for _, s := range states {
		w := c.all[s[1:]]
		got := "?"
		select {
		case <-w.done:
			if got = "+"; w.err != nil {
				got = "-"
				wantError(c.t, w.err, abi.MemoryBusy, "")
			}
		default:
		}
		if got != s[:1] {
			c.t.Errorf("%s is in state %s, want %s", w.name, got, s[:1])
		}
	}
}

func TestWaitDie(t *testing.T) {
	for name, play := range map[string]func(c *court){
		"first come, first served": func(c *court) {
			for _, seq := range []uint64{5, 3, 9, 1} { // whoever holds nothing waits for anybody
				c.ask(fmt.Sprint(seq), "a", invoke.Root(seq))
			}
			for i, next := range []string{"5", "3", "9", "1"} {
				c.want("+" + next)
				for _, waiting := range []string{"5", "3", "9", "1"}[i+1:] {
					c.want("?" + waiting)
				}
				c.end(next)
			}
		},
		"a descendant enters at once, however deep": func(c *court) {
			root := invoke.Root(1)
			c.ask("root", "a", root)
			c.ask("child", "a", root.Child())
			c.want("+root", "+child")
			c.end("child")
			grandchild := root.Child().Child()
			c.ask("grandchild", "a", grandchild)
			c.ask("its child", "a", grandchild.Child())
			c.want("+grandchild", "+its child")
			c.end("its child")
			c.end("grandchild")
			c.end("root")
		},
		"a descendant goes before those that came first": func(c *court) {
			root := invoke.Root(1)
			c.ask("root", "a", root)
			c.ask("other", "a", invoke.Root(2))
			c.ask("child", "a", root.Child())
			c.want("?other", "+child")
			c.end("child")
			c.want("?other")
			c.end("root")
			c.want("+other")
			c.end("other")
		},
		"siblings queue, and the one that waits goes before strangers": func(c *court) {
			root := invoke.Root(1)
			c.ask("root", "a", root)
			c.ask("one", "a", root.Child())
			c.ask("stranger", "a", invoke.Root(2))
			c.ask("two", "a", root.Child())
			c.want("+one", "?stranger", "?two")
			c.end("one")
			c.want("?stranger", "+two")
			c.end("two")
			c.end("root")
			c.want("+stranger")
			c.end("stranger")
		},
		"siblings queue where the parent holds nothing": func(c *court) {
			root := invoke.Root(1)
			c.ask("one", "a", root.Child())
			c.ask("two", "a", root.Child())
			c.ask("the parent itself", "a", root)
			c.want("+one", "?two", "?the parent itself")
			c.end("one")
			c.want("+two")
			c.end("two")
			c.want("+the parent itself")
			c.end("the parent itself")
		},
		"who holds a turn and started earlier waits": func(c *court) {
			old, young := invoke.Root(1), invoke.Root(2)
			c.ask("old a", "a", old)
			c.ask("young b", "b", young)
			c.ask("old b", "b", old.Child())
			c.want("?old b")
			c.end("young b")
			c.want("+old b")
			c.end("old b")
			c.end("old a")
		},
		"who holds a turn and started later dies at once": func(c *court) {
			old, young := invoke.Root(1), invoke.Root(2)
			c.ask("old a", "a", old)
			c.ask("young b", "b", young)
			c.ask("young a", "a", young.Child().Child())
			c.want("-young a")
			c.end("old a")
			c.end("young b")
			c.ask("young again", "a", young) // it holds nothing now
			c.want("+young again")
			c.end("young again")
		},
		"who held a turn and holds none any more waits": func(c *court) {
			young := invoke.Root(2)
			c.ask("old a", "a", invoke.Root(1))
			c.ask("young b", "b", young.Child())
			c.end("young b")
			c.ask("young a", "a", young.Child())
			c.want("?young a")
			c.end("old a")
			c.want("+young a")
			c.end("young a")
		},
		"a turn of a sibling's is no hold of one's own lineage": func(c *court) {
			young := invoke.Root(2)
			c.ask("old a", "a", invoke.Root(1))
			c.ask("one b", "b", young.Child())
			c.ask("two a", "a", young.Child())
			c.want("?two a")
			c.end("old a")
			c.want("+two a")
			c.end("two a")
			c.end("one b")
		},
		"a waiter dies when the turn passes to an earlier request": func(c *court) {
			holder, middle, old := invoke.Root(3), invoke.Root(2), invoke.Root(1)
			c.ask("holder", "a", holder)
			c.ask("old a", "a", old)
			c.ask("middle b", "b", middle)
			c.ask("middle a", "a", middle.Child()) // the holder started later: it may wait
			c.want("?old a", "?middle a")
			c.end("holder")
			c.want("+old a", "-middle a")
			c.end("old a")
			c.end("middle b")
		},
		"a waiter stays when the turn passes to a later request": func(c *court) {
			c.ask("holder", "a", invoke.Root(3))
			c.ask("late", "a", invoke.Root(4))
			middle := invoke.Root(2)
			c.ask("middle b", "b", middle)
			c.ask("middle a", "a", middle)
			c.end("holder")
			c.want("+late", "?middle a")
			c.end("late")
			c.want("+middle a")
			c.end("middle a")
			c.end("middle b")
		},
		"a waiter without a turn stays whoever gets it": func(c *court) {
			c.ask("holder", "a", invoke.Root(3))
			c.ask("old", "a", invoke.Root(1))
			c.ask("young", "a", invoke.Root(9))
			c.end("holder")
			c.want("+old", "?young")
			c.end("old")
			c.want("+young")
			c.end("young")
		},
		"the dead make room: who is behind them is next": func(c *court) {
			middle := invoke.Root(5)
			c.ask("holder", "a", invoke.Root(9))
			c.ask("old", "a", invoke.Root(1))
			c.ask("middle b", "b", middle)
			c.ask("middle a", "a", middle)
			c.ask("last", "a", invoke.Root(7))
			c.end("holder")
			c.want("+old", "-middle a", "?last")
			c.end("old")
			c.want("+last")
			c.end("last")
			c.end("middle b")
		},
		"cousins that hold turns of their own do not wait for one another": func(c *court) {
			root := invoke.Root(1)
			one, two := root.Child(), root.Child()
			c.ask("root", "r", root) // what both share counts for neither
			c.ask("one a", "a", one)
			c.ask("two waits for a", "a", two.Child())
			c.want("?two waits for a")
			c.end("one a")
			c.want("+two waits for a")
			c.ask("one b", "b", one)
			c.ask("two b", "b", two) // its own turn was its child's, not its own
			c.want("?two b")
			c.end("one b")
			c.want("+two b")
			c.ask("one c", "c", one)
			c.ask("two c", "c", two.Child()) // it holds b
			c.want("-two c")
			for _, name := range []string{"one c", "two b", "two waits for a", "root"} {
				c.end(name)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCourt(t)
				play(c)
				if n := c.turns.Held(); n != 0 {
					t.Errorf("%d keys are held after all", n)
				}
			})
		})
	}
}

// Many requests take turns of a few keys in random order and nesting, some of
// their invocations side by side. Whatever they do, each of them ends: with
// its turns, or because a turn was busy.
func TestNoOrderOfTurnsIsADeadlock(t *testing.T) {
	const requests, rounds, keys = 12, 60, 5
	turns := invoke.NewTurns(1000)
	var seq, got, busy atomic.Int64
	var running [keys]atomic.Pointer[invoke.Frame]
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()

	var visit func(r *rand.Rand, f invoke.Frame, depth int)
	visit = func(r *rand.Rand, f invoke.Frame, depth int) {
		if r.IntN(4) > 0 { // else a handler, which holds nothing itself
			k := r.IntN(keys)
			release, err := turns.Acquire(ctx, id(fmt.Sprint(k)), f, r.IntN(10) == 0)
			if err != nil {
				if carrel.CodeOf(err) != abi.MemoryBusy {
					t.Errorf("request %v: %v", f, err)
				}
				busy.Add(1)
				return
			}
			got.Add(1)
			before := running[k].Swap(&f)
			if before != nil && !f.DescendsFrom(*before) {
				t.Error("two turns of one key run at once")
			}
			defer func() {
				if !running[k].CompareAndSwap(&f, before) {
					t.Error("another turn of the key began meanwhile")
				}
				release()
			}()
		}
		if depth == 4 {
			return
		}
		var children sync.WaitGroup
		for range r.IntN(3) {
			child, seed := f.Child(), r.Uint64()
			do := func() { visit(rand.New(rand.NewPCG(seed, 1)), child, depth+1) }
			if r.IntN(2) == 0 {
				children.Go(do)
			} else {
				do()
			}
			yield(r.IntN(4))
		}
		children.Wait()
	}
	var all sync.WaitGroup
	for i := range requests {
		all.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 2))
			for range rounds {
				root := invoke.Root(uint64(seq.Add(1)))
				visit(r, root, 0)
				if n := turns.Holds(root); n != 0 {
					t.Errorf("a request that ended holds %d turns", n)
				}
			}
		})
	}
	all.Wait()
	if ctx.Err() != nil {
		t.Error("somebody hung until the deadline")
	}
	if n := turns.Held(); n != 0 {
		t.Errorf("%d keys are held after all", n)
	}
	if got.Load() < requests*rounds/2 || busy.Load() == 0 {
		t.Errorf("%d turns were got and %d busy: nothing raced", got.Load(), busy.Load())
	}
}
