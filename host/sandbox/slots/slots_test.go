package slots_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/carrelhost/carrel/host/sandbox/slots"
	"github.com/carrelhost/carrel/internal/testproc"
)

// queue is those that wait for slots of a pool, the driver of a test holding
// them all.
type queue struct {
	*testing.T
	pool   *slots.Pool
	n      map[string]int // of each share, that came
	served chan string    // those who got a slot, which they keep
}

// waits has one more of a share wait, "b2" after "b1".
func (q *queue) waits(share string) {
	q.n[share]++
	name := fmt.Sprint(share, q.n[share])
	_, before := q.pool.Of(share)
	go func() {
		if err := q.pool.Acquire(q.Context(), share, nil); err != nil {
			name = err.Error()
		}
		q.served <- name
	}()
	testproc.Until(q, name+" to wait", func() bool { _, now := q.pool.Of(share); return now > before })
}

// all counts those that wait, of every share.
func (q *queue) all() (waiting int) {
	for share := range q.n {
		_, n := q.pool.Of(share)
		waiting += n
	}
	return waiting
}

// releases gives a slot of a share back, and returns who has it then.
func (q *queue) releases(share string) string {
	q.Helper()
	before := q.all()
	q.pool.Release(share)
	var names []string
	for range before - q.all() {
		testproc.Until(q, "one that has a slot to say so", func() bool { return len(q.served) > 0 })
		names = append(names, <-q.served)
	}
	return strings.Join(names, " ")
}

func TestSharesTakeTurns(t *testing.T) {
	for caseName, tc := range map[string]struct {
		slots   int
		held    string   // a slot of each
		waiting string   // in the order of their coming
		turns   []string // whose slot is given back, and who has it then
	}{
		"one slot goes round": {1, "x", "a,a,a,b,c,b", []string{
			"x: a1", "a: b1", "b: c1", "c: a2", "a: b2", "b: a3",
		}},
		"one that comes last waits for one round": {1, "x", "a,a,a,a,b", []string{
			"x: a1", "a: b1", "b: a2", "a: a3", "a: a4",
		}},
		"a share alone is served as it came": {1, "x", "a,a", []string{"x: a1", "a: a2"}},
		"those that wait for themselves come later": {1, "x", "x,a,x,a", []string{
			"x: x1", "x: a1", "a: x2", "x: a2",
		}},
		"several slots go round": {3, "x,y,z", "a,a,b,b,c", []string{
			"x: a1", "y: b1", "z: c1", "c: a2", "a: b2",
		}},
		"a share that has all it may is passed over, and is the next that may": {2, "a,b", "a,c,d,a", []string{
			"b: c1", "c: d1", "a: a1", "d: ", "a: a2",
		}},
		"the last slot is free before one share has it": {2, "a,b", "a,a", []string{
			"b: ", "a: a1", "a: a2",
		}},
		"of three slots a share has two": {3, "a,a,b", "a,a,c,c,b", []string{
			"b: c1", "c: b1", "a: a1", "b: c2", "c: ", "a: a2",
		}},
		"who was passed over goes before those who came later": {3, "a,a,b", "a,c,d", []string{
			"b: c1", "a: a1", "c: d1",
		}},
	} {
		t.Run(caseName, func(t *testing.T) {
			q := queue{t, slots.New(tc.slots), map[string]int{}, make(chan string, 10)}
			left := map[string]int{} // slots that are held
			for _, share := range strings.Split(tc.held, ",") {
				if err := q.pool.Acquire(t.Context(), share, nil); err != nil {
					t.Fatal(err)
				}
				left[share]++
			}
			for _, share := range strings.Split(tc.waiting, ",") {
				q.waits(share)
			}
			for _, turn := range tc.turns {
				share, want, _ := strings.Cut(turn, ": ")
				left[share]--
				if got := q.releases(share); got != want {
					t.Fatalf("of the turns %q, %s's slot goes to %q instead", tc.turns, share, got)
				}
				if want != "" {
					left[strings.TrimRight(want, "0123456789")]++
				}
			}
			if n := q.all(); n > 0 {
				t.Errorf("%d wait still", n)
			}
			for share, n := range left {
				for range n {
					q.pool.Release(share)
				}
			}
			if n := slots.Left(q.pool); n != 0 {
				t.Errorf("%d entries are left", n)
			}
		})
	}
}

