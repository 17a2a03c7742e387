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
	subjectHistories = "SELECT " + historyColumns + `FROM touchers t CROSS JOIN live h ON h.generation = t.generation
		WHERE h.tenant = ? AND t.subject = ? AND t.subject <> ''`
	subjectSessionHistories = "SELECT " + historyColumns + `FROM sessions s CROSS JOIN touches t ON t.scope = s.id
		CROSS JOIN live h ON h.handle = t.handle AND h.tenant = s.tenant
		WHERE s.tenant = ? AND s.subject = ? AND s.subject <> '' AND s.closed_at IS NULL`
	// The scope of a closed session has histories that are to be deleted yet.
	closeSubjectScopes = `DELETE FROM scopes WHERE id IN
		(SELECT id FROM sessions WHERE tenant = ? AND subject = ? AND subject <> '' AND closed_at IS NULL)`
	eraseSubjectSessions = "DELETE FROM sessions WHERE tenant = ? AND subject = ? AND subject <> ''"
	eraseSubjectClaims   = "DELETE FROM claims WHERE tenant = ? AND subject = ? AND subject <> ''"
)

// EraseSubject implements store.Evictions. Neither the evictions nor their
// records name the sessions, of which nothing is to remain. What a scope that
// had closed before has left to delete is deleted in the background.
func (s *Store) EraseSubject(ctx context.Context, t carrel.TenantID, subject carrel.Subject, at time.Time) ([]carrel.Eviction, error) {
	return write(ctx, s, "sqlite.EraseSubject", func(ctx context.Context, q *session) ([]carrel.Eviction, error) {
		var ended []store.History
		for _, query := range []string{subjectHistories, subjectSessionHistories} {
			found, err := list(ctx, q, scanHistory, query, t, subject)
			if err != nil {
				return nil, err
			}
			ended = append(ended, found...)
		}
		slices.SortFunc(ended, func(a, b store.History) int { return cmp.Compare(a.Generation, b.Generation) })
		ended = slices.CompactFunc(ended, func(a, b store.History) bool { return a.Generation == b.Generation })
		var evictions []carrel.Eviction
		if len(ended) > 0 {
			var err error
			if evictions, err = evictAll(ctx, q, ended, carrel.ReasonErased, at); err != nil {
				return nil, err
			}
		}
		for _, query := range []string{closeSubjectScopes, eraseSubjectSessions, eraseSubjectClaims} {
			n, err := q.exec(ctx, query, t, subject)
			if err == nil && n > 0 {
				err = markDeleted(ctx, q)
			}
			if err != nil {
				return nil, err
			}
		}
		return evictions, nil
	})
}
