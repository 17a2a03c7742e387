package sqlite_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/store"
	"github.com/carrelhost/carrel/store/sqlite"
)

// A transaction that cannot be ended costs its connection, not the store:
// those who shared it are written in their order, on another one.
func TestTheWriterReplacesAConnectionThatItCannotUseAnyMore(t *testing.T) {
	ctx := context.Background()
	path := newPath(t)
	s := open(t, sqlite.Config{Path: path})
	commit(t, s, commitOf(1, 0, "hello", "hi"))
	for round := range 3 {
		names := func(i int) carrel.TenantID { return carrel.TenantID(fmt.Sprintf("t%d-%d", round, i)) }
		release := hold(t, s)
		var outcomes []<-chan error
		for i := range 7 {
			outcomes = append(outcomes, queue(s, i, func() error {
				if i == 3 {
					return s.Jam(ctx)
				}
				if i == 0 || i == 6 {
					return createTenant(ctx, s, names(i))
				}
				// Each needs the one before, so they succeed in this order only.
				return s.CreateKey(ctx, store.APIKey{
					ID: carrel.KeyID(names(i)), Tenant: names(0), Role: carrel.RoleOwner, Hash: [32]byte{byte(round), byte(i)},
				})
			}))
		}
		release()
		for i, outcome := range outcomes {
			if err := <-outcome; (err != nil) != (i == 3) {
				t.Errorf("round %d: write %d: %v", round, i, err)
			}
		}
	}
	list := must(s.ListTenants(ctx, "", 100))(t)
	if len(list) != 6 {
		t.Errorf("tenants are %v", list)
	}
	k, _ := keyOf(1)
	v := must(s.View(ctx, k, store.ViewLimit{Messages: 10}))(t)
	commit(t, s, commitOf(1, v.Generation, "again", "yes"))
	// The new connection keeps the promises of the first.
	var synchronous, foreignKeys int
	if err := s.Pragma(ctx, "synchronous", &synchronous); err != nil {
		t.Fatal(err)
	}
	if err := s.Pragma(ctx, "foreign_keys", &foreignKeys); err != nil {
		t.Fatal(err)
	}
	if synchronous != 2 || foreignKeys != 1 {
		t.Errorf("synchronous is %d and foreign_keys %d", synchronous, foreignKeys)
	}
	closeStore(t, s)
	if again := must(open(t, sqlite.Config{Path: path}).View(ctx, k, store.ViewLimit{Messages: 10}))(t); len(again.Recent) != 2 {
		t.Errorf("after reopening the view is %+v", again)
	}
}
