package sqlite

import (
	"context"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/store"
)

const (
	historyColumns = `h.generation, h.tenant, h.namespace, h.kind, h.owner, h.memory, h.handle, h.plugin,
		h.last_turn, h.messages, h.bytes, h.created_at, h.last_used_at `
	selectHistory = "SELECT " + historyColumns + "FROM live h "
	// CROSS keeps SQLite from walking all of a tenant's histories instead of
	// those that somebody touched.
	selectTouched = "SELECT " + historyColumns + "FROM touchers t CROSS JOIN live h ON h.generation = t.generation "
)

func scanHistory(row scanner) (h store.History, err error) {
	err = row.Scan(&h.Generation, &h.Key.Tenant, &h.Key.Namespace, &h.Key.Kind, &h.Key.Owner, &h.Key.ID,
		fixed(h.Handle[:]), &h.Plugin, &h.LastTurn, &h.Messages, &h.Bytes, instant{&h.CreatedAt}, instant{&h.LastUsedAt})
	return h, err
}

const whereKey = "WHERE h.tenant = ? AND h.namespace = ? AND h.kind = ? AND h.owner = ? AND h.memory = ?"

func keyArgs(k carrel.MemoryKey) []any {
	return []any{k.Tenant, k.Namespace, k.Kind, k.Owner, k.ID}
}

// state is what a write needs of a history.
type state struct {
	generation int64
	handle     carrel.Handle
	nextSeq    int64
	turns      int64
}

// current returns sql.ErrNoRows if there is no history.
func current(ctx context.Context, q *session, k carrel.MemoryKey) (now state, err error) {
	err = q.one(ctx, "SELECT h.generation, h.handle, h.next_seq, h.last_turn FROM live h "+whereKey, keyArgs(k),
		&now.generation, fixed(now.handle[:]), &now.nextSeq, &now.turns)
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
		system_at, next_seq, last_turn, messages, bytes, created_at, last_used_at)
		VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 0, 1, 0, 0, 0, ?9, ?9)`,
		generation, t.Key.Tenant, t.Key.Namespace, t.Key.Kind, t.Key.Owner, t.Key.ID, t.Handle[:], t.Plugin, t.At.UnixMicro())
	return generation, err
}

// evict deletes a history and reports it.
func evict(ctx context.Context, q *session, h store.History, why carrel.EvictionReason, at time.Time) (carrel.Eviction, error) {
	e := carrel.Eviction{
		Handle:   h.Handle,
		Plugin:   h.Plugin,
		Key:      h.Key,
		Reason:   why,
		Messages: h.Messages,
		Bytes:    h.Bytes,
		At:       stored(at),
	}
	return e, remove(ctx, q, h)
}

// remove deletes a history with its messages and touchers. Its touches in
// application scopes go too, or an application that lives for years would
// gather them; those in shorter scopes stay, so that a history made anew
// under the same key dies with them.
func remove(ctx context.Context, q *session, h store.History) error {
	_, err := q.exec(ctx, `DELETE FROM touches WHERE handle = ?
		AND scope IN (SELECT id FROM scopes WHERE tenant = ? AND kind = ?)`, h.Handle[:], h.Key.Tenant, carrel.ScopeApplication)
	if err != nil {
		return err
	}
	_, err = q.exec(ctx, "DELETE FROM histories WHERE generation = ?", h.Generation)
	return err
}

// History implements store.Histories.
func (s *Store) History(ctx context.Context, t carrel.TenantID, handle carrel.Handle, by *store.Toucher, _ store.Cutoff) (store.History, error) {
	const op = "sqlite.History"
	return read(ctx, s, op, func(ctx context.Context, q *session) (h store.History, err error) {
		if by == nil {
			h, err = first(ctx, q, scanHistory, selectHistory+"WHERE h.tenant = ? AND h.handle = ?", t, handle[:])
		} else {
			h, err = first(ctx, q, scanHistory, selectHistory+`JOIN touchers t ON t.generation = h.generation
				WHERE h.tenant = ? AND h.handle = ? AND t.key_id = ? AND t.subject = ?`, t, handle[:], by.Key, by.Subject)
		}
		return h, missing(op, err)
	})
}

// whereFiltered leaves LIKE out, which knows wildcards and no bytes.
const whereFiltered = `WHERE h.tenant = ? AND h.generation > ? AND ?3 IN ('', h.plugin)
	AND substr(CAST(h.memory AS BLOB), 1, length(CAST(?4 AS BLOB))) = CAST(?4 AS BLOB) `

const (
	listHistories = selectHistory + whereFiltered + "ORDER BY h.generation LIMIT ?5"
	listTouched   = selectTouched + whereFiltered +
		"AND t.key_id = ?6 AND t.subject = ?7 AND t.generation > ?2 ORDER BY t.generation LIMIT ?5"
)

// ListHistories implements store.Histories.
func (s *Store) ListHistories(ctx context.Context, f store.HistoryFilter) ([]store.History, error) {
	return read(ctx, s, "sqlite.ListHistories", func(ctx context.Context, q *session) ([]store.History, error) {
		if f.TouchedBy == nil {
			return list(ctx, q, scanHistory, listHistories,
				f.Tenant, f.After, f.Plugin, f.Prefix, atMost(f.Limit))
		}
		return list(ctx, q, scanHistory, listTouched,
			f.Tenant, f.After, f.Plugin, f.Prefix, atMost(f.Limit), f.TouchedBy.Key, f.TouchedBy.Subject)
	})
}

// DeleteHistory implements store.Histories.
func (s *Store) DeleteHistory(ctx context.Context, k carrel.MemoryKey, d store.Deletion) (carrel.Eviction, error) {
	const op = "sqlite.DeleteHistory"
	return write(ctx, s, op, func(ctx context.Context, q *session) (carrel.Eviction, error) {
		h, err := first(ctx, q, scanHistory, selectHistory+whereKey, keyArgs(k)...)
		if err != nil {
			return carrel.Eviction{}, missing(op, err)
		}
		return evict(ctx, q, h, d.Reason, d.At)
	})
}
