package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/store"
)

const selectScope = "SELECT id, tenant, kind, plugin, node, opened_at FROM scopes "

func scanScope(row scanner) (si store.ScopeInstance, err error) {
	err = row.Scan(&si.ID, &si.Tenant, &si.Scope, &si.Plugin, &si.Node, instant{&si.OpenedAt})
	return si, err
}

// openScope reports whether the instance is new.
func openScope(ctx context.Context, q *session, si store.ScopeInstance) (bool, error) {
	n, err := q.exec(ctx, `INSERT INTO scopes (id, tenant, kind, plugin, node, opened_at) VALUES (?, ?, ?, ?, ?, ?)
		ON CONFLICT DO NOTHING`, si.ID, si.Tenant, si.Scope, si.Plugin, si.Node, si.OpenedAt.UnixMicro())
	return n > 0, err
}

// openApplication opens si as the application scope of a plugin that has none.
func openApplication(ctx context.Context, q *session, t carrel.TenantID, p carrel.PluginName, si store.ScopeInstance) error {
	si.Tenant, si.Scope, si.Plugin = t, carrel.ScopeApplication, p
	created, err := openScope(ctx, q, si)
	if err != nil {
		return err
	}
	if !created {
		return fmt.Errorf("scope instance %s: %w", si.ID, store.ErrExists)
	}
	_, err = q.exec(ctx, "UPDATE plugins SET scope = ? WHERE tenant = ? AND name = ?", si.ID, t, p)
	return err
}

// OpenApplication implements store.Scopes.
func (s *Store) OpenApplication(ctx context.Context, si store.ScopeInstance) error {
	return change(ctx, s, "sqlite.OpenApplication", func(ctx context.Context, q *session) error {
		var wanted bool
		err := q.one(ctx, `SELECT EXISTS (SELECT 1 FROM plugins
			WHERE tenant = ? AND name = ? AND active IS NOT NULL AND scope IS NULL)`,
			[]any{si.Tenant, si.Plugin}, &wanted)
		if err != nil || !wanted {
			return err
		}
		return openApplication(ctx, q, si.Tenant, si.Plugin, si)
	})
}

// Touch implements store.Scopes.
func (s *Store) Touch(ctx context.Context, t store.Touch) (store.Touched, error) {
	const op = "sqlite.Touch"
	return write(ctx, s, op, func(ctx context.Context, q *session) (store.Touched, error) {
		now, err := current(ctx, q, t.Key)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return store.Touched{}, err
		}
		return touch(ctx, q, op, t, now)
	})
}

// touch is told what current found, the zero state if nothing. It may leave
// some of its work behind when it fails: its caller's transaction, or
// savepoint, is rolled back then.
func touch(ctx context.Context, q *session, op string, t store.Touch, now state) (done store.Touched, err error) {
	if t.Scope.Tenant != t.Key.Tenant {
		return done, fmt.Errorf("a scope of tenant %s cannot touch a key of tenant %s", t.Scope.Tenant, t.Key.Tenant)
	}
	if err := requireScope(ctx, q, op, t.Scope); err != nil {
		return done, err
	}
	switch {
	case now.generation == 0:
		if done.Generation, err = create(ctx, q, t); err != nil {
			return done, err
		}
	case now.handle != t.Handle:
		return done, fmt.Errorf("handle %s is not this memory key's", t.Handle)
	case now.expired(t.Cutoff):
		if done, err = renew(ctx, q, now.generation, t); err != nil {
			return done, err
		}
	default:
		done.Generation = now.generation
		_, err = q.exec(ctx, `UPDATE histories SET plugin = ?, last_used_at = max(last_used_at, ?),
			application = max(application, ?) WHERE generation = ?`,
			t.Plugin, t.At.UnixMicro(), t.Scope.Scope == carrel.ScopeApplication, now.generation)
		if err != nil {
			return done, err
		}
	}
	_, err = q.exec(ctx, "INSERT INTO touches (scope, handle) VALUES (?, ?) ON CONFLICT DO NOTHING", t.Scope.ID, t.Handle[:])
	if err != nil {
		return done, err
	}
	_, err = q.exec(ctx, "INSERT INTO touchers (generation, key_id, subject) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
		done.Generation, t.By.Key, t.By.Subject)
	return done, err
}

// renew ends a history that has expired and begins the next.
func renew(ctx context.Context, q *session, generation int64, t store.Touch) (done store.Touched, err error) {
	h, err := first(ctx, q, scanHistory, selectHistory+"WHERE h.generation = ?", generation)
	if err != nil {
		return done, err
	}
	replaced, err := evict(ctx, q, h, carrel.ReasonExpired, t.At)
	if err != nil {
		return done, err
	}
	done.Replaced = &replaced
	done.Generation, err = create(ctx, q, t)
	return done, err
}

