package memstore_test

import (
	"fmt"
	"slices"
	"testing"

	"go.uber.org/goleak"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/store"
	"github.com/carrelhost/carrel/store/memstore"
	"github.com/carrelhost/carrel/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestContract(t *testing.T) {
	storetest.Run(t, func(*testing.T) store.Store { return memstore.New(memstore.Config{}) })
}

func TestTheNewestRecordsOfEachTenantAreKept(t *testing.T) {
	s := memstore.New(memstore.Config{EvictionRecords: 3})
	defer func() { _ = s.Close() }()
	end := func(k carrel.MemoryKey) {
		t.Helper()
		request := store.ScopeInstance{ID: carrel.ScopeID("r-" + k.Tenant), Tenant: k.Tenant, Scope: carrel.ScopeRequest}
		_, err := s.Touch(t.Context(), store.Touch{Scope: request, Key: k, Handle: carrel.Handle{1}})
		if err == nil {
			_, err = s.DeleteHistory(t.Context(), k, store.Deletion{Reason: carrel.ReasonDeleted})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	end(carrel.MemoryKey{Tenant: "globex", ID: "theirs"})
	for n := range 50 {
		end(carrel.MemoryKey{Tenant: "acme", ID: carrel.MemoryID(fmt.Sprint(n + 1))})
	}
	for tenant, want := range map[carrel.TenantID][]string{"acme": {"48 48", "49 49", "50 50"}, "globex": {"1 theirs"}} {
		list, err := s.ListEvictions(t.Context(), store.EvictionFilter{Tenant: tenant, Limit: 100})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range list {
			got = append(got, fmt.Sprint(r.N, " ", r.MemoryID))
		}
		if !slices.Equal(got, want) {
			t.Errorf("records of %s are %q, want %q", tenant, got, want)
		}
	}
}
