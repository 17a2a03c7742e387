package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/store"
)

// A scope in which much was touched closes in one small change, which takes
// its histories out of sight, and is emptied afterwards, a bounded step at a
// time, so that others' writes do not wait for it.
const (
	// atOnce bounds the histories, and atOnceMessages their messages, that are
	// deleted in the transaction that closes their scope.
	atOnce         = 256
	atOnceMessages = 2048
	// A step deletes at most so many histories, or so many rows of them.
	stepHistories = 256
	stepRows      = 1024
	// emptyAgain is how long after a step that failed, for want of space
	// perhaps, the next one is tried.
	emptyAgain = time.Second
)

// kindClosed is what a closing makes a scope's kind, so that nothing finds it.
const kindClosed = "closed"

// touchedIn picks the histories that ended, or are about to end, with a
// closing.
const touchedIn = `FROM closings c CROSS JOIN touches t ON t.scope = c.scope
	CROSS JOIN histories h ON h.tenant = c.tenant AND h.handle = t.handle AND h.generation <= c.upto `

// reportColumns are what an eviction says, but for what all of a scope share.
const (
	reportColumns    = "namespace, kind, owner, memory, handle, plugin, messages, bytes "
	reportOfHistory  = "h.namespace, h.kind, h.owner, h.memory, h.handle, h.plugin, h.messages, h.bytes "
	reportOfReplaced = "r.namespace, r.kind, r.owner, r.memory, r.handle, r.plugin, r.messages, r.bytes "
)

// closingReport picks what a closing ended and no earlier one had, while it is
// there: that of any scope, or if ?2 is 1 only that of a session.
const closingReport = "SELECT r.generation, " + reportOfReplaced + `FROM closings c CROSS JOIN replaced r ON r.closing = c.n
	WHERE c.scope = ?1 AND c.session >= ?2
	UNION ALL SELECT h.generation, ` + reportOfHistory + touchedIn + `WHERE c.scope = ?1 AND c.session >= ?2
	AND NOT EXISTS (SELECT 1 FROM closings e CROSS JOIN touches o ON o.scope = e.scope AND o.handle = h.handle
		WHERE e.n < c.n AND e.tenant = c.tenant AND e.upto >= h.generation)
	ORDER BY 1`

// scanEvictions returns a scanner for rows of a number and reportColumns;
// like has what they share.
func scanEvictions(like carrel.Eviction) func(scanner) (carrel.Eviction, error) {
	return func(row scanner) (carrel.Eviction, error) {
		e, n := like, int64(0)
		err := row.Scan(&n, &e.Key.Namespace, &e.Key.Kind, &e.Key.Owner, &e.Key.ID,
			fixed(e.Handle[:]), &e.Plugin, &e.Messages, &e.Bytes)
		return e, err
	}
}

// beginClosing ends at once what was touched in a scope and leaves the
// deleting to the emptier.
func beginClosing(ctx context.Context, q *session, si store.ScopeInstance, why carrel.EvictionReason, at time.Time) error {
	_, err := q.exec(ctx, "UPDATE plugins SET scope = NULL WHERE scope = ?", si.ID)
	if err != nil {
		return err
	}
	if _, err := q.exec(ctx, "UPDATE scopes SET kind = ? WHERE id = ?", kindClosed, si.ID); err != nil {
		return err
	}
	ofSession, err := endSession(ctx, q, si.ID, why, at)
	if err != nil {
		return err
	}
	_, err = q.exec(ctx, `INSERT INTO closings (scope, tenant, upto, emptied, session, kind, reason, at)
		SELECT ?, ?, last_generation, 0, ?, ?, ?, ? FROM meta`, si.ID, si.Tenant, ofSession, si.Scope, why, at.UnixMicro())
	if err != nil {
		return err
	}
	q.ends.began = true
	return markDeleted(ctx, q)
}

