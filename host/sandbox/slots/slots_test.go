package slots_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/carrelhost/carrel/host/sandbox/slots"
)

// until waits for what another goroutine brings about.
func until(t *testing.T, holds func() bool) {
	t.Helper()
	for !holds() {
		if t.Context().Err() != nil {
			t.Fatal("the test ended first")
		}
		runtime.Gosched()
	}
}

func TestSharesTakeTurns(t *testing.T) {
	for caseName, tc := range map[string]struct {
		slots   int
		waiting []string // in the order of their coming, while "first" holds every slot that it may
		order   string
	}{
		"one slot goes round":                       {1, []string{"a", "a", "a", "b", "c", "b"}, "a,b,c,a,b,a,"},
		"one that comes last waits for one round":   {1, []string{"a", "a", "a", "a", "b"}, "a,b,a,a,a,"},
		"a share alone is served as it came":        {1, []string{"a", "a"}, "a,a,"},
		"those that wait for themselves come later": {1, []string{"first", "a", "first", "a"}, "first,a,first,a,"},
	} {
		t.Run(caseName, func(t *testing.T) {
			s := slots.New(tc.slots)
			if err := s.Acquire(t.Context(), "first", nil); err != nil {
				t.Fatal(err)
			}
			order := ""
			var group sync.WaitGroup
			for i, share := range tc.waiting {
				group.Go(func() {
					if err := s.Acquire(t.Context(), share, nil); err != nil {
						t.Error(err)
						return
					}
					order += share + "," // guarded by the one slot
					s.Release(share)
				})
				before := 0
				for _, other := range tc.waiting[:i+1] {
					if other == share {
						before++
					}
				}
				until(t, func() bool { _, waiting := s.Of(share); return waiting == before })
			}
			s.Release("first")
			group.Wait()
			if order != tc.order {
				t.Errorf("the order was %q, want %q", order, tc.order)
			}
			if n := slots.Left(s); n != 0 {
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
	until(t, func() bool { _, waiting := s.Of("a"); return waiting == 1 })
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
	until(t, func() bool {
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
	until(t, func() bool { _, waiting := s.Of("b"); return waiting == 1 })
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
	until(t, func() bool { _, waiting := s.Of("b"); return waiting == 1 })
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
