package sqlite

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/store"
)

const (
	historyColumns = `h.generation, h.tenant, h.namespace, h.kind, h.owner, h.memory, h.handle, h.plugin,
		h.last_turn, h.messages, h.bytes, h.created_at, h.last_used_at, h.application `
	selectHistory = "SELECT " + historyColumns + "FROM live h "
	// CROSS keeps SQLite from walking all of a tenant's histories instead of
	// those that somebody touched.
	selectTouched = "SELECT " + historyColumns + "FROM touchers t CROSS JOIN live h ON h.generation = t.generation "
)

func scanHistory(row scanner) (h store.History, err error) {
	err = row.Scan(&h.Generation, &h.Key.Tenant, &h.Key.Namespace, &h.Key.Kind, &h.Key.Owner, &h.Key.ID,
		fixed(h.Handle[:]), &h.Plugin, &h.LastTurn, &h.Messages, &h.Bytes, instant{&h.CreatedAt}, instant{&h.LastUsedAt}, &h.Application)
	return h, err
}

const whereKey = "WHERE h.tenant = ? AND h.namespace = ? AND h.kind = ? AND h.owner = ? AND h.memory = ?"

func keyArgs(k carrel.MemoryKey) []any {
	return []any{k.Tenant, k.Namespace, k.Kind, k.Owner, k.ID}
}

// unexpired ends a condition on h; its value is expiry's.
const unexpired = " AND NOT (h.application = 1 AND h.last_used_at <= ?)"

// expiry returns a cutoff as it is bound: the zero one comes before all times.
func expiry(c store.Cutoff) int64 {
	if c.IsZero() {
		return math.MinInt64
	}
	return c.UnixMicro()
}

// state is what a write needs of a history. The zero state is that of none.
type state struct {
	generation  int64
	handle      carrel.Handle
	nextSeq     int64
	lastTurn    int64
	messages    int64 // the system message counts
	bytes       int64
	system      int64 // bytes of the system message; 0 = there is none
	application bool
	lastUsedAt  int64
}

// turnMessages returns how many messages are in turns.
func (now state) turnMessages() int64 { return now.messages - min(now.system, 1) }

func (now state) expired(c store.Cutoff) bool {
	return now.application && now.lastUsedAt <= expiry(c)
}

// current returns sql.ErrNoRows if there is no history. One that has expired
// is there.
func current(ctx context.Context, q *session, k carrel.MemoryKey) (now state, err error) {
	err = q.one(ctx, `SELECT h.generation, h.handle, h.next_seq, h.last_turn, h.messages, h.bytes,
		coalesce(length(h.system), 0), h.application, h.last_used_at FROM live h `+whereKey, keyArgs(k),
		&now.generation, fixed(now.handle[:]), &now.nextSeq, &now.lastTurn, &now.messages, &now.bytes,
		&now.system, &now.application, &now.lastUsedAt)
	return now, err
}

// create makes an empty history and returns its generation.
func create(ctx context.Context, q *session, t store.Touch) (generation int64, err error) {
	if err := replace(ctx, q, t.Key); err != nil {
		return 0, err
	}
	err = q.one(ctx, "UPDATE meta SET last_generation = last_generation + 1 RETURNING last_generation", nil, &generation)
	if err != nil {
		return 0, err
	}
	_, err = q.exec(ctx, `INSERT INTO histories (generation, tenant, namespace, kind, owner, memory, handle, plugin,
		system_at, next_seq, last_turn, messages, bytes, created_at, last_used_at, application)
		VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 0, 1, 0, 0, 0, ?9, ?9, ?10)`,
		generation, t.Key.Tenant, t.Key.Namespace, t.Key.Kind, t.Key.Owner, t.Key.ID, t.Handle[:], t.Plugin, t.At.UnixMicro(),
		t.Scope.Scope == carrel.ScopeApplication)
	return generation, err
}

// remove deletes a history with its messages and touchers. Its touches in
// application scopes go too, or an application that lives for years would
// gather them; those in shorter scopes stay, so that a history made anew
// under the same key dies with them.
func remove(ctx context.Context, q *session, h store.History) error {
	if err := q.weigh(1+h.Messages, h.Bytes); err != nil {
		return err
	}
	if h.Application { // else there are none to look for
		_, err := q.exec(ctx, `DELETE FROM touches WHERE handle = ?
			AND scope IN (SELECT id FROM scopes WHERE tenant = ? AND kind = ?)`, h.Handle[:], h.Key.Tenant, carrel.ScopeApplication)
		if err != nil {
			return err
		}
	}
	_, err := q.exec(ctx, "DELETE FROM histories WHERE generation = ?", h.Generation)
	return err
}

