package idempotency_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carrelhost/carrel/host/idempotency"
	"github.com/carrelhost/carrel/store"
	"github.com/carrelhost/carrel/store/memstore"
)

// The time of a write begins when it has passed.
func TestACallWaitsUntilTheStoreTakesWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		open, inside := make(chan struct{}), 0
		k, err := idempotency.New(idempotency.Config{
			Store: memstore.New(memstore.Config{}), Node: "one", Most: store.ClaimLimits{Claims: 10, Bytes: 1 << 20},
			Timeout: 10 * time.Second, Log: slog.New(slog.DiscardHandler),
			Pass: func(ctx context.Context) (context.Context, func(), error) {
				select {
				case <-open:
					inside++
					return ctx, func() { inside-- }, nil
				case <-ctx.Done():
					return nil, nil, ctx.Err()
				}
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		o, err := k.Enter(t.Context(), call(t, `{}`, nil))
		if err != nil {
			t.Fatal(err)
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := o.Claim(short, true); err == nil {
			t.Error("the claim did not wait")
		}
		go func() {
			<-time.After(time.Minute)
			close(open)
		}()
		if stored, err := o.Claim(t.Context(), true); stored != nil || err != nil {
			t.Errorf("the claim: %v, %v", stored, err)
		}
		if err := o.Answer(t.Context(), []byte("done")); err != nil {
			t.Errorf("the answer: %v", err)
		}
		o.End(t.Context(), true)
		if inside != 0 {
			t.Errorf("%d writes never left", inside)
		}
	})
}
