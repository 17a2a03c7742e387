package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"runtime"
	"time"

	driver "modernc.org/sqlite"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/store"
)

// Recent reports whether a version of SQLite is one that Open accepts.
var Recent = recent

// Queries are those that must never walk a whole table, by what they answer.
var Queries = map[string]string{
	"the open sessions of a tenant, counted": countSessions,
	"the open sessions of a tenant":          listSessions,
	"the open sessions of an owner":          listOwnSessions,
	"expired sessions":                       expiredSessions,
	"sessions to forget":                     forgetSessions,
	"orphans":                                orphans,
}

// Hold keeps the writer busy until release is called; what is written
// meanwhile is queued.
func (s *Store) Hold() (release func() error, err error) {
	held, free := make(chan struct{}), make(chan struct{})
	j := &job{ended: context.Background().Err, done: make(chan error, 1)}
	j.do = func(context.Context, *session) error {
		close(held)
		<-free
		return nil
	}
	if err := s.enqueue(context.Background(), j); err != nil {
		return nil, err
	}
	<-held
	return func() error {
		close(free)
		return <-j.done
	}, nil
}

// Queued returns how many writes wait.
func (s *Store) Queued() int { return len(s.writer.light) + len(s.writer.heavy) }

// SetMaxPages makes the disk seem full once the database has n pages more
// than now; negative n makes it boundless again.
func (s *Store) SetMaxPages(n int) error {
	return change(context.Background(), s, "SetMaxPages", func(ctx context.Context, q *session) error {
		pages := -1
		if n >= 0 {
			if err := q.conn.QueryRowContext(ctx, "PRAGMA page_count").Scan(&pages); err != nil {
				return err
			}
		}
		most := 0xfffffffe
		if n >= 0 {
			most = pages + n
		}
		_, err := q.conn.ExecContext(ctx, fmt.Sprintf("PRAGMA max_page_count = %d", most))
		return err
	})
}

// PagesRead returns how many database pages do makes the only reading
// connection look at, whether they were cached or not.
func (s *Store) PagesRead(ctx context.Context, do func() error) (int, error) {
	count := func(reset bool) (pages int, err error) {
		q, err := s.reader.lease(ctx)
		if err != nil {
			return 0, err
		}
		defer s.reader.giveBack(q, nil)
		return pagesOf(q, reset)
	}
	if _, err := count(true); err != nil {
		return 0, err
	}
	if err := do(); err != nil {
		return 0, err
	}
	return count(false)
}

// PagesWritten is PagesRead for what do has the writer do, and what counting
// itself costs.
func (s *Store) PagesWritten(ctx context.Context, do func() error) (int, error) {
	count := func(reset bool) (int, error) {
		return write(ctx, s, "PagesWritten", func(_ context.Context, q *session) (int, error) { return pagesOf(q, reset) })
	}
	if _, err := count(true); err != nil {
		return 0, err
	}
	if err := do(); err != nil {
		return 0, err
	}
	return count(false)
}

// pagesOf returns how many pages a connection has looked at since a reset.
func pagesOf(q *session, reset bool) (pages int, err error) {
	err = q.conn.Raw(func(c any) error {
		status, ok := c.(driver.DBStatus)
		if !ok {
			return fmt.Errorf("%T has no status", c)
		}
		for _, op := range []driver.DBStatusOp{driver.DBStatusCacheHit, driver.DBStatusCacheMiss} {
			n, _, err := status.Status(op, reset)
			if err != nil {
				return err
			}
			pages += n
		}
		return nil
	})
	return pages, err
}

// Raw opens a database file without a store.
func Raw(path string) (*sql.DB, error) { return sql.Open("sqlite", writerDSN(path)) }

// HoldReader keeps one of the reading connections busy.
func (s *Store) HoldReader() (giveBack func(), err error) {
	q, err := s.reader.lease(context.Background())
	return func() { s.reader.giveBack(q, nil) }, err
}

// Jam makes the writer's present connection unable to end the transaction
// that a failing write leaves: both statements that could do so fail. The
// write that it queues writes something, fails, and so leaves one.
func (s *Store) Jam(ctx context.Context) error {
	return change(ctx, s, "Jam", func(ctx context.Context, q *session) error {
		const overflow = "SELECT abs(-9223372036854775808)"
		for _, query := range []string{"ROLLBACK", "BEGIN"} {
			stmt, err := q.conn.PrepareContext(ctx, overflow) //nolint:sqlclosecheck // the session keeps and closes it
			if err != nil {
				return err
			}
			if before := q.prepared[query]; before != nil {
				if err := before.Close(); err != nil {
					return err
				}
			}
			q.prepared[query] = stmt
		}
		if _, err := q.exec(ctx, "INSERT INTO tenants (id, created_at) VALUES ('half done', 0)"); err != nil {
			return err
		}
		_, err := q.exec(ctx, overflow)
		return err
	})
}

// Pragma scans a setting of the writer's connection.
func (s *Store) Pragma(ctx context.Context, name string, value any) error {
	return change(ctx, s, "Pragma", func(ctx context.Context, q *session) error {
		return q.conn.QueryRowContext(ctx, "PRAGMA "+name).Scan(value)
	})
}

