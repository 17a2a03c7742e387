package sqlite

import (
	"context"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/store"
)

// selectPlugin counts versions in an index that holds nothing else, and of the
// active one reads the beginning of the row only, which ends before the manifest.
const selectPlugin = `SELECT tenant, name, active, previous, coalesce(scope, ''), created_at,
	(SELECT count(*) FROM versions v WHERE v.tenant = p.tenant AND v.plugin = p.name),
	coalesce((SELECT n FROM versions v WHERE v.tenant = p.tenant AND v.plugin = p.name AND v.digest = p.active), 0)
	FROM plugins p `

func scanPlugin(row scanner) (p store.Plugin, err error) {
	err = row.Scan(&p.Tenant, &p.Name, fixed(p.Active[:]), fixed(p.Previous[:]), &p.Scope, instant{&p.CreatedAt},
		&p.Versions, &p.ActiveN)
	return p, err
}

func plugin(ctx context.Context, q *session, op string, t carrel.TenantID, p carrel.PluginName) (store.Plugin, error) {
	found, err := first(ctx, q, scanPlugin, selectPlugin+"WHERE tenant = ? AND name = ?", t, p)
	return found, missing(op, err)
}

// Plugin implements store.Plugins.
func (s *Store) Plugin(ctx context.Context, t carrel.TenantID, p carrel.PluginName) (store.Plugin, error) {
	const op = "sqlite.Plugin"
	return read(ctx, s, op, func(ctx context.Context, q *session) (store.Plugin, error) {
		return plugin(ctx, q, op, t, p)
	})
}

// ListPlugins implements store.Plugins.
func (s *Store) ListPlugins(ctx context.Context, t carrel.TenantID, after carrel.PluginName, limit int) ([]store.Plugin, error) {
	return read(ctx, s, "sqlite.ListPlugins", func(ctx context.Context, q *session) ([]store.Plugin, error) {
		return list(ctx, q, scanPlugin, selectPlugin+"WHERE tenant = ? AND name > ? ORDER BY name LIMIT ?",
			t, after, atMost(limit))
	})
}

// ActivePlugins implements store.Plugins.
func (s *Store) ActivePlugins(ctx context.Context, afterTenant carrel.TenantID, after carrel.PluginName, limit int) ([]store.Plugin, error) {
	return read(ctx, s, "sqlite.ActivePlugins", func(ctx context.Context, q *session) ([]store.Plugin, error) {
		return list(ctx, q, scanPlugin,
			selectPlugin+"WHERE (tenant, name) > (?, ?) AND active IS NOT NULL ORDER BY tenant, name LIMIT ?",
			afterTenant, after, atMost(limit))
	})
}

// Activate implements store.Plugins.
func (s *Store) Activate(ctx context.Context, t carrel.TenantID, p carrel.PluginName, d carrel.Digest, open store.ScopeInstance) (store.Plugin, error) {
	const op = "sqlite.Activate"
	return write(ctx, s, op, func(ctx context.Context, q *session) (store.Plugin, error) {
		now, err := plugin(ctx, q, op, t, p)
		if err != nil {
			return now, err
		}
		err = q.one(ctx, "SELECT n FROM versions WHERE tenant = ? AND plugin = ? AND digest = ?", []any{t, p, d[:]}, &now.ActiveN)
		if err != nil {
			return now, missing(op, err)
		}
		if now.Active != d && now.Active != (carrel.Digest{}) {
			now.Previous = now.Active
		}
		now.Active = d
		if now.Scope == "" {
			if err := openApplication(ctx, q, t, p, open); err != nil {
				return now, err
			}
			now.Scope = open.ID
		}
		_, err = q.exec(ctx, "UPDATE plugins SET active = ?, previous = ? WHERE tenant = ? AND name = ?",
			d[:], orNull(now.Previous), t, p)
		return now, err
	})
}

// Deactivate implements store.Plugins.
func (s *Store) Deactivate(ctx context.Context, t carrel.TenantID, p carrel.PluginName) (store.Plugin, error) {
	const op = "sqlite.Deactivate"
	return write(ctx, s, op, func(ctx context.Context, q *session) (store.Plugin, error) {
		before, err := plugin(ctx, q, op, t, p)
		if err != nil {
			return before, err
		}
		_, err = q.exec(ctx, `UPDATE plugins SET previous = coalesce(active, previous), active = NULL, scope = NULL
			WHERE tenant = ? AND name = ?`, t, p)
		return before, err
	})
}

// DeletePlugin implements store.Plugins.
func (s *Store) DeletePlugin(ctx context.Context, t carrel.TenantID, p carrel.PluginName) (store.Plugin, error) {
	const op = "sqlite.DeletePlugin"
	return write(ctx, s, op, func(ctx context.Context, q *session) (store.Plugin, error) {
		before, err := plugin(ctx, q, op, t, p)
		if err != nil {
			return before, err
		}
		if _, err = q.exec(ctx, "DELETE FROM plugins WHERE tenant = ? AND name = ?", t, p); err != nil {
			return before, err
		}
		return before, takeGrant(ctx, q, t, p)
	})
}
