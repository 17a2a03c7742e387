package storetest

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/store"
)

// Requests that clients may repeat.
var claimCases = []testCase{
	{"an answered claim has its answer for whoever comes again", claimAnswered},
	{"the answer of a turn is there with what the turn trimmed", claimAnsweredByTurn},
	{"a turn that is not stored answers nothing", claimOfFailedTurn},
	{"a claim without an answer is taken again on its own node alone", claimElsewhere},
	{"a handler's claim without an answer is interrupted for good", claimInterrupted},
	{"another fingerprint is refused, whatever became of the claim", claimMismatch},
	{"a released claim can be taken, an answered one cannot be released", claimReleased},
	{"a release removes the claim that it names, and no other of its request", claimOfAnotherKept},
	{"claims of other nodes are ended: handlers' interrupted, others removed", claimsReleased},
	{"a claim that is not there gets no answer, and that is no error", claimUnanswerable},
	{"what was claimed or answered before the cutoff is gone", claimCutoff},
	{"the quota bounds a tenant's claims, and what is gone does not count", claimQuota},
	{"the bytes of a tenant's answers bound new claims, and no answer is refused", claimBytes},
	{"old claims are forgotten, but for those that the node works on", claimsForgotten},
	{"of many claims at once one is the first", claimRace},
}

// manyClaims is more than any of the cases makes.
var manyClaims = store.ClaimLimits{Claims: 1000, Bytes: 1 << 30}

func claimOf(n byte) store.Claim {
	return store.Claim{
		ID: [32]byte{n, 1}, Fingerprint: [32]byte{2}, Tenant: acme, Subject: "ada", Node: node, At: noon,
	}
}

func claim(t *testing.T, s store.Store, c store.Claim) store.Claimed {
	t.Helper()
	return must(s.Claim(context.Background(), c, manyClaims))(t)
}

func wantState(t *testing.T, s store.Store, c store.Claim, want store.ClaimState) {
	t.Helper()
	if got := claim(t, s, c); got.State != want {
		t.Errorf("the claim is in state %v, want %v", got.State, want)
	}
}

func answer(t *testing.T, s store.Store, n byte) {
	t.Helper()
	noError(t, s.Answer(context.Background(), store.Answer{Claim: claimOf(n).ID, Sealed: []byte{0, 255, n}, At: noon}))
}

func elsewhere(c store.Claim) store.Claim {
	c.Node = "run-2"
	return c
}

func claimAnswered(t *testing.T, s store.Store) {
	wantState(t, s, claimOf(1), store.ClaimTaken)
	answer(t, s, 1)
	want := store.Claimed{State: store.ClaimAnswered, Sealed: []byte{0, 255, 1}}
	for _, c := range []store.Claim{claimOf(1), elsewhere(claimOf(1))} {
		wantSame(t, "claim", claim(t, s, c), want)
	}
	noError(t, s.Answer(context.Background(), store.Answer{Claim: claimOf(1).ID, Sealed: []byte("another"), At: noon}))
	wantSame(t, "claim after another answer", claim(t, s, claimOf(1)), want)
	wantState(t, s, claimOf(2), store.ClaimTaken)
}

func claimAnsweredByTurn(t *testing.T, s store.Store) {
	ctx := context.Background()
	r, k := requestScope(acme, "r"), keyOf(acme, "1")
	say(t, s, r, k, "hello", "hi")
	wantState(t, s, claimOf(1), store.ClaimTaken)
	c := commitOf(r, k, history(t, s, k).Generation, "again", "yes")
	c.Most = 2
	c.Answer = &store.Answer{Claim: claimOf(1).ID, Sealed: []byte("sealed"), At: noon}
	noError(t, commit(ctx, s, c))
	wantSame(t, "claim", claim(t, s, claimOf(1)), store.Claimed{State: store.ClaimAnswered, Sealed: []byte("sealed"), Trimmed: 2})
}

func claimOfFailedTurn(t *testing.T, s store.Store) {
	r, k := requestScope(acme, "r"), keyOf(acme, "1")
	wantState(t, s, claimOf(1), store.ClaimTaken)
	c := commitOf(r, k, touch(t, s, r, k), "late", "turn")
	c.Answer = &store.Answer{Claim: claimOf(1).ID, Sealed: []byte("sealed"), At: noon}
	closeScope(t, s, "r")
	wantCode(t, commit(context.Background(), s, c), abi.ScopeClosed)
	wantState(t, s, claimOf(1), store.ClaimTaken)
}

func claimElsewhere(t *testing.T, s store.Store) {
	wantState(t, s, claimOf(1), store.ClaimTaken)
	wantState(t, s, elsewhere(claimOf(1)), store.ClaimElsewhere)
	wantState(t, s, claimOf(1), store.ClaimTaken)
	answer(t, s, 1)
	wantState(t, s, elsewhere(claimOf(1)), store.ClaimAnswered)
}

