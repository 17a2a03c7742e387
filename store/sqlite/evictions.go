package sqlite

import (
	"context"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/store"
)

// endings is what a store's writer knows of how histories end.
type endings struct {
	records   int   // that are kept of one tenant
	histories int   // that are deleted in the transaction that ends them, and
	messages  int64 // their messages
	began     bool  // a closing began: the emptier has something to do
}

// room is what one change may delete yet.
type room struct {
	histories int
	messages  int64
}

func (e endings) room() room { return room{e.histories, e.messages} }

// take reports whether there is room to delete histories in the change that
// ends them, and takes it if so.
func (r *room) take(all []store.History) bool {
	left := room{r.histories - len(all), r.messages}
	for _, h := range all {
		left.messages -= h.Messages
	}
	if left.histories < 0 || left.messages < 0 {
		return false
	}
	*r = left
	return true
}

// endOfScope is what the evictions of a scope that closes have in common.
func endOfScope(si store.ScopeInstance, why carrel.EvictionReason, at time.Time) carrel.Eviction {
	return carrel.Eviction{
		Key: carrel.MemoryKey{Tenant: si.Tenant}, Reason: why, Scope: si.Scope, Instance: si.ID, At: stored(at),
	}
}

// eviction is like with what it says of one history.
func eviction(like carrel.Eviction, h store.History) carrel.Eviction {
	like.Handle, like.Plugin, like.Key, like.Messages, like.Bytes = h.Handle, h.Plugin, h.Key, h.Messages, h.Bytes
	return like
}

// evictionsOf is eviction for each of many.
func evictionsOf(like carrel.Eviction, all []store.History) []carrel.Eviction {
	var evictions []carrel.Eviction
	for _, h := range all {
		evictions = append(evictions, eviction(like, h))
	}
	return evictions
}

// evict ends a history without a scope, and reports it.
func evict(ctx context.Context, q *session, h store.History, why carrel.EvictionReason, at time.Time) (carrel.Eviction, error) {
	room := q.ends.room()
	evictions, err := evictAll(ctx, q, &room, []store.History{h}, why, at)
	if err != nil {
		return carrel.Eviction{}, err
	}
	return evictions[0], nil
}

// evictAll is evict for one or more histories of one tenant. What there is no
// room for is only taken out of sight.
func evictAll(ctx context.Context, q *session, r *room, all []store.History, why carrel.EvictionReason, at time.Time) ([]carrel.Eviction, error) {
	like := carrel.Eviction{Key: carrel.MemoryKey{Tenant: all[0].Key.Tenant}, Reason: why, At: stored(at)}
	evictions := evictionsOf(like, all)
	if !r.take(all) {
		return evictions, beginEnding(ctx, q, like, all)
	}
	return evictions, removeAll(ctx, q, all, evictions)
}

// removeAll deletes histories of one tenant, and keeps records of their
// evictions.
func removeAll(ctx context.Context, q *session, all []store.History, evictions []carrel.Eviction) error {
	for _, h := range all {
		if err := remove(ctx, q, h); err != nil {
			return err
		}
	}
	return record(ctx, q, evictions)
}

const (
	recordColumns = "INSERT INTO evictions (tenant, n, handle, plugin, memory, scope, instance, reason, messages, bytes, at) "
	insertRecord  = recordColumns + "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
	nextRecord    = `INSERT INTO eviction_numbers (tenant, last) VALUES (?, ?)
		ON CONFLICT (tenant) DO UPDATE SET last = last + excluded.last RETURNING last`
	// Numbers have no gaps between the newest and the oldest that is wanted.
	dropRecords = "DELETE FROM evictions WHERE tenant = ? AND n <= ?"
)