// beginEnding is beginClosing for histories that end without a scope: a scope
// that nobody ever had holds them.
func beginEnding(ctx context.Context, q *session, like carrel.Eviction, all []store.History) error {
	if err := q.weigh(int64(len(all)), 0); err != nil {
		return err
	}
	var n int64 // never used for anything else
	err := q.one(ctx, "UPDATE meta SET last_generation = last_generation + 1 RETURNING last_generation", nil, &n)
	if err != nil {
		return err
	}
	id := fmt.Sprintf("%s-%d", kindClosed, n)
	_, err = q.exec(ctx, `INSERT INTO scopes (id, tenant, kind, plugin, node, opened_at) VALUES (?, ?, ?, '', '', ?)`,
		id, like.Key.Tenant, kindClosed, like.At.UnixMicro())
	if err != nil {
		return err
	}
	oldest, newest := all[0].Generation, all[0].Generation
	for _, h := range all {
		oldest, newest = min(oldest, h.Generation), max(newest, h.Generation)
		if _, err := q.exec(ctx, "INSERT INTO touches (scope, handle) VALUES (?, ?)", id, h.Handle[:]); err != nil {
			return err
		}
	}
	// Between the oldest and the newest: the emptier looks at no others.
	_, err = q.exec(ctx, `INSERT INTO closings (scope, tenant, upto, emptied, session, kind, reason, at)
		VALUES (?, ?, ?, ?, 0, '', ?, ?)`, id, like.Key.Tenant, newest, oldest-1,
		like.Reason, like.At.UnixMicro())
	if err != nil {
		return err
	}
	q.ends.began = true
	return markDeleted(ctx, q)
}

// replace makes room for a new history under a key whose last one has ended
// and is not deleted yet.
func replace(ctx context.Context, q *session, k carrel.MemoryKey) error {
	h, err := first(ctx, q, scanHistory, "SELECT "+historyColumns+"FROM histories h "+whereKey, keyArgs(k)...)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	var n int64
	like := carrel.Eviction{Key: carrel.MemoryKey{Tenant: k.Tenant}}
	err = q.one(ctx, endedBy, []any{k.Tenant, h.Handle[:], h.Generation}, &n, &like.Scope, &like.Instance, &like.Reason, instant{&like.At})
	if err != nil {
		return err
	}
	_, err = q.exec(ctx, "INSERT INTO replaced (closing, generation, "+reportColumns+") SELECT ?, h.generation, "+
		reportOfHistory+"FROM histories h WHERE h.generation = ?", n, h.Generation)
	if err != nil {
		return err
	}
	if err := remove(ctx, q, h); err != nil {
		return err
	}
	return record(ctx, q, []carrel.Eviction{eviction(like, h)})
}

// endedBy picks the closing that ended a history, and what it says of it.
const endedBy = `SELECT c.n, c.kind, CASE c.kind WHEN '' THEN '' ELSE c.scope END, c.reason, c.at
	FROM closings c CROSS JOIN touches t ON t.scope = c.scope
	WHERE c.tenant = ? AND t.handle = ? AND c.upto >= ? ORDER BY c.n LIMIT 1`

// emptier deletes what closings have ended, the oldest first.
type emptier struct {
	wake    chan struct{} // holds one token when there may be something to delete
	stopped chan struct{} // closed when its goroutine has ended

	mu      sync.Mutex             // guards what follows
	reading map[carrel.ScopeID]int // closings whose reports may still be read, with how many readers
	blocked bool                   // a step found its closing there
	waiting []chan<- error         // told when there is nothing left, or what failed
}

func newEmptier() *emptier {
	return &emptier{wake: make(chan struct{}, 1), stopped: make(chan struct{}), reading: map[carrel.ScopeID]int{}}
}

func (e *emptier) rouse() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// hold keeps a closing from being emptied until release.
func (e *emptier) hold(id carrel.ScopeID) (release func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.reading[id]++
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.reading[id]--; e.reading[id] == 0 {
			delete(e.reading, id)
		}
		if e.blocked {
			e.blocked = false
			e.rouse()
		}
	}
}

func (e *emptier) held(id carrel.ScopeID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.blocked = e.blocked || e.reading[id] > 0
	return e.reading[id] > 0
}

// idle returns what receives, once, when the emptier has found nothing left to
// delete, or the error of a step that failed. The emptier must be roused.
func (e *emptier) idle() <-chan error {
	told := make(chan error, 1)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.waiting = append(e.waiting, told)
	return told
}

// tell answers who waits, unless a closing is held: then there is something
// left, and its release rouses.
func (e *emptier) tell(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.blocked && err == nil {
		return
	}
	for _, w := range e.waiting {
		w <- err
	}
	e.waiting = nil
}

// empty runs until the store closes. What is left then is deleted after the
// next opening.
func (s *Store) empty(ctx context.Context) {
	defer close(s.emptier.stopped)
	for {
		select {
		case <-s.closing:
			return
		case <-s.emptier.wake:
		}
		for more := true; more; {
			var err error
			if more, err = writeWeighing(ctx, s, "sqlite.empty", stepRows, s.step); err == nil {
				continue
			}
			s.emptier.tell(err)
			select {
			case <-s.closing:
				return
			case <-time.After(emptyAgain):
				more = true
			}
		}
		s.emptier.tell(nil)
	}
}

