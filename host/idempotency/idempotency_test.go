package idempotency_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/idempotency"
	"github.com/carrelhost/carrel/host/strictjson"
	"github.com/carrelhost/carrel/store"
	"github.com/carrelhost/carrel/store/memstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// disk is a memory store that a test watches.
type disk struct {
	*memstore.Store

	mu     sync.Mutex // guards what follows
	claims []store.Claim
	fail   error // of Answer
}

func (d *disk) Claim(ctx context.Context, c store.Claim, most int) (store.Claimed, error) {
	d.mu.Lock()
	d.claims = append(d.claims, c)
	d.mu.Unlock()
	return d.Store.Claim(ctx, c, most)
}

func (d *disk) Answer(ctx context.Context, a store.Answer) error {
	d.mu.Lock()
	err := d.fail
	d.mu.Unlock()
	if err != nil {
		return err
	}
	return d.Store.Answer(ctx, a)
}

// last is the claim that was asked for last.
func (d *disk) last() store.Claim {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.claims[len(d.claims)-1]
}

func newDisk() *disk { return &disk{Store: memstore.New(memstore.Config{})} }

// keeper is a keeper of a process run.
func keeper(t *testing.T, d *disk, node string, most int) *idempotency.Keeper {
	t.Helper()
	k, err := idempotency.New(idempotency.Config{
		Store: d, Secret: [32]byte{7}, Node: node, Most: most, Timeout: 10 * time.Second, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// call is a call whose params are given as JSON.
func call(t testing.TB, params string, change func(*idempotency.Call)) idempotency.Call {
	t.Helper()
	value, err := strictjson.Value([]byte(params), strictjson.DefaultDepth)
	if err != nil {
		t.Fatal(err)
	}
	at, err := carrel.ParseAddress("p/S.chat")
	if err != nil {
		t.Fatal(err)
	}
	c := idempotency.Call{
		Key: "key", Caller: carrel.Caller{Tenant: "acme", Key: "key_1", Subject: "ada", Role: carrel.RoleCaller},
		Address: at, Session: "ses_1", Args: value.(map[string]any),
	}
	if change != nil {
		change(&c)
	}
	return c
}

func enter(t *testing.T, k *idempotency.Keeper, c idempotency.Call) *idempotency.Once {
	t.Helper()
	o, err := k.Enter(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// do makes a call, whose work answers as given, and returns the answer that
// its client gets: "replayed " and an earlier one, or its own.
func do(ctx context.Context, k *idempotency.Keeper, c idempotency.Call, handler bool, work func() (string, error)) (string, error) {
	o, err := k.Enter(ctx, c)
	if err != nil {
		return "", err
	}
	ok := false
	defer func() { o.End(ctx, ok) }()
	stored, err := o.Claim(ctx, handler)
	if err != nil {
		return "", err
	}
	if stored != nil {
		return "replayed " + string(stored.Answer), nil
	}
	answer, err := work()
	if err != nil {
		return "", err
	}
	ok = true
	return answer, o.Answer(ctx, []byte(answer))
}

func says(answer string) func() (string, error) { return func() (string, error) { return answer, nil } }

func want(t *testing.T, answer string, err error, wanted string) {
	t.Helper()
	if err != nil || answer != wanted {
		t.Fatalf("got %q, %v, want %q", answer, err, wanted)
	}
}

func wantCode(t *testing.T, err error, code abi.Code, limit string) {
	t.Helper()
	got := ""
	if e, ok := errors.AsType[*carrel.Error](err); ok {
		got = e.Limit
	}
	if carrel.CodeOf(err) != code || got != limit {
		t.Fatalf("got %v with limit %q, want %v with limit %q", err, got, code, limit)
	}
}

func TestWhichCallsAreTheSame(t *testing.T) {
	const params = `{"a":1,"b":{"x":"é","y":[1,2]}}`
	at := func(address string) func(*idempotency.Call) {
		return func(c *idempotency.Call) {
			var err error
			if c.Address, err = carrel.ParseAddress(address); err != nil {
				t.Fatal(err)
			}
		}
	}
	const replay, another = "replayed first", "second"
	cases := map[string]struct {
		params string
		change func(*idempotency.Call)
		want   string // "" = idempotency_mismatch
	}{
		"the same call is":                                 {params, nil, replay},
		"the order of members does not matter":             {`{"b":{"y":[1,2],"x":"é"},"a":1}`, nil, replay},
		"white space and escapes do not matter":            {" {\n\"a\" : 1, \"b\" : {\"x\":\"\\u00e9\",\"y\":[ 1,2 ]}}", nil, replay},
		"a caller's role does not matter":                  {params, func(c *idempotency.Call) { c.Caller.Role = carrel.RoleOwner }, replay},
		"another value is a mismatch":                      {`{"a":2,"b":{"x":"é","y":[1,2]}}`, nil, ""},
		"a number that is written otherwise is a mismatch": {`{"a":1.0,"b":{"x":"é","y":[1,2]}}`, nil, ""},
		"the order of items matters":                       {`{"a":1,"b":{"x":"é","y":[2,1]}}`, nil, ""},
		"another session is a mismatch":                    {params, func(c *idempotency.Call) { c.Session = "ses_2" }, ""},
		"no session is a mismatch":                         {params, func(c *idempotency.Call) { c.Session = "" }, ""},
		"another key is another call":                      {params, func(c *idempotency.Call) { c.Key = "Key" }, another},
		"another tenant is another call":                   {params, func(c *idempotency.Call) { c.Caller.Tenant = "other" }, another},
		"another API key is another call":                  {params, func(c *idempotency.Call) { c.Caller.Key = "key_2" }, another},
		"another subject is another call":                  {params, func(c *idempotency.Call) { c.Caller.Subject = "bob" }, another},
		"another method is another call":                   {params, at("p/S.talk"), another},
		"another service is another call":                  {params, at("p/T.chat"), another},
		"another plugin is another call":                   {params, at("q/S.chat"), another},
		"an address with a version is another call":        {params, at("p@1/S.chat"), another},
		"an address with a digest is another call":         {params, at("p@" + fmt.Sprintf("%064x", 1) + "/S.chat"), another},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			k := keeper(t, newDisk(), "one", 10)
			got, err := do(t.Context(), k, call(t, params, nil), false, says("first"))
			want(t, got, err, "first")
			got, err = do(t.Context(), k, call(t, c.params, c.change), false, says("second"))
			if c.want == "" {
				wantCode(t, err, abi.IdempotencyMismatch, "")
				return
			}
			want(t, got, err, c.want)
		})
	}
}

func FuzzNoPartOfAnIdentityPassesForAnother(f *testing.F) {
	f.Add("k", "t", "i", "s", "kt", "", "i", "s")
	f.Add("k", "", "is", "", "k", "", "i", "s")
	f.Fuzz(func(t *testing.T, k1, t1, i1, s1, k2, t2, i2, s2 string) {
		d := newDisk()
		k := keeper(t, d, "one", 10)
		ask := func(key, tenant, id, subject string) store.Claim {
			o := enter(t, k, call(t, `{}`, func(c *idempotency.Call) {
				c.Key, c.Caller = key, carrel.Caller{Tenant: carrel.TenantID(tenant), Key: carrel.KeyID(id), Subject: carrel.Subject(subject)}
			}))
			defer o.End(t.Context(), false)
			if _, err := o.Claim(t.Context(), false); err != nil {
				t.Fatal(err)
			}
			return d.last()
		}
		one, two := ask(k1, t1, i1, s1), ask(k2, t2, i2, s2)
		if same := k1 == k2 && t1 == t2 && i1 == i2 && s1 == s2; (one.ID == two.ID) != same {
			t.Errorf("the calls are the same: %v, and so for the store: %v", same, one.ID == two.ID)
		}
	})
}

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

func TestWhatAProcessThatIsGoneLeftUnanswered(t *testing.T) {
	for name, c := range map[string]struct {
		handler bool
		code    abi.Code
	}{
		"is free again if it was a chat":       {false, abi.OK},
		"stays in the way if it was a handler": {true, abi.IdempotencyInterrupted},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDisk()
			if _, err := enter(t, keeper(t, d, "one", 10), call(t, `{}`, nil)).Claim(t.Context(), c.handler); err != nil {
				t.Fatal(err)
			}
			k := keeper(t, d, "two", 10)
			if err := k.Recover(t.Context()); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				_, err := do(t.Context(), k, call(t, `{}`, nil), c.handler, says("A1"))
				wantCode(t, err, c.code, "")
			}
		})
	}
}

