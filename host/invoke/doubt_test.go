package invoke_test

import (
	"context"
	"errors"
	"testing"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/store"
)

// A turn that is stored must not be denied: its client would make it again.
func TestACommitThatWasNotAnsweredSaysSo(t *testing.T) {
	for name, tc := range map[string]struct {
		failure error
		code    abi.Code
		unknown bool
	}{
		"the store broke after it":      {errors.New("the disk is gone"), abi.Internal, true},
		"the store said that it cannot": {carrel.Fail("test", abi.StorageFull, "the disk is full"), abi.StorageFull, false},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t, nil)
			hook := func(context.Context) error { return tc.failure }
			if tc.unknown {
				e.disk.committed = hook
			} else {
				e.disk.commit = hook
			}
			_, o := e.answered(e.call("p/App.chat", "id", "1", "msg", "U1"))
			wantError(t, o.err, tc.code, "")
			if !errors.Is(o.err, tc.failure) || saysUnknown(o.err) != tc.unknown {
				t.Errorf("got %v", o.err)
			}
			want := map[bool]string{true: firstTurn, false: ""}[tc.unknown]
			e.wantStored("1", want)
		})
	}
}

// What ends between the commit and the answer was imported all the same, and
// what another call began meanwhile under the same id is not it.
func TestAnImportThatEndedMeanwhileIsNotDenied(t *testing.T) {
	for name, again := range map[string]bool{"it was deleted": false, "it was deleted, and begun again": true} {
		t.Run(name, func(t *testing.T) {
			e := newWindowEnv(t, nil)
			k := explicit("1")
			var want store.History
			e.disk.committed = func(ctx context.Context) error {
				e.disk.committed = nil
				var err error
				if want, err = e.disk.History(ctx, acme, e.scopes.Handle(k), nil, store.Cutoff{}); err != nil {
					return err
				}
				if _, err = e.disk.DeleteHistory(ctx, k, store.Deletion{Reason: carrel.ReasonDeleted, At: longAgo}); err != nil || !again {
					return err
				}
				app, err := e.catalog.Plugin(ctx, acme, "w")
				if err != nil {
					return err
				}
				_, err = e.disk.Touch(ctx, store.Touch{
					Scope: store.ScopeInstance{ID: app.Scope, Tenant: acme, Scope: carrel.ScopeApplication, Plugin: "w"},
					Key:   k, Handle: e.scopes.Handle(k), Plugin: "w", At: longAgo,
				})
				return err
			}
			in := e.imported("1", "U1 A1", "U2 A2")
			in.System = "You were"
			got := e.doImport(in)
			want.CreatedAt, want.LastUsedAt = got.CreatedAt, got.LastUsedAt
			if got != want || got.Messages != 5 {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
}
