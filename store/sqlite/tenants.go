package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/store"
)

// CreateTenant implements store.Tenants.
func (s *Store) CreateTenant(ctx context.Context, t store.Tenant) error {
	return change(ctx, s, "sqlite.CreateTenant", func(ctx context.Context, q *session) error {
		n, err := q.exec(ctx, "INSERT INTO tenants (id, created_at) VALUES (?, ?) ON CONFLICT DO NOTHING",
			t.ID, t.CreatedAt.UnixMicro())
		if err == nil && n == 0 {
			err = store.ErrExists
		}
		return err
	})
}

func scanTenant(row scanner) (t store.Tenant, err error) {
	err = row.Scan(&t.ID, instant{&t.CreatedAt})
	return t, err
}

// Tenant implements store.Tenants.
func (s *Store) Tenant(ctx context.Context, id carrel.TenantID) (store.Tenant, error) {
	const op = "sqlite.Tenant"
	return read(ctx, s, op, func(ctx context.Context, q *session) (store.Tenant, error) {
		t, err := first(ctx, q, scanTenant, "SELECT id, created_at FROM tenants WHERE id = ?", id)
		return t, missing(op, err)
	})
}

// missing says not_found of a row that is not there.
func missing(op string, err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return carrel.FailNotFound(op)
	}
	return err
}

// ListTenants implements store.Tenants.
func (s *Store) ListTenants(ctx context.Context, after carrel.TenantID, limit int) ([]store.Tenant, error) {
	return read(ctx, s, "sqlite.ListTenants", func(ctx context.Context, q *session) ([]store.Tenant, error) {
		return list(ctx, q, scanTenant, "SELECT id, created_at FROM tenants WHERE id > ? ORDER BY id LIMIT ?",
			after, atMost(limit))
	})
}

// CreateKey implements store.Tenants.
func (s *Store) CreateKey(ctx context.Context, k store.APIKey) error {
	const op = "sqlite.CreateKey"
	return change(ctx, s, op, func(ctx context.Context, q *session) error {
		return createKey(ctx, q, op, k)
	})
}

// CreateFirstOwner implements store.Tenants.
func (s *Store) CreateFirstOwner(ctx context.Context, k store.APIKey) error {
	const op = "sqlite.CreateFirstOwner"
	if k.Role != carrel.RoleOwner {
		return fmt.Errorf("%s: a key of role %q is no owner", op, k.Role)
	}
	return change(ctx, s, op, func(ctx context.Context, q *session) error {
		var owned bool
		err := q.one(ctx, "SELECT EXISTS (SELECT 1 FROM api_keys WHERE tenant = ? AND role = ?)",
			[]any{k.Tenant, carrel.RoleOwner}, &owned)
		if err != nil {
			return err
		}
		if owned {
			return store.ErrExists
		}
		return createKey(ctx, q, op, k)
	})
}

func createKey(ctx context.Context, q *session, op string, k store.APIKey) error {
	var there bool
	if err := q.one(ctx, "SELECT EXISTS (SELECT 1 FROM tenants WHERE id = ?)", []any{k.Tenant}, &there); err != nil {
		return err
	}
	if !there {
		return carrel.FailNotFound(op)
	}
	n, err := q.exec(ctx, `INSERT INTO api_keys (id, tenant, role, name, subject, assert_subject, hash, created_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`,
		k.ID, k.Tenant, k.Role, k.Name, k.Subject, k.AssertSubject, k.Hash[:], k.CreatedAt.UnixMicro())
	if err == nil && n == 0 {
		err = store.ErrExists
	}
	return err
}

// KeyByHash implements store.Tenants.
func (s *Store) KeyByHash(ctx context.Context, hash [32]byte) (store.APIKey, error) {
	const op = "sqlite.KeyByHash"
	return read(ctx, s, op, func(ctx context.Context, q *session) (store.APIKey, error) {
		var k store.APIKey
		err := q.one(ctx, `SELECT id, tenant, role, name, subject, assert_subject, hash, created_at
			FROM api_keys WHERE hash = ?`, []any{hash[:]},
			&k.ID, &k.Tenant, &k.Role, &k.Name, &k.Subject, &k.AssertSubject, fixed(k.Hash[:]), instant{&k.CreatedAt})
		return k, missing(op, err)
	})
}
