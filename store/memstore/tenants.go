package memstore

import (
	"context"
	"fmt"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/store"
)

type tenant struct {
	store.Tenant
	hasOwner bool
	plugins  map[carrel.PluginName]*plugin
	grants   map[carrel.PluginName]store.Grant // none is zero
	sessions int                               // open HTTP sessions
}

// CreateTenant implements store.Tenants.
func (s *Store) CreateTenant(ctx context.Context, t store.Tenant) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	if s.tenants[t.ID] != nil {
		return fmt.Errorf("memstore.CreateTenant: %w", store.ErrExists)
	}
	t.CreatedAt = stored(t.CreatedAt)
	s.tenants[t.ID] = &tenant{
		Tenant:  t,
		plugins: make(map[carrel.PluginName]*plugin),
		grants:  make(map[carrel.PluginName]store.Grant),
	}
	return nil
}

// Tenant implements store.Tenants.
func (s *Store) Tenant(ctx context.Context, id carrel.TenantID) (store.Tenant, error) {
	if err := s.begin(ctx); err != nil {
		return store.Tenant{}, err
	}
	defer s.mu.Unlock()
	tn := s.tenants[id]
	if tn == nil {
		return store.Tenant{}, carrel.FailNotFound("memstore.Tenant")
	}
	return tn.Tenant, nil
}

// ListTenants implements store.Tenants.
func (s *Store) ListTenants(ctx context.Context, after carrel.TenantID, limit int) ([]store.Tenant, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	var list []store.Tenant
	for _, id := range sortedAfter(s.tenants, after, limit) {
		list = append(list, s.tenants[id].Tenant)
	}
	return list, nil
}

// CreateKey implements store.Tenants.
func (s *Store) CreateKey(ctx context.Context, k store.APIKey) error {
	return s.createKey(ctx, "memstore.CreateKey", k, false)
}

// CreateFirstOwner implements store.Tenants.
func (s *Store) CreateFirstOwner(ctx context.Context, k store.APIKey) error {
	return s.createKey(ctx, "memstore.CreateFirstOwner", k, true)
}

func (s *Store) createKey(ctx context.Context, op string, k store.APIKey, first bool) error {
	if first && k.Role != carrel.RoleOwner {
		return fmt.Errorf("%s: a key of role %q is no owner", op, k.Role)
	}
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	tn := s.tenants[k.Tenant]
	if tn == nil {
		return carrel.FailNotFound(op)
	}
	_, hashTaken := s.keys[k.Hash]
	_, idTaken := s.keyIDs[k.ID]
	if hashTaken || idTaken || first && tn.hasOwner {
		return fmt.Errorf("%s: %w", op, store.ErrExists)
	}
	k.CreatedAt = stored(k.CreatedAt)
	s.keys[k.Hash] = k
	s.keyIDs[k.ID] = struct{}{}
	tn.hasOwner = tn.hasOwner || k.Role == carrel.RoleOwner
	return nil
}

// KeyByHash implements store.Tenants.
func (s *Store) KeyByHash(ctx context.Context, hash [32]byte) (store.APIKey, error) {
	if err := s.begin(ctx); err != nil {
		return store.APIKey{}, err
	}
	defer s.mu.Unlock()
	k, ok := s.keys[hash]
	if !ok {
		return store.APIKey{}, carrel.FailNotFound("memstore.KeyByHash")
	}
	return k, nil
}