func TestAHandlerWhoseAnswerWasNotStoredIsNeverRunAgain(t *testing.T) {
	d := newDisk()
	k := keeper(t, d, "one", 10)
	d.fail = errors.New("the disk is full")
	if _, err := do(t.Context(), k, call(t, `{}`, nil), true, says("A1")); !errors.Is(err, d.fail) {
		t.Fatalf("got %v", err)
	}
	d.fail = nil
	for range 2 {
		_, err := do(t.Context(), k, call(t, `{}`, nil), true, says("A2"))
		wantCode(t, err, abi.IdempotencyInterrupted, "")
	}
}

func TestAfterDoubtTheStoreDecides(t *testing.T) {
	for name, c := range map[string]struct {
		stored bool
		want   string
	}{
		"an answer that came to be stored is given":    {true, "replayed A1"},
		"one that never was lets the next do the work": {false, "A2"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDisk()
			k := keeper(t, d, "one", 10)
			o := enter(t, k, call(t, `{}`, nil))
			if _, err := o.Claim(t.Context(), false); err != nil {
				t.Fatal(err)
			}
			sealed := o.Seal([]byte("A1"))
			o.Doubt()
			o.End(t.Context(), false)
			if c.stored { // after the end: a release would have come before it
				if err := d.Answer(t.Context(), *sealed); err != nil {
					t.Fatal(err)
				}
			}
			got, err := do(t.Context(), k, call(t, `{}`, nil), false, says("A2"))
			want(t, got, err, c.want)
		})
	}
}

