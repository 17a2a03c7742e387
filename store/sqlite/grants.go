package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"slices"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/store"
)

// SetGrant implements store.Grants.
func (s *Store) SetGrant(ctx context.Context, t carrel.TenantID, p carrel.PluginName, g store.Grant) error {
	const op = "sqlite.SetGrant"
	// A copy, because the write may outlast a caller whose context ends.
	g.Call = slices.Clone(g.Call)
	return change(ctx, s, op, func(ctx context.Context, q *session) error {
		var there bool
		if err := q.one(ctx, "SELECT EXISTS (SELECT 1 FROM tenants WHERE id = ?)", []any{t}, &there); err != nil {
			return err
		}
		if !there {
			return carrel.FailNotFound(op)
		}
		if err := takeGrant(ctx, q, t, p); err != nil {
			return err
		}
		if len(g.Call) == 0 && g.Namespace == "" {
			return nil
		}
		if _, err := q.exec(ctx, "INSERT INTO grants (tenant, plugin, namespace) VALUES (?, ?, ?)", t, p, g.Namespace); err != nil {
			return err
		}
		for i, pattern := range g.Call {
			_, err := q.exec(ctx, "INSERT INTO granted_calls (tenant, plugin, n, pattern) VALUES (?, ?, ?, ?)", t, p, i, pattern)
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// takeGrant takes a plugin's grant back, if it has one.
func takeGrant(ctx context.Context, q *session, t carrel.TenantID, p carrel.PluginName) error {
	_, err := q.exec(ctx, "DELETE FROM grants WHERE tenant = ? AND plugin = ?", t, p)
	return err
}

// Grant implements store.Grants.
func (s *Store) Grant(ctx context.Context, t carrel.TenantID, p carrel.PluginName) (store.Grant, error) {
	return snapshot(ctx, s, "sqlite.Grant", func(ctx context.Context, q *session) (g store.Grant, err error) {
		err = q.one(ctx, "SELECT namespace FROM grants WHERE tenant = ? AND plugin = ?", []any{t, p}, &g.Namespace)
		if errors.Is(err, sql.ErrNoRows) {
			return g, nil
		}
		if err != nil {
			return g, err
		}
		g.Call, err = list(ctx, q, scanText, "SELECT pattern FROM granted_calls WHERE tenant = ? AND plugin = ? ORDER BY n", t, p)
		return g, err
	})
}

func scanText(row scanner) (text string, err error) {
	err = row.Scan(&text)
	return text, err
}