// Count returns how many rows a table has, whether they can still be reached
// through the store or not.
func (s *Store) Count(ctx context.Context, table string) (int, error) {
	return read(ctx, s, "Count", func(ctx context.Context, q *session) (n int, err error) {
		err = q.one(ctx, "SELECT count(*) FROM "+table, nil, &n)
		return n, err
	})
}

// NeverAtOnce makes whatever ends histories from now on leave the deleting to
// the emptier, however few they are.
func (s *Store) NeverAtOnce() error {
	return change(context.Background(), s, "NeverAtOnce", func(_ context.Context, q *session) error {
		q.ends.histories, q.ends.messages = -1, -1
		return nil
	})
}

// HoldClosing keeps the histories of a scope that closes, and those of scopes
// that close later, from being deleted until release.
func (s *Store) HoldClosing(id carrel.ScopeID) (release func()) { return s.emptier.hold(id) }

// LiveQueries are those that look for histories that have not ended.
var LiveQueries = map[string]string{
	"a history by its key":                selectHistory + whereKey,
	"a tenant's histories":                listHistories,
	"the histories that somebody touched": listTouched,
	"the histories touched in a scope":    touchedAtOnce,
}

// HistoryQueries are those that pick or count histories and messages, by what
// they answer.
var HistoryQueries = map[string]string{
	"a history's view":               viewed,
	"the newest messages":            newestMessages,
	"the oldest messages' weights":   weights,
	"the histories of a tenant":      listHistories,
	"the histories of a namespace":   listNamespace,
	"the histories that one touched": listTouched,
	"expired histories":              expiredHistories,
	"all histories, counted":         countHistories,
	"leaking histories, counted":     countLeaking,
	"open scopes, counted":           countScopes,
}

// Do runs f in the writer.
func (s *Store) Do(f func()) error {
	return change(context.Background(), s, "Do", func(context.Context, *session) error {
		f()
		return nil
	})
}

// DoHeavy is Do for a heavy job.
func (s *Store) DoHeavy(f func()) error {
	_, err := writeWeighing(context.Background(), s, "DoHeavy", lightMost+1, func(context.Context, *session) (struct{}, error) {
		f()
		return struct{}{}, nil
	})
	return err
}

// AwaitScrub returns when a scrub waits for the emptier.
func (s *Store) AwaitScrub() {
	for waiting := 0; waiting == 0; runtime.Gosched() {
		s.emptier.mu.Lock()
		waiting = len(s.emptier.waiting)
		s.emptier.mu.Unlock()
	}
}

// SetBusyTimeout sets how long the writer waits for others, in milliseconds.
func (s *Store) SetBusyTimeout(ms int) error {
	return change(context.Background(), s, "SetBusyTimeout", func(ctx context.Context, q *session) error {
		_, err := q.conn.ExecContext(ctx, fmt.Sprintf("PRAGMA busy_timeout = %d", ms))
		return err
	})
}

// EndQueries are those about what has ended, by what they do.
var EndQueries = map[string]string{
	"the records of a tenant":                      listEvictions,
	"forgetting records":                           forgetEvictions,
	"dropping the oldest records":                  dropRecords,
	"recording what a step deletes":                recordsOfClosing,
	"what ended a history":                         endedBy,
	"the histories that a subject touched":         subjectHistories,
	"the histories touched in a subject's session": subjectSessionHistories,
	"a subject's sessions":                         subjectSessions,
	"a subject's answers":                          eraseSubjectAnswers,
	"the report of a session":                      eraseReport,
	"a claim":                                      selectClaim,
	"the claims of a tenant, counted":              countClaims,
	"the claims of a tenant that are gone":         goneClaims,
	"releasing a claim":                            releaseClaim,
	"interrupting claims":                          interruptClaims,
	"releasing claims":                             releaseClaims,
	"forgetting claims":                            forgetClaims,
}

// HoldEndings keeps what ends from now on from being deleted until release: a
// small scope closes first, and is held.
func (s *Store) HoldEndings() (release func(), err error) {
	const id = "held"
	release = s.emptier.hold(id)
	return release, change(context.Background(), s, "HoldEndings", func(ctx context.Context, q *session) error {
		si := store.ScopeInstance{ID: id, Tenant: "nobody", Scope: carrel.ScopeRequest}
		if _, err := openScope(ctx, q, si); err != nil {
			return err
		}
		return beginClosing(ctx, q, si, carrel.ReasonScopeClosed, time.Time{})
	})
}

// Statements returns how many statements the writer runs for what do does: of
// it, and of nothing else.
func (s *Store) Statements(do func() error) (int64, error) {
	count := func() (n int64, err error) {
		err = change(context.Background(), s, "Statements", func(_ context.Context, q *session) error {
			n = q.ran
			return nil
		})
		return n, err
	}
	before, err := count()
	if err != nil {
		return 0, err
	}
	if err := do(); err != nil {
		return 0, err
	}
	after, err := count()
	const counting = 4 // the end of the transaction of the first count and the beginning of the second's
	return after - before - counting, err
}