func TestATenantHasOnlySoManyKeys(t *testing.T) {
	k := keeper(t, newDisk(), "one", 2)
	named := func(key, tenant string) idempotency.Call {
		return call(t, `{}`, func(c *idempotency.Call) { c.Key, c.Caller.Tenant = key, carrel.TenantID(tenant) })
	}
	for _, key := range []string{"1", "2"} {
		got, err := do(t.Context(), k, named(key, "acme"), false, says("A"))
		want(t, got, err, "A")
	}
	_, err := do(t.Context(), k, named("3", "acme"), false, says("A"))
	wantCode(t, err, abi.QuotaExceeded, "idempotencyKeys")
	got, err := do(t.Context(), k, named("3", "other"), false, says("A"))
	want(t, got, err, "A")
	got, err = do(t.Context(), k, named("1", "acme"), false, says("A"))
	want(t, got, err, "replayed A")
}

func TestAnAnswerIsKeptForADayAndThenForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk()
		k := keeper(t, d, "one", 1)
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { k.Run(ctx) })
		defer running.Wait()
		defer stop()
		got, err := do(t.Context(), k, call(t, `{}`, nil), false, says("A1"))
		want(t, got, err, "A1")
		<-time.After(idempotency.Kept - time.Second) // of the bubble
		got, err = do(t.Context(), k, call(t, `{}`, nil), false, says("A2"))
		want(t, got, err, "replayed A1")
		<-time.After(time.Minute)
		if n, err := d.ForgetClaims(t.Context(), "one", time.Now(), 10); n != 0 || err != nil {
			t.Errorf("%d claims were still there, %v", n, err)
		}
		got, err = do(t.Context(), k, call(t, `{}`, nil), false, says("A2"))
		want(t, got, err, "A2")
	})
}

func TestWhatIsStoredTellsNothing(t *testing.T) {
	d := newDisk()
	k := keeper(t, d, "one", 10)
	secret := call(t, `{"msg":"a secret question"}`, func(c *idempotency.Call) { c.Key = "a-secret-key" })
	got, err := do(t.Context(), k, secret, false, says("a secret answer"))
	want(t, got, err, "a secret answer")
	c := d.last()
	found, err := d.Claim(t.Context(), c, 10)
	if err != nil || found.State != store.ClaimAnswered {
		t.Fatalf("the claim is %+v, %v", found, err)
	}
	for _, text := range []string{"secret", "question", "answer"} {
		for what, stored := range map[string][]byte{"id": c.ID[:], "fingerprint": c.Fingerprint[:], "answer": found.Sealed} {
			if bytes.Contains(stored, []byte(text)) {
				t.Errorf("the %s holds %q", what, text)
			}
		}
	}
	// Under another identity the same bytes are no answer.
	o := enter(t, k, call(t, `{"msg":"a secret question"}`, func(c *idempotency.Call) {
		c.Key, c.Caller.Subject = "a-secret-key", "eve"
	}))
	if _, err := o.Claim(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if err := d.Answer(t.Context(), store.Answer{Claim: d.last().ID, Sealed: found.Sealed, At: time.Now()}); err != nil {
		t.Fatal(err)
	}
	if stored, err := o.Claim(t.Context(), false); err == nil {
		t.Errorf("another subject reads %q", stored.Answer)
	}
	o.End(t.Context(), true)
}
