package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/store"
)

// "closed_at IS NULL" is written out in every query of open sessions: it is
// what lets SQLite use the indexes that hold no others.
const (
	selectSession = `SELECT id, tenant, key_id, subject, idle_ttl, max_ttl, metadata, created_at, last_used_at,
		closed_at, coalesce(reason, '') FROM sessions `
	countSessions   = "SELECT count(*) FROM sessions WHERE tenant = ? AND closed_at IS NULL"
	listSessions    = selectSession + "WHERE tenant = ? AND id > ? AND closed_at IS NULL ORDER BY id LIMIT ?"
	listOwnSessions = selectSession + `WHERE tenant = ? AND key_id = ? AND subject = ? AND id > ? AND closed_at IS NULL
		ORDER BY id LIMIT ?`
	expiredSessions = selectSession + "WHERE expires_at <= ? AND closed_at IS NULL ORDER BY expires_at, id LIMIT ?"
	// What is not deleted yet is not kept yet either.
	keptReport     = "SELECT n, " + reportColumns + "FROM session_evictions WHERE session = ?1 UNION ALL " + closingReport
	forgetSessions = "DELETE FROM sessions WHERE forget_at <= ? AND closed_at IS NOT NULL"
)

func scanSession(row scanner) (s store.Session, err error) {
	var idle, longest int64
	var closed sql.NullInt64
	err = row.Scan(&s.ID, &s.Tenant, &s.Owner.Key, &s.Owner.Subject, &idle, &longest, &s.Metadata,
		instant{&s.CreatedAt}, instant{&s.LastUsedAt}, &closed, &s.Reason)
	s.IdleTTL, s.MaxTTL = time.Duration(idle)*time.Microsecond, time.Duration(longest)*time.Microsecond
	if closed.Valid {
		s.ClosedAt = time.UnixMicro(closed.Int64).UTC()
	}
	return s, err
}

// CreateSession implements store.Sessions.
func (s *Store) CreateSession(ctx context.Context, n store.Session, most int) error {
	const op = "sqlite.CreateSession"
	// A copy, because the write may outlast a caller whose context ends.
	n.Metadata = bytes.Clone(n.Metadata)
	return change(ctx, s, op, func(ctx context.Context, q *session) error {
		var tenant bool
		if err := q.one(ctx, "SELECT EXISTS (SELECT 1 FROM tenants WHERE id = ?)", []any{n.Tenant}, &tenant); err != nil {
			return err
		}
		if !tenant {
			return carrel.FailNotFound(op)
		}
		if err := openSession(ctx, q, store.ScopeInstance{ID: carrel.ScopeID(n.ID), Tenant: n.Tenant, OpenedAt: n.CreatedAt}); err != nil {
			return err
		}
		var open int
		if err := q.one(ctx, countSessions, []any{n.Tenant}, &open); err != nil {
			return err
		}
		if open >= most {
			return carrel.FailLimit(op, abi.QuotaExceeded, "sessions",
				fmt.Sprintf("this tenant has its %d open sessions; close one, or let the operator raise the limit", most))
		}
		_, err := q.exec(ctx, `INSERT INTO sessions (id, tenant, key_id, subject, idle_ttl, max_ttl, keep_closed, metadata,
			created_at, last_used_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, nullif(?8, x''), ?9, ?9)`,
			n.ID, n.Tenant, n.Owner.Key, n.Owner.Subject, n.IdleTTL.Microseconds(), n.MaxTTL.Microseconds(),
			n.KeepClosed().Microseconds(), n.Metadata, n.CreatedAt.UnixMicro())
		return err
	})
}

// OpenSession implements store.Sessions.
func (s *Store) OpenSession(ctx context.Context, si store.ScopeInstance) error {
	return change(ctx, s, "sqlite.OpenSession", func(ctx context.Context, q *session) error {
		if si.Node == "" {
			return fmt.Errorf("session %s has no node: nobody would close it", si.ID)
		}
		return openSession(ctx, q, si)
	})
}

// openSession opens a session's scope instance under an id that nothing has.
func openSession(ctx context.Context, q *session, si store.ScopeInstance) error {
	si.Scope, si.Plugin = carrel.ScopeSession, ""
	var taken bool
	if err := q.one(ctx, "SELECT EXISTS (SELECT 1 FROM sessions WHERE id = ?)", []any{si.ID}, &taken); err != nil {
		return err
	}
	if !taken {
		created, err := openScope(ctx, q, si)
		if err != nil || created {
			return err
		}
	}
	return fmt.Errorf("session %s: %w", si.ID, store.ErrExists)
}

