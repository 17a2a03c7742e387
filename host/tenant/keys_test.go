package tenant_test

import (
	"reflect"
	"slices"
	"testing"

	"github.com/carrelhost/carrel/store"
)

// TestNoMethodOfAStoreIsOverlooked: a directory keeps keys, and relies on a
// store that changes none. These methods were seen to change none.
func TestNoMethodOfAStoreIsOverlooked(t *testing.T) {
	seen := []string{"CreateFirstOwner", "CreateKey", "CreateTenant", "KeyByHash", "ListTenants", "Tenant"}
	tenants := reflect.TypeFor[store.Tenants]()
	for i := range tenants.NumMethod() {
		if name := tenants.Method(i).Name; !slices.Contains(seen, name) {
			t.Errorf("store.Tenants has a method %s: if it changes or deletes a key or a tenant, directories must forget what they keep of it, in every process; else name it here", name)
		}
	}
}
