package memstore

import (
	"context"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/store"
)

// copyGrant returns a grant that shares no memory with g.
func copyGrant(g store.Grant) store.Grant {
	g.Call = append([]string(nil), g.Call...)
	return g
}

// SetGrant implements store.Grants.
func (s *Store) SetGrant(ctx context.Context, t carrel.TenantID, p carrel.PluginName, g store.Grant) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	tn := s.tenants[t]
	if tn == nil {
		return carrel.FailNotFound("memstore.SetGrant")
	}
	if len(g.Call) == 0 && g.Namespace == "" {
		delete(tn.grants, p)
		return nil
	}
	tn.grants[p] = copyGrant(g)
	return nil
}

// Grant implements store.Grants.
func (s *Store) Grant(ctx context.Context, t carrel.TenantID, p carrel.PluginName) (store.Grant, error) {
	if err := s.begin(ctx); err != nil {
		return store.Grant{}, err
	}
	defer s.mu.Unlock()
	if tn := s.tenants[t]; tn != nil {
		return copyGrant(tn.grants[p]), nil
	}
	return store.Grant{}, nil
}
