package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"
)

// session is one connection with the statements that were prepared on it. It
// has one user at a time. Queries are constants of this package, which bounds
// how many there are; values are always bound.
type session struct {
	conn     *sql.Conn // nil until it is needed
	prepared map[string]*sql.Stmt
	ran      int64   // statements, ever
	ends     endings // the writer's
	load     load    // likewise
}

// open connects the session if it is not.
func (q *session) open(ctx context.Context, db *sql.DB) error {
	if q.conn != nil {
		return nil
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	q.conn, q.prepared = conn, make(map[string]*sql.Stmt)
	return nil
}

// discard ends the connection after an error that leaves its state in doubt;
// open makes another. Errors while closing add nothing to that one.
func (q *session) discard() {
	if q.conn == nil {
		return
	}
	_ = q.closeStatements()
	_ = q.conn.Raw(func(any) error { return driver.ErrBadConn }) // makes database/sql close it
	q.conn = nil
}

func (q *session) close() error {
	if q.conn == nil {
		return nil
	}
	err := errors.Join(q.closeStatements(), q.conn.Close())
	q.conn = nil
	return err
}

// closeStatements comes before their connection is closed: the driver does
// not survive the other order.
func (q *session) closeStatements() error {
	var errs []error
	for _, stmt := range q.prepared {
		errs = append(errs, stmt.Close())
	}
	q.prepared = nil
	return errors.Join(errs...)
}

func (q *session) prepare(ctx context.Context, query string) (*sql.Stmt, error) {
	q.ran++
	if stmt := q.prepared[query]; stmt != nil {
		return stmt, nil
	}
	stmt, err := q.conn.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	q.prepared[query] = stmt
	return stmt, nil
}

// exec runs a statement and returns how many rows it changed.
func (q *session) exec(ctx context.Context, query string, args ...any) (int64, error) {
	stmt, err := q.prepare(ctx, query) //nolint:sqlclosecheck // the session keeps and closes it
	if err != nil {
		return 0, err
	}
	result, err := stmt.ExecContext(ctx, args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// one scans the first row into dest; sql.ErrNoRows says that there is none.
func (q *session) one(ctx context.Context, query string, args []any, dest ...any) error {
	stmt, err := q.prepare(ctx, query) //nolint:sqlclosecheck // the session keeps and closes it
	if err != nil {
		return err
	}
	return stmt.QueryRowContext(ctx, args...).Scan(dest...)
}

// scanner is what sql.Row and sql.Rows have in common.
type scanner interface{ Scan(dest ...any) error }

// each calls visit for every row until it returns false. Rows after that are
// not read.
func each(ctx context.Context, q *session, visit func(scanner) (more bool, err error), query string, args ...any) (err error) {
	stmt, err := q.prepare(ctx, query) //nolint:sqlclosecheck // the session keeps and closes it
	if err != nil {
		return err
	}
	rows, err := stmt.QueryContext(ctx, args...)
	if err != nil {
		return err
	}
	defer func() {
		if e := rows.Close(); err == nil {
			err = e
		}
	}()
	for rows.Next() {
		if more, err := visit(rows); err != nil || !more {
			return err
		}
	}
	return rows.Err()
}

// list collects what scan makes of each row.
func list[T any](ctx context.Context, q *session, scan func(scanner) (T, error), query string, args ...any) (all []T, err error) {
	err = each(ctx, q, func(row scanner) (bool, error) {
		v, err := scan(row)
		if err == nil {
			all = append(all, v)
		}
		return true, err
	}, query, args...)
	return all, err
}

// first is list for a query that yields at most one row, or sql.ErrNoRows.
func first[T any](ctx context.Context, q *session, scan func(scanner) (T, error), query string, args ...any) (T, error) {
	stmt, err := q.prepare(ctx, query) //nolint:sqlclosecheck // the session keeps and closes it
	if err != nil {
		var none T
		return none, err
	}
	return scan(stmt.QueryRowContext(ctx, args...))
}

// fixed scans a blob of exactly len(fixed) bytes; NULL becomes zeros.
type fixed []byte

// Scan implements sql.Scanner.
func (f fixed) Scan(v any) error {
	if v == nil {
		clear(f)
		return nil
	}
	b, ok := v.([]byte)
	if !ok || len(b) != len(f) {
		return fmt.Errorf("a column has %T, want %d bytes", v, len(f))
	}
	copy(f, b)
	return nil
}

// instant scans a time.
type instant struct{ t *time.Time }

// Scan implements sql.Scanner.
func (i instant) Scan(v any) error {
	n, ok := v.(int64)
	if !ok {
		return fmt.Errorf("a column has %T, want a time", v)
	}
	*i.t = time.UnixMicro(n).UTC()
	return nil
}

// stored returns t as it will be read back.
func stored(t time.Time) time.Time { return time.UnixMicro(t.UnixMicro()).UTC() }

// orNull binds the zero array as NULL.
func orNull(digest [32]byte) any {
	if digest == [32]byte{} {
		return nil
	}
	return digest[:]
}

// atMost keeps a negative limit from meaning none.
func atMost(limit int) int { return max(limit, 0) }