// requireScope opens a request scope that is not open; any other must be.
func requireScope(ctx context.Context, q *session, op string, si store.ScopeInstance) error {
	if si.Scope == carrel.ScopeRequest {
		si.Plugin = ""
		if created, err := openScope(ctx, q, si); created || err != nil {
			return err
		}
	}
	var open bool
	err := q.one(ctx, "SELECT EXISTS (SELECT 1 FROM scopes WHERE id = ? AND tenant = ? AND kind = ?)",
		[]any{si.ID, si.Tenant, si.Scope}, &open)
	if err == nil && !open {
		err = carrel.Fail(op, abi.ScopeClosed, "the scope that this work belongs to has closed")
	}
	return err
}

// CloseScope implements store.Scopes.
func (s *Store) CloseScope(ctx context.Context, id carrel.ScopeID, why carrel.EvictionReason, at time.Time) ([]carrel.Eviction, error) {
	const op = "sqlite.CloseScope"
	type outcome struct {
		evictions []carrel.Eviction
		left      *store.ScopeInstance // not nil: its histories have ended and are still there
	}
	defer s.emptier.hold(id)() // lest it be emptied before it is reported
	out, err := write(ctx, s, op, func(ctx context.Context, q *session) (out outcome, err error) {
		si, err := first(ctx, q, scanScope, selectScope+"WHERE id = ? AND kind <> ?", id, kindClosed)
		if errors.Is(err, sql.ErrNoRows) {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		touched, err := list(ctx, q, scanHistory, touchedAtOnce, id, si.Tenant, q.ends.histories+1)
		if err != nil {
			return out, err
		}
		if room := q.ends.room(); !room.take(touched) {
			return outcome{left: &si}, beginClosing(ctx, q, si, why, at)
		}
		out.evictions, err = closeAtOnce(ctx, q, si, touched, why, at)
		return out, err
	})
	if err != nil || out.left == nil {
		return out.evictions, err
	}
	return read(ctx, s, op, func(ctx context.Context, q *session) ([]carrel.Eviction, error) {
		return list(ctx, q, scanEvictions(endOfScope(*out.left, why, at)), closingReport, id, 0)
	})
}

// touchedAtOnce is in no order: all of them are wanted, or none.
const touchedAtOnce = "SELECT " + historyColumns + `FROM touches t CROSS JOIN live h ON h.handle = t.handle
	WHERE t.scope = ? AND h.tenant = ? LIMIT ?`

func closeAtOnce(ctx context.Context, q *session, si store.ScopeInstance, touched []store.History, why carrel.EvictionReason, at time.Time) ([]carrel.Eviction, error) {
	slices.SortFunc(touched, func(a, b store.History) int { return cmp.Compare(a.Generation, b.Generation) })
	evictions := evictionsOf(endOfScope(si, why, at), touched)
	if err := removeAll(ctx, q, touched, evictions); err != nil {
		return nil, err
	}
	// Its touches go with it, and a plugin whose application scope it is has
	// none from here on.
	if _, err := q.exec(ctx, "DELETE FROM scopes WHERE id = ?", si.ID); err != nil {
		return nil, err
	}
	if si.Scope != carrel.ScopeSession {
		return evictions, nil
	}
	return evictions, closeSession(ctx, q, si.ID, why, at, evictions)
}

// orphans asks for each kind apart, so that each is found in an index of its
// own. The names of kinds are written out because one of the indexes is of
// WebSockets only, and values that are bound later cannot choose it. For the
// same reason "another node" is asked as smaller or larger.
const orphans = selectScope + `WHERE kind = 'request' AND node <> ?1
	UNION ALL ` + selectScope + `WHERE kind = 'session' AND node <> '' AND node < ?1
	UNION ALL ` + selectScope + `WHERE kind = 'session' AND node <> '' AND node > ?1
	UNION ALL ` + selectScope + `WHERE kind = 'application' AND NOT EXISTS (SELECT 1 FROM plugins WHERE scope = scopes.id)
	ORDER BY opened_at, id LIMIT ?2`

// Orphans implements store.Scopes.
func (s *Store) Orphans(ctx context.Context, node string, limit int) ([]store.ScopeInstance, error) {
	return read(ctx, s, "sqlite.Orphans", func(ctx context.Context, q *session) ([]store.ScopeInstance, error) {
		return list(ctx, q, scanScope, orphans, node, atMost(limit))
	})
}

// ListScopes implements store.Scopes.
func (s *Store) ListScopes(ctx context.Context, kind carrel.Scope, after carrel.ScopeID, limit int) ([]store.ScopeInstance, error) {
	return read(ctx, s, "sqlite.ListScopes", func(ctx context.Context, q *session) ([]store.ScopeInstance, error) {
		return list(ctx, q, scanScope, selectScope+"WHERE kind = ? AND id > ? ORDER BY id LIMIT ?",
			kind, after, atMost(limit))
	})
}