// History implements store.Histories.
func (s *Store) History(ctx context.Context, t carrel.TenantID, handle carrel.Handle, by *store.Toucher, c store.Cutoff) (store.History, error) {
	const op = "sqlite.History"
	return read(ctx, s, op, func(ctx context.Context, q *session) (h store.History, err error) {
		if by == nil {
			h, err = first(ctx, q, scanHistory, selectHistory+"WHERE h.tenant = ? AND h.handle = ?"+unexpired, t, handle[:], expiry(c))
		} else {
			h, err = first(ctx, q, scanHistory, selectHistory+`JOIN touchers t ON t.generation = h.generation
				WHERE h.tenant = ? AND h.handle = ? AND t.key_id = ? AND t.subject = ?`+unexpired,
				t, handle[:], by.Key, by.Subject, expiry(c))
		}
		return h, missing(op, err)
	})
}

// whereFiltered leaves LIKE out, which knows wildcards and no bytes.
const whereFiltered = `WHERE h.tenant = ?1 AND h.generation > ?2 AND ?3 IN ('', h.plugin)
	AND substr(CAST(h.memory AS BLOB), 1, length(CAST(?4 AS BLOB))) = CAST(?4 AS BLOB)
	AND NOT (h.application = 1 AND h.last_used_at <= ?6) `

const (
	listHistories = selectHistory + whereFiltered + "ORDER BY h.generation LIMIT ?5"
	listNamespace = selectHistory + whereFiltered + "AND h.namespace = ?7 ORDER BY h.generation LIMIT ?5"
	listTouched   = selectTouched + whereFiltered + `AND ?7 IN ('', h.namespace)
		AND t.key_id = ?8 AND t.subject = ?9 AND t.generation > ?2 ORDER BY t.generation LIMIT ?5`
)

// ListHistories implements store.Histories.
func (s *Store) ListHistories(ctx context.Context, f store.HistoryFilter) ([]store.History, error) {
	const op = "sqlite.ListHistories"
	args := []any{f.Tenant, f.After, f.Plugin, f.Prefix, atMost(f.Limit), expiry(f.Cutoff)}
	of := func(ctx context.Context, q *session, n carrel.Namespace) ([]store.History, error) {
		switch {
		case f.TouchedBy != nil:
			return list(ctx, q, scanHistory, listTouched, slices.Concat(args, []any{n, f.TouchedBy.Key, f.TouchedBy.Subject})...)
		case n != "":
			return list(ctx, q, scanHistory, listNamespace, slices.Concat(args, []any{n})...)
		default:
			return list(ctx, q, scanHistory, listHistories, args...)
		}
	}
	if len(f.Namespaces) == 0 {
		return read(ctx, s, op, func(ctx context.Context, q *session) ([]store.History, error) { return of(ctx, q, "") })
	}
	// Each has its own part of the index; none has more than Limit in the
	// answer.
	return snapshot(ctx, s, op, func(ctx context.Context, q *session) (all []store.History, err error) {
		for _, n := range slices.Compact(slices.Sorted(slices.Values(f.Namespaces))) {
			part, err := of(ctx, q, n)
			if err != nil {
				return nil, err
			}
			all = append(all, part...)
		}
		slices.SortFunc(all, func(a, b store.History) int { return cmp.Compare(a.Generation, b.Generation) })
		return all[:min(len(all), atMost(f.Limit))], nil
	})
}

// DeleteHistory implements store.Histories.
func (s *Store) DeleteHistory(ctx context.Context, k carrel.MemoryKey, d store.Deletion) (carrel.Eviction, error) {
	const op = "sqlite.DeleteHistory"
	return write(ctx, s, op, func(ctx context.Context, q *session) (carrel.Eviction, error) {
		h, err := first(ctx, q, scanHistory, selectHistory+whereKey+unexpired, append(keyArgs(k), expiry(d.Cutoff))...)
		if err != nil {
			return carrel.Eviction{}, missing(op, err)
		}
		return evict(ctx, q, h, d.Reason, d.At)
	})
}

const expiredHistories = selectHistory + `WHERE h.application = 1 AND h.last_used_at <= ?
	ORDER BY h.last_used_at, h.generation LIMIT ?`

// ExpireHistories implements store.Histories.
func (s *Store) ExpireHistories(ctx context.Context, c store.Cutoff, at time.Time, limit int) ([]carrel.Eviction, error) {
	return write(ctx, s, "sqlite.ExpireHistories", func(ctx context.Context, q *session) ([]carrel.Eviction, error) {
		expired, err := list(ctx, q, scanHistory, expiredHistories, expiry(c), atMost(limit))
		if err != nil || len(expired) == 0 {
			return nil, err
		}
		room := q.ends.room()
		evictions := make(map[int64]carrel.Eviction, len(expired)) // by generation
		for len(evictions) < len(expired) {
			var of carrel.TenantID
			var all []store.History
			for _, h := range expired {
				if _, ended := evictions[h.Generation]; !ended && (of == "" || of == h.Key.Tenant) {
					of, all = h.Key.Tenant, append(all, h)
				}
			}
			ended, err := evictAll(ctx, q, &room, all, carrel.ReasonExpired, at)
			if err != nil {
				return nil, err
			}
			for i, h := range all {
				evictions[h.Generation] = ended[i]
			}
		}
		sorted := make([]carrel.Eviction, len(expired))
		for i, h := range expired {
			sorted[i] = evictions[h.Generation]
		}
		return sorted, nil
	})
}
