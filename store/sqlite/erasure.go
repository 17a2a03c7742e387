package sqlite

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/store"
)

// That a subject is not empty is written out in every query of subjects: it is
// what lets SQLite use the indexes, which hold no empty ones.
const (
	// The first LIMIT of them are found without looking at others of the tenant.
	subjectHistories = "SELECT " + historyColumns + `FROM touchers t CROSS JOIN live h ON h.generation = t.generation
		WHERE h.tenant = ?1 AND t.subject = ?2 AND t.subject <> '' GROUP BY t.generation ORDER BY t.generation LIMIT ?3`
	// A session's owner touches nearly all that is touched in it, so that this
	// one, which looks at all of that, has next to nothing left to find.
	subjectSessionHistories = "SELECT " + historyColumns + `FROM sessions s CROSS JOIN touches t ON t.scope = s.id
		CROSS JOIN live h ON h.handle = t.handle AND h.tenant = s.tenant
		WHERE s.tenant = ?1 AND s.subject = ?2 AND s.subject <> '' AND s.closed_at IS NULL
		AND NOT EXISTS (SELECT 1 FROM touchers o WHERE o.generation = h.generation AND o.subject = ?2)
		GROUP BY h.generation ORDER BY h.generation LIMIT ?3`
	subjectSessions     = "SELECT id, closed_at IS NULL FROM sessions WHERE tenant = ? AND subject = ? AND subject <> '' ORDER BY id LIMIT ?"
	eraseSubjectAnswers = `DELETE FROM claims WHERE id IN
		(SELECT id FROM claims WHERE tenant = ? AND subject = ? AND subject <> '' ORDER BY id LIMIT ?)`
	eraseReport = `DELETE FROM session_evictions WHERE (session, n) IN
		(SELECT session, n FROM session_evictions WHERE session = ? ORDER BY n LIMIT ?)`
)

// EraseSubject implements store.Evictions. What a scope that had closed before
// has left to delete is deleted in the background.
func (s *Store) EraseSubject(ctx context.Context, t carrel.TenantID, subject carrel.Subject, at time.Time, limit int) (store.Erasure, error) {
	limit = max(limit, 1)
	return write(ctx, s, "sqlite.EraseSubject", func(ctx context.Context, q *session) (done store.Erasure, err error) {
		var ended []store.History
		for _, query := range []string{subjectHistories, subjectSessionHistories} {
			found, err := list(ctx, q, scanHistory, query, t, subject, limit-len(ended))
			if err != nil {
				return done, err
			}
			ended = append(ended, found...)
			if len(ended) == limit {
				break
			}
		}
		if len(ended) > 0 {
			slices.SortFunc(ended, func(a, b store.History) int { return cmp.Compare(a.Generation, b.Generation) })
			room := q.ends.room()
			if done.Evicted, err = evictAll(ctx, q, &room, ended, carrel.ReasonErased, at); err != nil {
				return done, err
			}
		}
		// A session goes only after all that was touched in it has.
		if done.More = len(ended) == limit; done.More {
			return done, nil
		}
		more, err := eraseSessions(ctx, q, t, subject, at, limit)
		if err != nil {
			return done, err
		}
		answers, err := q.exec(ctx, eraseSubjectAnswers, t, subject, limit)
		if err == nil && answers > 0 {
			if err = q.weigh(answers, 0); err == nil {
				err = markDeleted(ctx, q)
			}
		}
		done.More = more || answers == int64(limit)
		return done, err
	})
}

// eraseSessions erases up to limit of a subject's sessions, and reports whether
// there may be more. Nothing that was touched in the open ones is left.
func eraseSessions(ctx context.Context, q *session, t carrel.TenantID, subject carrel.Subject, at time.Time, limit int) (more bool, err error) {
	type row struct {
		id   carrel.ScopeID
		open bool
	}
	sessions, err := list(ctx, q, func(row_ scanner) (r row, err error) {
		err = row_.Scan(&r.id, &r.open)
		return r, err
	}, subjectSessions, t, subject, limit)
	if err != nil || len(sessions) == 0 {
		return false, err
	}
	rows := int64(stepRows) // that this change may delete yet, beside the sessions
	for _, s := range sessions {
		var deleted int64
		if s.open {
			deleted, err = dropScope(ctx, q, t, s.id, at, rows)
		} else if deleted, err = q.exec(ctx, eraseReport, s.id, rows); err == nil && deleted == rows {
			return true, markDeleted(ctx, q)
		}
		if err != nil {
			return false, err
		}
		rows -= deleted
		if err := q.weigh(1+deleted, 0); err != nil {
			return false, err
		}
		if _, err := q.exec(ctx, "DELETE FROM sessions WHERE id = ?", s.id); err != nil {
			return false, err
		}
	}
	return len(sessions) == limit, markDeleted(ctx, q)
}

// dropScope closes a scope whose histories have ended. If more than so many
// keys were touched in it, the emptier deletes those rows; else it does, and
// returns how many there were.
func dropScope(ctx context.Context, q *session, t carrel.TenantID, id carrel.ScopeID, at time.Time, most int64) (touches int64, err error) {
	err = q.one(ctx, "SELECT count(*) FROM (SELECT 1 FROM touches WHERE scope = ? LIMIT ?)", []any{id, most + 1}, &touches)
	if err != nil {
		return 0, err
	}
	if touches <= most {
		_, err = q.exec(ctx, "DELETE FROM scopes WHERE id = ?", id)
		return touches, err
	}
	if _, err := q.exec(ctx, "UPDATE scopes SET kind = ? WHERE id = ?", kindClosed, id); err != nil {
		return 0, err
	}
	// No generation is 0: it ends nothing.
	_, err = q.exec(ctx, `INSERT INTO closings (scope, tenant, upto, emptied, session, kind, reason, at)
		VALUES (?, ?, 0, 0, 0, '', ?, ?)`, id, t, carrel.ReasonErased, at.UnixMicro())
	q.ends.began = true
	return 0, err
}