func claimInterrupted(t *testing.T, s store.Store) {
	c := claimOf(1)
	c.Handler = true
	wantState(t, s, c, store.ClaimTaken)
	wantState(t, s, elsewhere(c), store.ClaimElsewhere)
	wantState(t, s, c, store.ClaimInterrupted)
	wantState(t, s, c, store.ClaimInterrupted)
	wantState(t, s, elsewhere(c), store.ClaimInterrupted)
}

func claimMismatch(t *testing.T, s store.Store) {
	other := func(n byte) store.Claim {
		c := claimOf(n)
		c.Fingerprint = [32]byte{3}
		return c
	}
	handler := claimOf(2)
	handler.Handler = true
	for _, c := range []store.Claim{claimOf(1), handler, claimOf(3)} {
		wantState(t, s, c, store.ClaimTaken)
	}
	wantState(t, s, handler, store.ClaimInterrupted)
	answer(t, s, 3)
	for n := range byte(3) {
		for _, c := range []store.Claim{other(n + 1), elsewhere(other(n + 1))} {
			_, err := s.Claim(context.Background(), c, manyClaims)
			wantCode(t, err, abi.IdempotencyMismatch)
		}
	}
	gone := other(3)
	gone.Cutoff = noon
	wantState(t, s, gone, store.ClaimTaken)
}

func claimReleased(t *testing.T, s store.Store) {
	ctx := context.Background()
	handler := claimOf(1)
	handler.Handler = true
	wantState(t, s, handler, store.ClaimTaken)
	noError(t, s.ReleaseClaim(ctx, handler))
	wantState(t, s, elsewhere(handler), store.ClaimTaken)
	wantState(t, s, claimOf(2), store.ClaimTaken)
	answer(t, s, 2)
	noError(t, s.ReleaseClaim(ctx, claimOf(2)))
	wantState(t, s, claimOf(2), store.ClaimAnswered)
	noError(t, s.ReleaseClaim(ctx, claimOf(3)))
}

// A release may come late, and of a claim that was never taken.
func claimOfAnotherKept(t *testing.T, s store.Store) {
	ctx := context.Background()
	handler := func(n byte) store.Claim {
		c := claimOf(n)
		c.Handler = true
		return c
	}
	later := func(c store.Claim) store.Claim {
		c.At = c.At.Add(time.Microsecond)
		return c
	}
	wantState(t, s, handler(1), store.ClaimTaken)
	wantState(t, s, handler(1), store.ClaimInterrupted)
	noError(t, s.ReleaseClaim(ctx, handler(1)))
	wantState(t, s, later(handler(1)), store.ClaimInterrupted)

	wantState(t, s, elsewhere(handler(2)), store.ClaimTaken)
	noError(t, s.ReleaseClaim(ctx, handler(2)))
	wantState(t, s, handler(2), store.ClaimElsewhere)

	wantState(t, s, handler(3), store.ClaimTaken) // its answer was lost
	noError(t, s.ReleaseClaim(ctx, later(handler(3))))
	wantState(t, s, later(handler(3)), store.ClaimInterrupted)

	wantState(t, s, claimOf(4), store.ClaimTaken)
	wantState(t, s, later(claimOf(4)), store.ClaimTaken)
	noError(t, s.ReleaseClaim(ctx, claimOf(4)))
	wantState(t, s, elsewhere(claimOf(4)), store.ClaimElsewhere)
	noError(t, s.ReleaseClaim(ctx, later(claimOf(4))))
	wantState(t, s, elsewhere(claimOf(4)), store.ClaimTaken)
}

func claimsReleased(t *testing.T, s store.Store) {
	ctx := context.Background()
	handler := elsewhere(claimOf(1))
	handler.Handler = true
	for _, c := range []store.Claim{handler, elsewhere(claimOf(2)), elsewhere(claimOf(3)), claimOf(4)} {
		wantState(t, s, c, store.ClaimTaken)
	}
	answer(t, s, 3)
	for _, want := range []int{2, 0} {
		if n := must(s.ReleaseClaims(ctx, node))(t); n != want {
			t.Errorf("%d were released, want %d", n, want)
		}
	}
	wantState(t, s, claimOf(1), store.ClaimInterrupted)
	wantState(t, s, claimOf(2), store.ClaimTaken)
	wantState(t, s, claimOf(3), store.ClaimAnswered)
	wantState(t, s, elsewhere(claimOf(4)), store.ClaimElsewhere)
}

func claimUnanswerable(t *testing.T, s store.Store) {
	answer(t, s, 1)
	c := commitOf(requestScope(acme, "r"), keyOf(acme, "1"), 0, "hello", "hi")
	c.Answer = &store.Answer{Claim: claimOf(1).ID, Sealed: []byte("sealed"), At: noon}
	noError(t, commit(context.Background(), s, c))
	wantContents(t, s, keyOf(acme, "1"), "hello", "hi")
	wantState(t, s, claimOf(1), store.ClaimTaken)
}

