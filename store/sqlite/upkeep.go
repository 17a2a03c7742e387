package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/store"
)

// markDeleted says that this change deletes what somebody said: the next scrub
// has something to take off the disk. The row is written only when that is
// news, so that a busy host does not pay for it with every request.
func markDeleted(ctx context.Context, q *session) error {
	_, err := q.exec(ctx, "UPDATE meta SET scrub_due = 1 WHERE scrub_due = 0")
	return err
}

// errLeft says that the emptier has something left.
var errLeft = errors.New("what closed scopes have left is not deleted yet")

// Scrub implements store.Upkeep. It needs as much room on the disk, for the
// time it takes, as the database has twice; without, it is storage_full and
// nothing is lost. If a reader, such as a backup, keeps an old state for
// longer than some seconds, it is overloaded and may be tried again.
func (s *Store) Scrub(ctx context.Context, at time.Time) (store.Scrub, error) {
	const op = "sqlite.Scrub"
	start := s.now()
	last, err := read(ctx, s, op, func(ctx context.Context, q *session) (n int64, err error) {
		err = q.one(ctx, "SELECT coalesce(max(n), 0) FROM closings", nil, &n)
		return n, err
	})
	if err != nil {
		return store.Scrub{}, err
	}
	for {
		done, err := alone(ctx, s, op, func(ctx context.Context, q *session) (store.Scrub, error) {
			return s.scrub(ctx, q, op, last, at, start)
		})
		if !errors.Is(err, errLeft) {
			return done, err
		}
		if err := s.awaitEmptier(ctx); err != nil {
			return store.Scrub{}, classify(op, err)
		}
	}
}

// awaitEmptier returns when the emptier has had a chance to delete all.
func (s *Store) awaitEmptier(ctx context.Context) error {
	idle := s.emptier.idle()
	s.emptier.rouse()
	select {
	case err := <-idle:
		return err
	case <-s.closing:
		return errClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// scrub runs in the writer: nothing is deleted between its beginning and the
// moment that it says so. What closings later than last have left stays due.
func (s *Store) scrub(ctx context.Context, q *session, op string, last int64, at, start time.Time) (done store.Scrub, err error) {
	var due, left bool
	err = q.one(ctx, "SELECT scrub_due, EXISTS (SELECT 1 FROM closings WHERE n <= ?) FROM meta", []any{last}, &due, &left)
	if err != nil {
		return done, err
	}
	if left {
		return done, errLeft
	}
	if due {
		err = s.vacuum(ctx, q)
	}
	if err == nil {
		err = checkpoint(ctx, q, op)
	}
	switch {
	case err == nil:
	case !due && carrel.CodeOf(err) == abi.Overloaded: // a reader keeps a log that has nothing which must go
	default:
		q.discard() // its settings may be those of the VACUUM
		return done, err
	}
	done = store.Scrub{At: stored(at), Took: s.now().Sub(start).Truncate(time.Microsecond)}
	// The page that this writes into the new log was made by the VACUUM, and
	// has nothing on it but the row.
	err = q.one(ctx, `UPDATE meta SET scrubbed_at = ?, scrub_took = ?, scrub_due = EXISTS (SELECT 1 FROM closings)
		RETURNING scrub_due`, []any{at.UnixMicro(), done.Took.Microseconds()}, &done.Due)
	return done, err
}

// vacuum writes the database anew. Free pages, and the gaps that rows leave in
// pages which were split and merged, are where secure_delete has missed copies.
//
// What VACUUM builds first is as large as the database, too large for memory,
// and would be a file in the system's directory for temporary files. So it is
// put beside the database, where nobody but the host can read, as a file
// without a name, of which nothing is found after a crash. SQLite knows only
// one such directory for a whole process; of two stores that scrub at once, one
// may so borrow the other's. It is left set, for to unset it would take it from
// the other.
func (s *Store) vacuum(ctx context.Context, q *session) error {
	for _, query := range []string{
		"PRAGMA temp_store_directory = '" + strings.ReplaceAll(s.dir, "'", "''") + "'",
		"PRAGMA temp_store = FILE",
		"VACUUM",
		"PRAGMA " + strings.NewReplacer("(", " = ", ")", "").Replace(inMemory),
	} {
		if _, err := q.conn.ExecContext(ctx, query); err != nil {
			return fmt.Errorf("%s: %w", query, err)
		}
	}
	return nil
}

// checkpoint takes the log into the database and makes it empty, which no
// reader of an older state may still need. It waits for them as long as
// busy_timeout says.
func checkpoint(ctx context.Context, q *session, op string) error {
	var busy bool
	var log, moved sql.NullInt64
	if err := q.conn.QueryRowContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)").Scan(&busy, &log, &moved); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	if busy {
		return carrel.Fail(op, abi.Overloaded,
			"something reads an old state of the database, a backup perhaps, so that deleted content is still on the disk; try again when it has ended")
	}
	return nil
}

// LastScrub implements store.Upkeep.
func (s *Store) LastScrub(ctx context.Context) (store.Scrub, error) {
	return read(ctx, s, "sqlite.LastScrub", func(ctx context.Context, q *session) (last store.Scrub, err error) {
		var at sql.NullInt64
		var took int64
		err = q.one(ctx, "SELECT scrubbed_at, scrub_took, scrub_due FROM meta", nil, &at, &took, &last.Due)
		if at.Valid {
			last.At = time.UnixMicro(at.Int64).UTC()
		}
		last.Took = time.Duration(took) * time.Microsecond
		return last, err
	})
}
