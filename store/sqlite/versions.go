package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/store"
)

const (
	selectVersion = "SELECT tenant, plugin, digest, n, manifest, report, bytes, created_at FROM versions "
	listVersions  = `SELECT tenant, plugin, digest, n, NULL AS manifest, NULL AS report, bytes, created_at FROM versions
		WHERE tenant = ?1 AND plugin = ?2 AND (?3 = 0 OR n < ?3) ORDER BY n DESC LIMIT ?4`
)

func scanVersion(row scanner) (v store.Version, err error) {
	err = row.Scan(&v.Tenant, &v.Plugin, fixed(v.Digest[:]), &v.N, &v.Manifest, &v.Report, &v.Bytes, instant{&v.CreatedAt})
	return v, err
}

// version returns sql.ErrNoRows if there is none.
func version(ctx context.Context, q *session, t carrel.TenantID, p carrel.PluginName, ref carrel.VersionRef) (store.Version, error) {
	switch {
	case ref.IsActive():
		return first(ctx, q, scanVersion, selectVersion+`WHERE tenant = ?1 AND plugin = ?2
			AND digest = (SELECT active FROM plugins WHERE tenant = ?1 AND name = ?2)`, t, p)
	case ref.Digest != carrel.Digest{}:
		return first(ctx, q, scanVersion, selectVersion+"WHERE tenant = ? AND plugin = ? AND digest = ?", t, p, ref.Digest[:])
	default:
		return first(ctx, q, scanVersion, selectVersion+"WHERE tenant = ? AND plugin = ? AND n = ?", t, p, ref.N)
	}
}

// Version implements store.Plugins.
func (s *Store) Version(ctx context.Context, t carrel.TenantID, p carrel.PluginName, ref carrel.VersionRef) (store.Version, error) {
	const op = "sqlite.Version"
	return read(ctx, s, op, func(ctx context.Context, q *session) (store.Version, error) {
		v, err := version(ctx, q, t, p, ref)
		return v, missing(op, err)
	})
}

// findVersion seeks the digest in each plugin, which needs no index of its own.
const findVersion = `SELECT v.tenant, v.plugin, v.digest, v.n, NULL AS manifest, NULL AS report, v.bytes, v.created_at
	FROM plugins AS p CROSS JOIN versions AS v ON v.tenant = p.tenant AND v.plugin = p.name AND v.digest = ?2
	WHERE p.tenant = ?1 LIMIT 1`

// FindVersion implements store.Plugins.
func (s *Store) FindVersion(ctx context.Context, t carrel.TenantID, d carrel.Digest) (store.Version, error) {
	const op = "sqlite.FindVersion"
	return read(ctx, s, op, func(ctx context.Context, q *session) (store.Version, error) {
		v, err := first(ctx, q, scanVersion, findVersion, t, d[:])
		return v, missing(op, err)
	})
}

// ListVersions implements store.Plugins.
func (s *Store) ListVersions(ctx context.Context, t carrel.TenantID, p carrel.PluginName, before, limit int) ([]store.Version, error) {
	const op = "sqlite.ListVersions"
	return snapshot(ctx, s, op, func(ctx context.Context, q *session) ([]store.Version, error) {
		if _, err := plugin(ctx, q, op, t, p); err != nil {
			return nil, err
		}
		return list(ctx, q, scanVersion, listVersions, t, p, before, atMost(limit))
	})
}

// Module implements store.Plugins.
func (s *Store) Module(ctx context.Context, t carrel.TenantID, p carrel.PluginName, d carrel.Digest) ([]byte, error) {
	const op = "sqlite.Module"
	return read(ctx, s, op, func(ctx context.Context, q *session) (module []byte, err error) {
		err = q.one(ctx, "SELECT module FROM modules WHERE tenant = ? AND plugin = ? AND digest = ?", []any{t, p, d[:]}, &module)
		return module, missing(op, err)
	})
}