// step deletes a bounded part of what the oldest closing ended, and reports
// whether there may be more to do now. It goes by generation, because what was
// made together lies together.
func (s *Store) step(ctx context.Context, q *session) (more bool, err error) {
	var n, emptied int64
	var scope carrel.ScopeID
	err = q.one(ctx, "SELECT n, scope, emptied FROM closings ORDER BY n LIMIT 1", nil, &n, &scope, &emptied)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	if err != nil || s.emptier.held(scope) { // whose release rouses
		return false, err
	}
	var upto sql.NullInt64
	if err := q.one(ctx, nextHistories, []any{n, stepHistories}, &upto); err != nil {
		return false, err
	}
	if upto.Valid {
		return true, emptyUpTo(ctx, q, n, emptied, upto.Int64)
	}
	touches, err := q.exec(ctx, `DELETE FROM touches WHERE scope = ?1 AND handle IN
		(SELECT handle FROM touches WHERE scope = ?1 ORDER BY handle LIMIT ?2)`, scope, stepRows)
	if err != nil || touches == stepRows {
		return true, err
	}
	_, err = q.exec(ctx, "INSERT INTO session_evictions (session, n, "+reportColumns+`)
		SELECT s.id, r.generation, `+reportOfReplaced+`FROM closings c CROSS JOIN replaced r ON r.closing = c.n
		CROSS JOIN sessions s ON s.id = c.scope WHERE c.n = ? AND c.session = 1`, n)
	if err != nil {
		return false, err
	}
	if _, err := q.exec(ctx, "DELETE FROM scopes WHERE id = ?", scope); err != nil {
		return false, err
	}
	return true, markDeleted(ctx, q)
}

// nextHistories picks the last of the tenant's next histories, touched in the
// scope or not: to look for those that were could take long.
const nextHistories = `SELECT max(generation) FROM (SELECT h.generation
	FROM closings c CROSS JOIN histories h INDEXED BY histories_tenant ON h.tenant = c.tenant
	WHERE c.n = ? AND h.generation > c.emptied AND h.generation <= c.upto ORDER BY h.generation LIMIT ?)`

// endedBetween picks the histories that closing ?1 ended and whose generations
// are above ?2 and at most ?3.
const endedBetween = `FROM closings c CROSS JOIN histories h INDEXED BY histories_tenant
	ON h.tenant = c.tenant AND h.generation > ?2 AND h.generation <= ?3 AND c.n = ?1
	CROSS JOIN touches t ON t.scope = c.scope AND t.handle = h.handle `

// The statements of a step, in order. Rows of histories come first, as many as
// ?4 at a time, for one history alone may have very many.
var (
	emptyRows = []string{
		"DELETE FROM messages WHERE (generation, seq) IN (SELECT m.generation, m.seq " + endedBetween +
			"CROSS JOIN messages m ON m.generation = h.generation LIMIT ?4)",
		"DELETE FROM touchers WHERE (generation, key_id, subject) IN (SELECT m.generation, m.key_id, m.subject " + endedBetween +
			"CROSS JOIN touchers m ON m.generation = h.generation LIMIT ?4)",
	}
	emptyHistories = []string{
		// A closed session keeps the report, unless it is forgotten by now.
		"INSERT INTO session_evictions (session, n, " + reportColumns + ") SELECT s.id, h.generation, " + reportOfHistory +
			endedBetween + "CROSS JOIN sessions s ON s.id = c.scope WHERE c.session = 1",
		// As when one history is removed.
		"DELETE FROM touches WHERE (scope, handle) IN (SELECT o.scope, o.handle " + endedBetween + `
			CROSS JOIN touches o ON o.handle = h.handle CROSS JOIN scopes s ON s.id = o.scope
			WHERE s.tenant = c.tenant AND s.kind = 'application')`,
		"DELETE FROM histories WHERE generation IN (SELECT h.generation " + endedBetween + ")",
		"UPDATE closings SET emptied = ?3 WHERE n = ?1 AND emptied = ?2",
	}
)

func emptyUpTo(ctx context.Context, q *session, n, emptied, upto int64) error {
	for _, query := range emptyRows {
		deleted, err := q.exec(ctx, query, n, emptied, upto, stepRows)
		if err == nil && deleted > 0 {
			err = markDeleted(ctx, q)
		}
		if err != nil || deleted == stepRows {
			return err
		}
	}
	if err := recordEnded(ctx, q, n, emptied, upto); err != nil {
		return err
	}
	for _, query := range emptyHistories {
		if _, err := q.exec(ctx, query, n, emptied, upto); err != nil {
			return err
		}
	}
	return nil
}
