package storetest

import (
	"context"
	"testing"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/store"
)

var grantCases = []testCase{
	{"a grant comes back whole, in order, whether its plugin is there or not", grantFound},
	{"setting a grant replaces the one before", grantReplaced},
	{"the zero grant takes everything back", grantZero},
	{"a grant is deleted with its plugin, and with nothing less", grantDeleted},
	{"grants of equal names in two tenants are apart", grantTenants},
	{"a tenant that does not exist grants nothing", grantOfMissingTenant},
	{"a grant that a caller changes later is not the store's", grantCopies},
}

func wantGrant(t *testing.T, s store.Store, tenant carrel.TenantID, p carrel.PluginName, want store.Grant) {
	t.Helper()
	wantSame(t, "grant", must(s.Grant(context.Background(), tenant, p))(t), want)
}

func setGrant(t *testing.T, s store.Store, tenant carrel.TenantID, p carrel.PluginName, g store.Grant) {
	t.Helper()
	noError(t, s.SetGrant(context.Background(), tenant, p, g))
}

func grantFound(t *testing.T, s store.Store) {
	createTenants(t, s, acme)
	wantGrant(t, s, acme, chat, store.Grant{})
	for _, g := range []store.Grant{
		{Call: []string{"z/S.*", "a/S.m", "a/S.m", "*"}, Namespace: "shared"},
		{Call: []string{"a/S.m"}},
		{Namespace: "shared"},
	} {
		setGrant(t, s, acme, chat, g)
		wantGrant(t, s, acme, chat, g)
	}
	// A plugin that comes later finds it.
	install(t, s, acme, chat, "app")
	wantGrant(t, s, acme, chat, store.Grant{Namespace: "shared"})
	wantGrant(t, s, acme, "other", store.Grant{})
}

func grantReplaced(t *testing.T, s store.Store) {
	createTenants(t, s, acme)
	setGrant(t, s, acme, chat, store.Grant{Call: []string{"a/S.m", "b/S.m", "c/S.m"}, Namespace: "shared"})
	setGrant(t, s, acme, "other", store.Grant{Call: []string{"d/S.m"}})
	setGrant(t, s, acme, chat, store.Grant{Call: []string{"c/S.m"}})
	wantGrant(t, s, acme, chat, store.Grant{Call: []string{"c/S.m"}})
	wantGrant(t, s, acme, "other", store.Grant{Call: []string{"d/S.m"}})
}

func grantZero(t *testing.T, s store.Store) {
	createTenants(t, s, acme)
	for _, zero := range []store.Grant{{}, {Call: []string{}}} {
		setGrant(t, s, acme, chat, store.Grant{Call: []string{"a/S.m"}, Namespace: "shared"})
		setGrant(t, s, acme, chat, zero)
		wantGrant(t, s, acme, chat, store.Grant{})
		setGrant(t, s, acme, chat, zero) // there was none to take
		wantGrant(t, s, acme, chat, store.Grant{})
	}
}

func grantDeleted(t *testing.T, s store.Store) {
	ctx := context.Background()
	createTenants(t, s, acme, globex)
	install(t, s, acme, chat, "app")
	g := store.Grant{Call: []string{"a/S.m"}, Namespace: "shared"}
	setGrant(t, s, acme, chat, g)
	setGrant(t, s, acme, "other", g)
	setGrant(t, s, globex, chat, g)
	must(s.Deactivate(ctx, acme, chat))(t)
	noError(t, s.DeleteVersion(ctx, acme, chat, carrel.DigestOf([]byte("module of app"))))
	wantGrant(t, s, acme, chat, g)

	must(s.DeletePlugin(ctx, acme, chat))(t)
	wantGrant(t, s, acme, chat, store.Grant{})
	put(t, s, acme, chat, "anew")
	wantGrant(t, s, acme, chat, store.Grant{})
	wantGrant(t, s, acme, "other", g)
	wantGrant(t, s, globex, chat, g)
	// What is not there cannot be deleted, and takes no grant with it.
	_, err := s.DeletePlugin(ctx, acme, "other")
	wantCode(t, err, abi.NotFound)
	wantGrant(t, s, acme, "other", g)
}

func grantTenants(t *testing.T, s store.Store) {
	createTenants(t, s, acme, globex)
	setGrant(t, s, acme, chat, store.Grant{Namespace: "shared"})
	wantGrant(t, s, globex, chat, store.Grant{})
	setGrant(t, s, globex, chat, store.Grant{Call: []string{"a/S.m"}})
	wantGrant(t, s, acme, chat, store.Grant{Namespace: "shared"})
	setGrant(t, s, acme, chat, store.Grant{})
	wantGrant(t, s, globex, chat, store.Grant{Call: []string{"a/S.m"}})
}

func grantOfMissingTenant(t *testing.T, s store.Store) {
	ctx := context.Background()
	wantCode(t, s.SetGrant(ctx, acme, chat, store.Grant{Namespace: "shared"}), abi.NotFound)
	wantCode(t, s.SetGrant(ctx, acme, chat, store.Grant{}), abi.NotFound)
	wantGrant(t, s, acme, chat, store.Grant{})
	createTenants(t, s, acme)
	wantGrant(t, s, acme, chat, store.Grant{})
}

func grantCopies(t *testing.T, s store.Store) {
	createTenants(t, s, acme)
	g := store.Grant{Call: []string{"a/S.m"}}
	setGrant(t, s, acme, chat, g)
	g.Call[0] = "*"
	got := must(s.Grant(context.Background(), acme, chat))(t)
	got.Call[0] = "*"
	wantGrant(t, s, acme, chat, store.Grant{Call: []string{"a/S.m"}})
}
