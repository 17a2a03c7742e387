package sqlite

import (
	"context"
	"database/sql"
	"errors"
)

// reader is a pool of connections that cannot write. Each read sees one
// committed state and never waits for the writer. A read has one connection
// to itself and never needs a second: reads that held one each and waited for
// another would wait for ever.
type reader struct {
	db   *sql.DB
	size int
	free chan *session // size of them when nobody reads
}

func newReader(db *sql.DB, size int) *reader {
	db.SetMaxOpenConns(size)
	r := &reader{db: db, size: size, free: make(chan *session, size)}
	for range size {
		r.free <- new(session)
	}
	return r
}

// lease waits for a connection. The caller gives it back.
func (r *reader) lease(ctx context.Context) (*session, error) {
	select {
	case q := <-r.free:
		if err := q.open(ctx, r.db); err != nil {
			r.free <- q
			return nil, err
		}
		return q, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// giveBack takes a connection after a read that ended with err. What is not
// known to have left the connection in order has it replaced.
func (r *reader) giveBack(q *session, err error) {
	if err != nil && !errors.Is(err, sql.ErrNoRows) && !expected(err) {
		q.discard()
	}
	r.free <- q
}

// close waits for reads that are under way.
func (r *reader) close() error {
	var errs []error
	for range r.size {
		q := <-r.free
		errs = append(errs, q.close())
	}
	return errors.Join(append(errs, r.db.Close())...)
}

// read runs do, which uses one statement.
func read[T any](ctx context.Context, s *Store, op string, do func(ctx context.Context, q *session) (T, error)) (T, error) {
	return reading(ctx, s, op, func() (result T, err error) {
		q, err := s.reader.lease(ctx)
		if err != nil {
			return result, err
		}
		defer func() { s.reader.giveBack(q, err) }()
		return do(ctx, q)
	})
}

// snapshot runs do, whose statements all see the same state.
func snapshot[T any](ctx context.Context, s *Store, op string, do func(ctx context.Context, q *session) (T, error)) (T, error) {
	return read(ctx, s, op, func(ctx context.Context, q *session) (T, error) {
		if _, err := q.exec(ctx, "BEGIN"); err != nil {
			var none T
			return none, err
		}
		defer func() {
			// There is nothing to commit, and what ended ctx must not keep the
			// transaction open. If it cannot be ended, the connection can.
			if _, err := q.exec(context.WithoutCancel(ctx), "ROLLBACK"); err != nil {
				q.discard()
			}
		}()
		return do(ctx, q)
	})
}

// reading keeps the pool open while do runs, and classifies its error.
func reading[T any](ctx context.Context, s *Store, op string, do func() (T, error)) (T, error) {
	var none T
	if err := ctx.Err(); err != nil {
		return none, classify(op, err)
	}
	s.life.RLock()
	defer s.life.RUnlock()
	if s.closed {
		return none, classify(op, errClosed)
	}
	result, err := do()
	if err != nil {
		return none, classify(op, ended(ctx, err))
	}
	return result, nil
}
