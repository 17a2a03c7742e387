package sqlite

import (
	"context"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/store"
)

const (
	countScopes    = "SELECT kind, count(*) FROM scopes WHERE kind <> '" + kindClosed + "' GROUP BY kind"
	countHistories = "SELECT count(*) FROM live h"
	// The condition is that of an index, word for word.
	countLeaking = "SELECT count(*) FROM live h WHERE h.application = 1 AND h.kind IN ('request', 'session')"
	// A closing leaves its own touches, and those of what it ended in
	// application scopes, until it is emptied. There are hardly ever closings.
	countTouches = `SELECT (SELECT count(*) FROM touches)
		- (SELECT count(*) FROM closings c CROSS JOIN touches t ON t.scope = c.scope)
		- (SELECT count(*) FROM (SELECT DISTINCT o.scope, o.handle ` + touchedIn + `
			CROSS JOIN touches o ON o.handle = t.handle
			CROSS JOIN scopes s ON s.id = o.scope AND s.tenant = c.tenant AND s.kind = 'application'))`
)

// Counts implements store.Upkeep.
func (s *Store) Counts(ctx context.Context) (store.Counts, error) {
	type kind struct {
		scope carrel.Scope
		n     int64
	}
	return snapshot(ctx, s, "sqlite.Counts", func(ctx context.Context, q *session) (store.Counts, error) {
		counts := store.Counts{Scopes: make(map[carrel.Scope]int64)}
		kinds, err := list(ctx, q, func(row scanner) (k kind, err error) {
			err = row.Scan(&k.scope, &k.n)
			return k, err
		}, countScopes)
		for _, k := range kinds {
			counts.Scopes[k.scope] = k.n
		}
		for query, n := range map[string]*int64{
			countHistories: &counts.Histories,
			countTouches:   &counts.Touches,
			countLeaking:   &counts.Leaking,
		} {
			if err == nil {
				err = q.one(ctx, query, nil, n)
			}
		}
		return counts, err
	})
}
