package idempotency_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/idempotency"
	"github.com/carrelhost/carrel/store"
)

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

func TestATenantsAnswersHaveOnlySoManyBytes(t *testing.T) {
	d := newDisk()
	k, err := idempotency.New(idempotency.Config{
		Store: d, Node: "one", Most: store.ClaimLimits{Claims: 10, Bytes: 1000}, Timeout: timeout, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	named := func(key string) idempotency.Call { return call(t, `{}`, func(c *idempotency.Call) { c.Key = key }) }
	long := strings.Repeat("A", 2000)
	got, err := do(t.Context(), k, named("1"), false, func() (string, error) {
		// What runs already may have its answer kept, whatever others have.
		got, err := do(t.Context(), k, named("2"), false, says(long))
		want(t, got, err, long)
		return long, nil
	})
	want(t, got, err, long)
	_, err = do(t.Context(), k, named("3"), false, says("A"))
	wantCode(t, err, abi.QuotaExceeded, "idempotencyBytes")
	if !strings.Contains(err.Error(), "`limits.idempotencyBytes`") {
		t.Errorf("error %v does not say what to do", err)
	}
	for _, key := range []string{"1", "2"} {
		got, err = do(t.Context(), k, named(key), false, says("A"))
		want(t, got, err, "replayed "+long)
	}
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
	found, err := d.Claim(t.Context(), c, store.ClaimLimits{Claims: 10, Bytes: 1 << 20})
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