// record keeps what remains of histories of one tenant that end.
func record(ctx context.Context, q *session, all []carrel.Eviction) error {
	if len(all) == 0 {
		return nil
	}
	if err := markDeleted(ctx, q); err != nil {
		return err
	}
	t, last := all[0].Key.Tenant, int64(0)
	if err := q.one(ctx, nextRecord, []any{t, len(all)}, &last); err != nil {
		return err
	}
	n := last - int64(len(all))
	for _, e := range all {
		n++
		memory := e.Key.ID
		if e.Reason == carrel.ReasonErased {
			memory = ""
		}
		_, err := q.exec(ctx, insertRecord, t, n, e.Handle[:], e.Plugin, memory, e.Scope, e.Instance, e.Reason,
			e.Messages, e.Bytes, e.At.UnixMicro())
		if err != nil {
			return err
		}
	}
	return dropOldest(ctx, q, t, last)
}

// dropOldest keeps the newest records of a tenant, the last of which is n.
func dropOldest(ctx context.Context, q *session, t carrel.TenantID, n int64) error {
	first := n - int64(q.ends.records)
	if first <= 0 {
		return nil
	}
	_, err := q.exec(ctx, dropRecords, t, first)
	return err
}

// recordsOfClosing records what a step is about to delete, see endedBetween.
const recordsOfClosing = recordColumns + `SELECT c.tenant, row_number() OVER (ORDER BY h.generation)
	+ coalesce((SELECT last FROM eviction_numbers WHERE tenant = c.tenant), 0), h.handle, h.plugin,
	CASE c.reason WHEN 'erased' THEN '' ELSE h.memory END, c.kind, CASE c.kind WHEN '' THEN '' ELSE c.scope END,
	c.reason, h.messages, h.bytes, c.at ` + endedBetween

// recordEnded is record for the histories of a step.
func recordEnded(ctx context.Context, q *session, n, emptied, upto int64) error {
	recorded, err := q.exec(ctx, recordsOfClosing, n, emptied, upto)
	if err != nil || recorded == 0 {
		return err
	}
	var t carrel.TenantID
	if err := q.one(ctx, "SELECT tenant FROM closings WHERE n = ?", []any{n}, &t); err != nil {
		return err
	}
	var last int64
	if err := q.one(ctx, nextRecord, []any{t, recorded}, &last); err != nil {
		return err
	}
	if err := markDeleted(ctx, q); err != nil {
		return err
	}
	return dropOldest(ctx, q, t, last)
}

const listEvictions = `SELECT n, handle, plugin, memory, scope, instance, reason, messages, bytes, at FROM evictions
	WHERE tenant = ? AND n > ? AND at >= ? ORDER BY n LIMIT ?`

// ListEvictions implements store.Evictions.
func (s *Store) ListEvictions(ctx context.Context, f store.EvictionFilter) ([]store.EvictionRecord, error) {
	return read(ctx, s, "sqlite.ListEvictions", func(ctx context.Context, q *session) ([]store.EvictionRecord, error) {
		return list(ctx, q, scanRecord, listEvictions, f.Tenant, f.After, expiry(f.Since), atMost(f.Limit))
	})
}

func scanRecord(row scanner) (r store.EvictionRecord, err error) {
	err = row.Scan(&r.N, fixed(r.Handle[:]), &r.Plugin, &r.MemoryID, &r.Scope, &r.Instance, &r.Reason,
		&r.Messages, &r.Bytes, instant{&r.At})
	return r, err
}

const forgetEvictions = `DELETE FROM evictions WHERE (tenant, n) IN
	(SELECT tenant, n FROM evictions WHERE at < ? ORDER BY at LIMIT ?)`

// ForgetEvictions implements store.Evictions.
func (s *Store) ForgetEvictions(ctx context.Context, before time.Time, limit int) (int, error) {
	return write(ctx, s, "sqlite.ForgetEvictions", func(ctx context.Context, q *session) (int, error) {
		n, err := q.exec(ctx, forgetEvictions, expiry(before), atMost(limit))
		if err == nil && n > 0 {
			err = markDeleted(ctx, q) // it had a memory id
		}
		return int(n), err
	})
}