func claimCutoff(t *testing.T, s store.Store) {
	c := claimOf(1)
	wantState(t, s, c, store.ClaimTaken)
	noError(t, s.Answer(context.Background(), store.Answer{Claim: c.ID, Sealed: []byte("sealed"), At: noon.Add(time.Hour)}))
	later := c
	later.At, later.Cutoff = noon.Add(2*time.Hour), noon.Add(time.Hour-time.Microsecond)
	wantState(t, s, later, store.ClaimAnswered)
	later.Cutoff = noon.Add(time.Hour)
	wantState(t, s, later, store.ClaimTaken)
	later.Node = "run-2"
	wantState(t, s, later, store.ClaimElsewhere)
}

func claimQuota(t *testing.T, s store.Store) {
	ctx := context.Background()
	two := store.ClaimLimits{Claims: 2, Bytes: 1 << 30}
	for n := range byte(2) {
		must(s.Claim(ctx, claimOf(n), two))(t)
	}
	answer(t, s, 0)
	_, err := s.Claim(ctx, claimOf(2), two)
	wantQuota(t, err, "idempotencyKeys")
	must(s.Claim(ctx, claimOf(1), two))(t)
	theirs := claimOf(3)
	theirs.Tenant = globex
	must(s.Claim(ctx, theirs, two))(t)
	later := claimOf(2)
	later.At, later.Cutoff = noon.Add(time.Hour), noon
	must(s.Claim(ctx, later, two))(t)
}

func wantQuota(t *testing.T, err error, limit string) {
	t.Helper()
	wantCode(t, err, abi.QuotaExceeded)
	if e, ok := errors.AsType[*carrel.Error](err); !ok || e.Limit != limit {
		t.Errorf("error %v does not name the limit %s", err, limit)
	}
}

func claimBytes(t *testing.T, s store.Store) {
	ctx := context.Background()
	most := store.ClaimLimits{Claims: 1000, Bytes: 4} // answers have 3
	may := func(n byte, may bool) {
		t.Helper()
		_, err := s.Claim(ctx, claimOf(n), most)
		if may {
			noError(t, err)
		} else {
			wantQuota(t, err, "idempotencyBytes")
		}
	}
	for n := byte(1); n < 4; n++ {
		may(n, true)
	}
	answer(t, s, 1)
	may(4, true)
	for n := byte(2); n < 4; n++ {
		answer(t, s, n)
		wantState(t, s, claimOf(n), store.ClaimAnswered)
	}
	may(5, false)
	may(1, true) // it has its answer
	may(4, true) // it was taken before
	theirs := claimOf(6)
	theirs.Tenant = globex
	must(s.Claim(ctx, theirs, most))(t)

	later := claimOf(5)
	later.At, later.Cutoff = noon.Add(time.Hour), noon
	must(s.Claim(ctx, later, most))(t)
	may(7, false)
	for _, forgotten := range []int{1, 1} { // 6 and then 3 bytes are left
		if n := must(s.ForgetClaims(ctx, "run-2", noon, forgotten))(t); n != forgotten {
			t.Errorf("%d were forgotten, want %d", n, forgotten)
		}
	}
	may(7, true)
	noError(t, s.Answer(ctx, store.Answer{Claim: later.ID, Sealed: []byte("12345"), At: noon.Add(time.Hour)}))
	may(8, false)
	must(s.EraseSubject(ctx, acme, "ada", noon, 100))(t)
	may(8, true)
}

func claimsForgotten(t *testing.T, s store.Store) {
	ctx := context.Background()
	for n := range byte(6) {
		c := claimOf(n)
		c.At = noon.Add(time.Duration(n) * time.Minute)
		if n == 1 {
			c = elsewhere(c)
		}
		wantState(t, s, c, store.ClaimTaken)
	}
	answer(t, s, 2)
	answer(t, s, 3)
	// 0 is worked on, 1 another node's, 2 and 3 have answers, 4 and 5 are young.
	for _, step := range []struct{ limit, want int }{{2, 2}, {0, 0}, {2, 1}, {2, 0}} {
		if n := must(s.ForgetClaims(ctx, node, noon.Add(3*time.Minute), step.limit))(t); n != step.want {
			t.Errorf("of at most %d, %d were forgotten, want %d", step.limit, n, step.want)
		}
	}
	wantState(t, s, elsewhere(claimOf(0)), store.ClaimElsewhere)
	for n := byte(1); n < 4; n++ {
		wantState(t, s, elsewhere(claimOf(n)), store.ClaimTaken)
	}
	wantState(t, s, elsewhere(claimOf(4)), store.ClaimElsewhere)
}

func claimRace(t *testing.T, s store.Store) {
	var taken atomic.Int32
	together(16, func(i int) {
		c := claimOf(1)
		c.Node = string(rune('a' + i))
		got, err := s.Claim(context.Background(), c, manyClaims)
		switch {
		case err != nil:
			t.Error(err)
		case got.State == store.ClaimTaken:
			taken.Add(1)
		case got.State != store.ClaimElsewhere:
			t.Errorf("a claim is %v", got.State)
		}
	})
	if taken.Load() != 1 {
		t.Errorf("%d have taken it", taken.Load())
	}
}
