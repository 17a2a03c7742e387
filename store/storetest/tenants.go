package storetest

import (
	"context"
	"testing"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/store"
)

var tenantCases = []testCase{
	{"a created tenant is found with its time in UTC and microseconds", tenantFound},
	{"a tenant is created once", tenantOnce},
	{"a tenant that was never created is not found", tenantMissing},
	{"tenants are listed in order of id, page by page", tenantPages},
	{"a key is found by its hash with all it was created with", keyFound},
	{"a key of a missing tenant is not found", keyOfMissingTenant},
	{"a key's id and hash are unique among all tenants", keyUnique},
	{"a first owner is refused once there is an owner", firstOwner},
	{"a first owner is an owner", firstOwnerRole},
}

func apiKey(t carrel.TenantID, id carrel.KeyID, role carrel.KeyRole) store.APIKey {
	return store.APIKey{ID: id, Tenant: t, Role: role, Hash: carrel.DigestOf([]byte(id)), CreatedAt: noon}
}

func tenantFound(t *testing.T, s store.Store) {
	createTenants(t, s, acme)
	got := must(s.Tenant(context.Background(), acme))(t)
	wantSame(t, "tenant", got, store.Tenant{ID: acme, CreatedAt: storedNoon})
	if got.CreatedAt.Location().String() != "UTC" {
		t.Errorf("the time is in %v, want UTC", got.CreatedAt.Location())
	}
}

func tenantOnce(t *testing.T, s store.Store) {
	createTenants(t, s, acme)
	wantIs(t, s.CreateTenant(context.Background(), store.Tenant{ID: acme}), store.ErrExists)
	wantSame(t, "tenant", must(s.Tenant(context.Background(), acme))(t), store.Tenant{ID: acme, CreatedAt: storedNoon})
}

func tenantMissing(t *testing.T, s store.Store) {
	_, err := s.Tenant(context.Background(), acme)
	wantCode(t, err, abi.NotFound)
}

func tenantPages(t *testing.T, s store.Store) {
	createTenants(t, s, "c", "a", "e", "b", "d")
	list := walk(t, 2, func(last *store.Tenant) ([]store.Tenant, error) {
		after := orElse(last, "", func(t store.Tenant) carrel.TenantID { return t.ID })
		return s.ListTenants(context.Background(), after, 2)
	})
	var ids []carrel.TenantID
	for _, tenant := range list {
		ids = append(ids, tenant.ID)
	}
	wantSame(t, "ids", ids, []carrel.TenantID{"a", "b", "c", "d", "e"})
	for _, limit := range []int{0, -1} {
		if got := must(s.ListTenants(context.Background(), "", limit))(t); len(got) != 0 {
			t.Errorf("a list of at most %d has %d", limit, len(got))
		}
	}
}

func keyFound(t *testing.T, s store.Store) {
	createTenants(t, s, acme)
	k := apiKey(acme, "k", carrel.RoleCaller)
	k.Name, k.Subject, k.AssertSubject = "Ada's \u2603 key", "ada", true
	noError(t, s.CreateKey(context.Background(), k))
	k.CreatedAt = storedNoon
	wantSame(t, "key", must(s.KeyByHash(context.Background(), k.Hash))(t), k)
	_, err := s.KeyByHash(context.Background(), [32]byte{1})
	wantCode(t, err, abi.NotFound)
}

func keyOfMissingTenant(t *testing.T, s store.Store) {
	k := apiKey(acme, "k", carrel.RoleOwner)
	wantCode(t, s.CreateKey(context.Background(), k), abi.NotFound)
	wantCode(t, s.CreateFirstOwner(context.Background(), k), abi.NotFound)
	_, err := s.KeyByHash(context.Background(), k.Hash)
	wantCode(t, err, abi.NotFound)
}

func keyUnique(t *testing.T, s store.Store) {
	createTenants(t, s, acme, globex)
	k := apiKey(acme, "k", carrel.RoleCaller)
	noError(t, s.CreateKey(context.Background(), k))
	for _, tenant := range []carrel.TenantID{acme, globex} {
		sameID := apiKey(tenant, "k", carrel.RoleOwner)
		sameID.Hash = [32]byte{1}
		wantIs(t, s.CreateKey(context.Background(), sameID), store.ErrExists)
		wantIs(t, s.CreateFirstOwner(context.Background(), sameID), store.ErrExists)
		sameHash := apiKey(tenant, "other", carrel.RoleOwner)
		sameHash.Hash = k.Hash
		wantIs(t, s.CreateKey(context.Background(), sameHash), store.ErrExists)
		wantIs(t, s.CreateFirstOwner(context.Background(), sameHash), store.ErrExists)
	}
	if got := must(s.KeyByHash(context.Background(), k.Hash))(t); got.Tenant != acme {
		t.Errorf("the key is of tenant %s now", got.Tenant)
	}
	_, err := s.KeyByHash(context.Background(), [32]byte{1})
	wantCode(t, err, abi.NotFound)
}

func firstOwner(t *testing.T, s store.Store) {
	createTenants(t, s, acme, globex)
	noError(t, s.CreateKey(context.Background(), apiKey(acme, "viewer", carrel.RoleViewer)))
	noError(t, s.CreateFirstOwner(context.Background(), apiKey(acme, "first", carrel.RoleOwner)))
	wantIs(t, s.CreateFirstOwner(context.Background(), apiKey(acme, "second", carrel.RoleOwner)), store.ErrExists)
	noError(t, s.CreateKey(context.Background(), apiKey(acme, "second", carrel.RoleOwner)))

	noError(t, s.CreateKey(context.Background(), apiKey(globex, "plain owner", carrel.RoleOwner)))
	wantIs(t, s.CreateFirstOwner(context.Background(), apiKey(globex, "late", carrel.RoleOwner)), store.ErrExists)
}

func firstOwnerRole(t *testing.T, s store.Store) {
	createTenants(t, s, acme)
	k := apiKey(acme, "k", carrel.RoleCaller)
	if err := s.CreateFirstOwner(context.Background(), k); err == nil {
		t.Error("a caller became the first owner")
	}
	_, err := s.KeyByHash(context.Background(), k.Hash)
	wantCode(t, err, abi.NotFound)
}
