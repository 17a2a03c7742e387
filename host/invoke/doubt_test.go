package invoke_test

import (
	"context"
	"errors"
	"testing"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/store"
	"github.com/carrelhost/carrel/store/memstore"
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

// blind is a store that reads no history by its handle once told so.
type blind struct {
	store.Store
	on bool
}

func (b *blind) History(ctx context.Context, t carrel.TenantID, h carrel.Handle, by *store.Toucher, c store.Cutoff) (store.History, error) {
	if b.on {
		return store.History{}, errors.New("the disk is gone")
	}
	return b.Store.History(ctx, t, h, by, c)
}

func (b *blind) Commit(ctx context.Context, c store.Commit) (store.Committed, error) {
	done, err := b.Store.Commit(ctx, c)
	b.on = true
	return done, err
}

func TestAnImportThatCannotBeReadBackIsNotDenied(t *testing.T) {
	st := &blind{Store: memstore.New(memstore.Config{})}
	r := newTrial(t, st)
	if _, err := r.catalog.Activate(t.Context(), acme, "w", carrel.VersionRef{N: 1}); err != nil {
		t.Fatal(err)
	}
	in := r.imported("1", "U1 A1", "U2 A2")
	in.System = "You were"
	got, err := r.Import(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	st.on = false
	want, err := st.History(t.Context(), acme, r.scopes.Handle(explicit("1")), nil, store.Cutoff{})
	if err != nil {
		t.Fatal(err)
	}
	if got.CreatedAt.IsZero() || got.LastUsedAt.IsZero() {
		t.Errorf("it has no times: %+v", got)
	}
	got.CreatedAt, got.LastUsedAt = want.CreatedAt, want.LastUsedAt
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
