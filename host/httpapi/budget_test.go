package httpapi_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/host/httpapi"
)

func TestOneTenantsBodiesLeaveRoomForThoseOfOthers(t *testing.T) {
	for name, c := range map[string]struct {
		limits       httpapi.Limits
		mine, others int64
	}{
		"half of the room is one tenant's":                    {httpapi.Limits{BodyBytes: 100}, 50, 50},
		"a large body fits, even if it is most of the room":   {httpapi.Limits{BodyBytes: 100, ImportBytes: 80}, 80, 20},
		"a frame is read with one byte too many":              {httpapi.Limits{BodyBytes: 100, FrameBytes: 60}, 61, 39},
		"a body larger than the room makes no tenant have it": {httpapi.Limits{BodyBytes: 100, RequestBytes: 200}, 100, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				room := httpapi.NewBodies(c.limits)
				take := func(who carrel.TenantID, size int64) {
					t.Helper()
					if err := room.Acquire(t.Context(), who, size); err != nil {
						t.Fatal(err)
					}
				}
				wait := func(who carrel.TenantID) {
					t.Helper()
					ctx, cancel := context.WithCancel(t.Context())
					got := make(chan error, 1)
					go func() { got <- room.Acquire(ctx, who, 1) }()
					synctest.Wait()
					if len(got) > 0 {
						t.Fatalf("%s does not wait: %v", who, <-got)
					}
					cancel()
					if err := <-got; err == nil {
						t.Fatalf("%s got room that was not there", who)
					}
				}
				take("acme", c.mine-1)
				take("acme", 1)
				wait("acme")
				take("other", c.others)
				wait("third")
				take("third", 0)
				room.Release("acme", c.mine)
				take("acme", c.mine)
				room.Release("acme", c.mine-1)
				room.Release("acme", 1)
				room.Release("other", c.others)
				room.Release("third", 0)
				if n := room.Tenants(); n != 0 {
					t.Errorf("%d tenants are remembered that have nothing", n)
				}
				take("third", c.mine)
			})
		})
	}
}
