package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/idempotency"
)

// unheard says of the first operations of each kind how they go, in order;
// those after them answer.
func unheard(claims, releases []bool) func(op string) (done, ok bool) {
	var mu sync.Mutex
	left := map[string][]bool{"claim": claims, "release": releases}
	return func(op string) (done, ok bool) {
		mu.Lock()
		defer mu.Unlock()
		if len(left[op]) == 0 {
			return false, true
		}
		done, left[op] = left[op][0], left[op][1:]
		return done, false
	}
}

func TestACallWhoseClaimTheStoreDidNotAnswerCanBeRepeated(t *testing.T) {
	for name, c := range map[string]struct {
		claims, releases []bool
	}{
		"it had taken the claim": {[]bool{true}, nil},
		"it had not":             {[]bool{false}, nil},
		"it had, and did not answer the release, which was done":     {[]bool{true}, []bool{true}},
		"it had, and did not answer two releases, which were not":    {[]bool{true}, []bool{false, false}},
		"it had for several calls in a row":                          {[]bool{true, true, true}, nil},
		"it had for one call, and not for the next, and not at once": {[]bool{true, false}, []bool{false, true, false}},
	} {
		for _, handler := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, handler: %v", name, handler), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					d := newDisk()
					k := keeper(t, d, "one", 1)
					d.silent = unheard(c.claims, c.releases)
					for range c.claims {
						_, err := do(t.Context(), k, call(t, `{}`, nil), handler, says("never"))
						wantCode(t, err, abi.Timeout, "commitTimeout")
					}
					// Whoever comes meanwhile waits; another call than before
					// may have the key, and there is room for it.
					got, err := do(t.Context(), k, call(t, `{"a":1}`, nil), handler, says("A1"))
					want(t, got, err, "A1")
				})
			})
		}
	}
}

func TestAKeyIsFreeAfterAFailureAlsoIfTheStoreDidNotAnswerTheRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk()
		k := keeper(t, d, "one", 1)
		d.silent = unheard(nil, []bool{false, false})
		failed := errors.New("failed")
		_, err := do(t.Context(), k, call(t, `{}`, nil), true, func() (string, error) { return "", failed })
		if !errors.Is(err, failed) {
			t.Fatal(err)
		}
		got, err := do(t.Context(), k, call(t, `{}`, nil), true, says("A2"))
		want(t, got, err, "A2")
	})
}

// What is released is the claim that was asked for, and no other.
func TestAHandlerWithoutAnAnswerIsNotRunAgainAfterAClaimThatWasNotTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk()
		k := keeper(t, d, "one", 10)
		d.fail = errors.New("the disk is full")
		if _, err := do(t.Context(), k, call(t, `{}`, nil), true, says("A1")); !errors.Is(err, d.fail) {
			t.Fatal(err)
		}
		d.fail = nil
		d.silent = unheard([]bool{false}, nil)
		_, err := do(t.Context(), k, call(t, `{}`, nil), true, says("A2"))
		wantCode(t, err, abi.Timeout, "commitTimeout")
		_, err = do(t.Context(), k, call(t, `{}`, nil), true, says("A3"))
		wantCode(t, err, abi.IdempotencyInterrupted, "")
	})
}

func TestReleasesInTheBackgroundAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk()
		k := keeper(t, d, "one", 10)
		d.silent = func(string) (done, ok bool) { return false, false }
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			k.Run(ctx)
		}()
		var all sync.WaitGroup
		for n := range idempotency.MostReleases + 10 {
			all.Go(func() {
				c := call(t, `{}`, func(c *idempotency.Call) { c.Key = fmt.Sprint(n) })
				if _, err := do(t.Context(), k, c, true, says("never")); err == nil {
					t.Error("a claim that nobody has was answered")
				}
			})
		}
		all.Wait()
		synctest.Wait()
		d.mu.Lock()
		late := d.late
		d.mu.Unlock()
		if late != idempotency.MostReleases {
			t.Errorf("%d releases wait for the store, want %d", late, idempotency.MostReleases)
		}
		stop()
		start := time.Now()
		<-ended
		d.mu.Lock()
		defer d.mu.Unlock()
		if took := time.Since(start); took > timeout || d.late != 0 || d.most != idempotency.MostReleases {
			t.Errorf("it ends after %v with %d releases left, of at most %d", took, d.late, d.most)
		}
	})
}
