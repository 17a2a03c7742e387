package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
)

func TestParallelCallsWaitForTheFirstInOrderOfArrival(t *testing.T) {
	for name, c := range map[string]struct {
		fail int // so many calls fail before one succeeds
		want []string
	}{
		"and get its answer":                              {0, []string{"A1", "replayed A1", "replayed A1", "replayed A1"}},
		"and if it fails the next one does the work":      {1, []string{"failed", "A2", "replayed A2", "replayed A2"}},
		"and if two fail the one after does the work":     {2, []string{"failed", "failed", "A3", "replayed A3"}},
		"and if all fail each of them has done the work.": {4, []string{"failed", "failed", "failed", "failed"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := keeper(t, newDisk(), "one", 10)
				runs, working := 0, 0
				got := make([]string, 4)
				var all sync.WaitGroup
				for n := range got {
					all.Go(func() {
						answer, err := do(t.Context(), k, call(t, `{}`, nil), false, func() (string, error) {
							runs, working = runs+1, working+1
							if working != 1 {
								t.Errorf("%d calls work at once", working)
							}
							<-time.After(time.Minute) // of the bubble
							working--
							if runs <= c.fail {
								return "", errors.New("failed")
							}
							return fmt.Sprintf("A%d", runs), nil
						})
						if err != nil {
							answer = err.Error()
						}
						got[n] = answer
					})
					synctest.Wait() // it has its place
				}
				all.Wait()
				if !slices.Equal(got, c.want) {
					t.Errorf("the calls got %q, want %q", got, c.want)
				}
			})
		})
	}
}

func TestACallThatSaysSomethingElseIsTurnedAwayAsSoonAsTheFirstHasTheClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := keeper(t, newDisk(), "one", 10)
		first := enter(t, k, call(t, `{}`, nil))
		refused := make(chan error, 1)
		go func() {
			_, err := k.Enter(t.Context(), call(t, `{"a":1}`, nil))
			refused <- err
		}()
		synctest.Wait()
		select {
		case err := <-refused:
			t.Fatalf("before the first has the claim: %v", err)
		default:
		}
		if _, err := first.Claim(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		wantCode(t, <-refused, abi.IdempotencyMismatch, "")
		_, err := k.Enter(t.Context(), call(t, `{"a":1}`, nil))
		wantCode(t, err, abi.IdempotencyMismatch, "")
		first.End(t.Context(), false)
		got, err := do(t.Context(), k, call(t, `{"a":1}`, nil), false, says("after a failure the key is free"))
		want(t, got, err, "after a failure the key is free")
	})
}

func TestAWaiterGivesUpAtItsDeadlineAndIsInNobodysWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := keeper(t, newDisk(), "one", 10)
		first := enter(t, k, call(t, `{}`, nil))
		short, cancel := context.WithTimeoutCause(t.Context(), time.Second, carrel.FailLimit("test", abi.Timeout, "timeout", "it is over"))
		defer cancel()
		_, err := k.Enter(short, call(t, `{}`, nil))
		wantCode(t, err, abi.Timeout, "timeout")
		gone, leave := context.WithCancel(t.Context())
		leave()
		if _, err = k.Enter(gone, call(t, `{}`, nil)); !errors.Is(err, context.Canceled) {
			t.Errorf("a client that went away: %v", err)
		}
		first.End(t.Context(), false)
		got, err := do(t.Context(), k, call(t, `{}`, nil), false, says("A1"))
		want(t, got, err, "A1")
	})
}

func TestATurnThatComesToACallThatGivesUpIsPassedOn(t *testing.T) {
	for range 200 { // which of the two a waiter sees first is random
		k := keeper(t, newDisk(), "one", 10)
		first := enter(t, k, call(t, `{}`, nil))
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() {
			if o, err := k.Enter(ctx, call(t, `{}`, nil)); err == nil {
				o.End(ctx, false)
			}
		})
		all.Go(cancel)
		all.Go(func() { first.End(t.Context(), false) })
		all.Wait()
		got, err := do(t.Context(), k, call(t, `{}`, nil), false, says("A1"))
		want(t, got, err, "A1")
	}
}

func TestAClaimOfAnotherNodeIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk()
		one, two := keeper(t, d, "one", 10), keeper(t, d, "two", 10)
		first := enter(t, one, call(t, `{}`, nil))
		if _, err := first.Claim(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		type outcome struct {
			answer string
			err    error
		}
		done := make(chan outcome, 1)
		go func() {
			answer, err := do(t.Context(), two, call(t, `{}`, nil), false, says("A2"))
			done <- outcome{answer, err}
		}()
		short, cancel := context.WithTimeoutCause(t.Context(), time.Minute, carrel.FailLimit("test", abi.Timeout, "timeout", "it is over"))
		defer cancel()
		_, err := do(short, keeper(t, d, "three", 10), call(t, `{}`, nil), false, says("A3"))
		wantCode(t, err, abi.Timeout, "timeout")
		if err := first.Answer(t.Context(), []byte("A1")); err != nil {
			t.Fatal(err)
		}
		first.End(t.Context(), true)
		o := <-done
		want(t, o.answer, o.err, "replayed A1")
	})
}