// Session implements store.Sessions.
func (s *Store) Session(ctx context.Context, t carrel.TenantID, id carrel.SessionID, by *store.Toucher) (store.Session, error) {
	const op = "sqlite.Session"
	return snapshot(ctx, s, op, func(ctx context.Context, q *session) (store.Session, error) {
		found, err := first(ctx, q, scanSession, selectSession+"WHERE id = ? AND tenant = ?", id, t)
		if err == nil && by != nil && found.Owner != *by {
			err = sql.ErrNoRows
		}
		if err != nil || found.ClosedAt.IsZero() {
			return found, missing(op, err)
		}
		si := store.ScopeInstance{ID: carrel.ScopeID(id), Tenant: found.Tenant, Scope: carrel.ScopeSession}
		scan := scanEvictions(endOfScope(si, found.Reason, found.ClosedAt))
		found.Evicted, err = list(ctx, q, scan, keptReport, id, 1)
		return found, err
	})
}

// UseSession implements store.Sessions.
func (s *Store) UseSession(ctx context.Context, t carrel.TenantID, id carrel.SessionID, at time.Time) error {
	const op = "sqlite.UseSession"
	return change(ctx, s, op, func(ctx context.Context, q *session) error {
		var closed bool
		err := q.one(ctx, "SELECT closed_at IS NOT NULL FROM sessions WHERE id = ? AND tenant = ?", []any{id, t}, &closed)
		switch {
		case err != nil:
			return missing(op, err)
		case closed:
			return carrel.Fail(op, abi.SessionClosed, "the session has closed; open another")
		}
		_, err = q.exec(ctx, "UPDATE sessions SET last_used_at = ?1 WHERE id = ?2 AND last_used_at < ?1", at.UnixMicro(), id)
		return err
	})
}

// endSession closes a session, and reports whether it was open.
func endSession(ctx context.Context, q *session, id carrel.ScopeID, why carrel.EvictionReason, at time.Time) (bool, error) {
	n, err := q.exec(ctx, "UPDATE sessions SET closed_at = ?, reason = ? WHERE id = ? AND closed_at IS NULL", at.UnixMicro(), why, id)
	return n > 0, err
}

// closeSession closes the session, if one is open, whose scope instance has
// just been closed with these evictions.
func closeSession(ctx context.Context, q *session, id carrel.ScopeID, why carrel.EvictionReason, at time.Time, evictions []carrel.Eviction) error {
	open, err := endSession(ctx, q, id, why, at)
	if err != nil || !open {
		return err
	}
	for i, e := range evictions {
		_, err := q.exec(ctx, `INSERT INTO session_evictions
			(session, n, namespace, kind, owner, memory, handle, plugin, messages, bytes) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			id, i, e.Key.Namespace, e.Key.Kind, e.Key.Owner, e.Key.ID, e.Handle[:], e.Plugin, e.Messages, e.Bytes)
		if err != nil {
			return err
		}
	}
	return nil
}

// ListSessions implements store.Sessions.
func (s *Store) ListSessions(ctx context.Context, t carrel.TenantID, by *store.Toucher, after carrel.SessionID, limit int) ([]store.Session, error) {
	return read(ctx, s, "sqlite.ListSessions", func(ctx context.Context, q *session) ([]store.Session, error) {
		if by == nil {
			return list(ctx, q, scanSession, listSessions, t, after, atMost(limit))
		}
		return list(ctx, q, scanSession, listOwnSessions, t, by.Key, by.Subject, after, atMost(limit))
	})
}

// ExpiredSessions implements store.Sessions.
func (s *Store) ExpiredSessions(ctx context.Context, now time.Time, limit int) ([]store.Session, error) {
	return read(ctx, s, "sqlite.ExpiredSessions", func(ctx context.Context, q *session) ([]store.Session, error) {
		return list(ctx, q, scanSession, expiredSessions, now.UnixMicro(), atMost(limit))
	})
}

// ForgetSessions implements store.Sessions.
func (s *Store) ForgetSessions(ctx context.Context, now time.Time) (int, error) {
	return write(ctx, s, "sqlite.ForgetSessions", func(ctx context.Context, q *session) (int, error) {
		n, err := q.exec(ctx, forgetSessions, now.UnixMicro())
		if err == nil && n > 0 {
			err = markDeleted(ctx, q)
		}
		return int(n), err
	})
}