// PutVersion implements store.Plugins.
func (s *Store) PutVersion(ctx context.Context, v store.Version, module []byte, most store.PluginLimits) (store.Version, bool, error) {
	const op = "sqlite.PutVersion"
	type outcome struct {
		version store.Version
		created bool
	}
	// Copies, because the write may outlast a caller whose context ends.
	v.Manifest, v.Report, module = bytes.Clone(v.Manifest), bytes.Clone(v.Report), bytes.Clone(module)
	v.Bytes, v.CreatedAt = int64(len(module)), stored(v.CreatedAt)
	bytes := int64(len(module) + len(v.Manifest) + len(v.Report))
	out, err := writeWeighing(ctx, s, op, weightOf(0, bytes), func(ctx context.Context, q *session) (outcome, error) {
		if err := q.weigh(0, bytes); err != nil {
			return outcome{}, err
		}
		if err := requirePlugin(ctx, q, op, v, most.Plugins); err != nil {
			return outcome{}, err
		}
		old, err := version(ctx, q, v.Tenant, v.Plugin, carrel.VersionRef{Digest: v.Digest})
		if !errors.Is(err, sql.ErrNoRows) {
			return outcome{version: old}, err
		}
		stored, err := putVersion(ctx, q, op, v, module, most.Versions)
		return outcome{stored, true}, err
	})
	return out.version, out.created, err
}

// requirePlugin creates the version's plugin if there is none.
func requirePlugin(ctx context.Context, q *session, op string, v store.Version, most int) error {
	var tenant, there bool
	var plugins int
	err := q.one(ctx, `SELECT EXISTS (SELECT 1 FROM tenants WHERE id = ?1),
		EXISTS (SELECT 1 FROM plugins WHERE tenant = ?1 AND name = ?2),
		(SELECT count(*) FROM plugins WHERE tenant = ?1)`, []any{v.Tenant, v.Plugin}, &tenant, &there, &plugins)
	switch {
	case err != nil:
		return err
	case !tenant:
		return carrel.FailNotFound(op)
	case there:
		return nil
	case plugins >= most:
		return carrel.FailLimit(op, abi.QuotaExceeded, "plugins",
			fmt.Sprintf("this tenant has its %d plugins; delete one, or let the operator raise the limit", most))
	}
	_, err = q.exec(ctx, "INSERT INTO plugins (tenant, name, last_version, created_at) VALUES (?, ?, 0, ?)",
		v.Tenant, v.Plugin, v.CreatedAt.UnixMicro())
	return err
}

func putVersion(ctx context.Context, q *session, op string, v store.Version, module []byte, most int) (store.Version, error) {
	var versions int
	err := q.one(ctx, "SELECT count(*) FROM versions WHERE tenant = ? AND plugin = ?", []any{v.Tenant, v.Plugin}, &versions)
	if err != nil {
		return v, err
	}
	if versions >= most {
		return v, carrel.FailLimit(op, abi.QuotaExceeded, "versions",
			fmt.Sprintf("this plugin has its %d versions; delete one, or let the operator raise the limit", most))
	}
	err = q.one(ctx, `UPDATE plugins SET last_version = last_version + 1 WHERE tenant = ? AND name = ?
		RETURNING last_version`, []any{v.Tenant, v.Plugin}, &v.N)
	if err != nil {
		return v, err
	}
	_, err = q.exec(ctx, `INSERT INTO versions (tenant, plugin, digest, n, manifest, report, bytes, created_at)
		VALUES (?, ?, ?, ?, coalesce(?, x''), coalesce(?, x''), ?, ?)`,
		v.Tenant, v.Plugin, v.Digest[:], v.N, v.Manifest, v.Report, v.Bytes, v.CreatedAt.UnixMicro())
	if err != nil {
		return v, err
	}
	_, err = q.exec(ctx, "INSERT INTO modules (tenant, plugin, digest, module) VALUES (?, ?, ?, coalesce(?, x''))",
		v.Tenant, v.Plugin, v.Digest[:], module)
	return v, err
}

// DeleteVersion implements store.Plugins.
func (s *Store) DeleteVersion(ctx context.Context, t carrel.TenantID, p carrel.PluginName, d carrel.Digest) error {
	const op = "sqlite.DeleteVersion"
	return change(ctx, s, op, func(ctx context.Context, q *session) error {
		now, err := plugin(ctx, q, op, t, p)
		if err != nil {
			return err
		}
		if now.Active == d && d != (carrel.Digest{}) {
			return store.ErrActive
		}
		n, err := q.exec(ctx, "DELETE FROM versions WHERE tenant = ? AND plugin = ? AND digest = ?", t, p, d[:])
		if err != nil {
			return err
		}
		if n == 0 {
			return carrel.FailNotFound(op)
		}
		_, err = q.exec(ctx, "UPDATE plugins SET previous = NULL WHERE tenant = ? AND name = ? AND previous = ?", t, p, d[:])
		return err
	})
}