func TestOneShareNeverHoldsTheLastSlot(t *testing.T) {
	s := slots.New(3)
	for range 2 {
		if err := s.Acquire(t.Context(), "a", nil); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	third := make(chan error)
	go func() { third <- s.Acquire(ctx, "a", nil) }()
	testproc.Until(t, "a to wait", func() bool { _, waiting := s.Of("a"); return waiting == 1 })
	if err := s.Acquire(t.Context(), "b", nil); err != nil {
		t.Fatal(err)
	}
	s.Release("b")
	cancel()
	if err := <-third; !errors.Is(err, context.Canceled) {
		t.Errorf("the third of a share got %v", err)
	}
	s.Release("a")
	s.Release("a")
	if n := slots.Left(s); n != 0 {
		t.Errorf("%d entries are left", n)
	}
}

// TestCancelledWaitersLoseNoSlot cancels waiters at the moment when they are
// served: afterwards every slot can still be had.
func TestCancelledWaitersLoseNoSlot(t *testing.T) {
	s := slots.New(2)
	var group sync.WaitGroup
	for _, share := range []string{"a", "a", "b", "c"} {
		group.Go(func() {
			for range 500 {
				ctx, cancel := context.WithCancel(t.Context())
				go cancel()
				if s.Acquire(ctx, share, nil) == nil {
					s.Release(share)
				}
			}
		})
	}
	group.Wait()
	for _, share := range []string{"a", "b"} {
		if err := s.Acquire(t.Context(), share, nil); err != nil {
			t.Fatal(err)
		}
		s.Release(share)
	}
	if n := slots.Left(s); n != 0 {
		t.Errorf("%d entries are left", n)
	}
}

// TestThosePassingASlotLetOthersRun has two that pass one slot to each other
// for ever on one thread, and a goroutine that is ready to run beside them.
func TestThosePassingASlotLetOthersRun(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	s := slots.New(1)
	if err := s.Acquire(t.Context(), "main", nil); err != nil {
		t.Fatal(err)
	}
	const most = 1_000_000
	var passed int        // counted by whoever has the slot
	var other atomic.Bool // has run
	var both sync.WaitGroup
	for _, share := range []string{"a", "b"} {
		both.Go(func() {
			if err := s.Acquire(t.Context(), share, nil); err != nil {
				t.Error(err)
				return
			}
			for passed < most && !other.Load() {
				if passed++; passed == 10 { // now they know each other
					both.Go(func() { other.Store(true) })
				}
				if err := s.Pass(t.Context(), share); err != nil {
					t.Error(err)
					return
				}
			}
			s.Release(share)
		})
	}
	testproc.Until(t, "both to wait", func() bool {
		_, a := s.Of("a")
		_, b := s.Of("b")
		return a+b == 2
	})
	s.Release("main")
	both.Wait()
	if passed > 20 {
		t.Errorf("the slot was passed on %d times before another goroutine ran", passed-10)
	}
}

func TestASlotThatIsPassedOnComesBack(t *testing.T) {
	s := slots.New(1)
	if err := s.Acquire(t.Context(), "a", nil); err != nil {
		t.Fatal(err)
	}
	if err := s.Pass(t.Context(), "a"); err != nil { // nobody wants it
		t.Fatal(err)
	}
	served, back := make(chan error, 1), make(chan error, 1)
	go func() { served <- s.Acquire(t.Context(), "b", nil) }()
	testproc.Until(t, "b to wait", func() bool { _, waiting := s.Of("b"); return waiting == 1 })
	go func() { back <- s.Pass(t.Context(), "a") }()
	if err := <-served; err != nil {
		t.Fatal(err)
	}
	if held, waiting := s.Of("a"); held != 0 || waiting != 1 {
		t.Errorf("who passed it on has %d and waits for %d", held, waiting)
	}
	s.Release("b")
	if err := <-back; err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	go func() { served <- s.Acquire(t.Context(), "b", nil) }()
	testproc.Until(t, "b to wait", func() bool { _, waiting := s.Of("b"); return waiting == 1 })
	if err := s.Pass(ctx, "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended it got %v", err)
	}
	if err := <-served; err != nil {
		t.Fatal(err)
	}
	s.Release("b")
	if n := slots.Left(s); n != 0 {
		t.Errorf("%d entries are left", n)
	}
}
