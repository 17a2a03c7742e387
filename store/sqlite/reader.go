package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"sync"
)

// reader is a pool of connections that cannot write. Each read sees one
// committed state and never waits for the writer.
type reader struct {
	db *sql.DB

	mu       sync.Mutex // guards prepared
	prepared map[string]*sql.Stmt
}

// prepare is a session's, outside of a transaction. The statement is prepared
// anew on each connection by database/sql, once.
func (r *reader) prepare(ctx context.Context, query string) (*sql.Stmt, error) {
	r.mu.Lock()
	stmt := r.prepared[query]
	r.mu.Unlock()
	if stmt != nil {
		return stmt, nil
	}
	stmt, err := r.db.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if other := r.prepared[query]; other != nil {
		return other, stmt.Close()
	}
	r.prepared[query] = stmt
	return stmt, nil
}

func (r *reader) close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var errs []error
	for _, stmt := range r.prepared {
		errs = append(errs, stmt.Close())
	}
	return errors.Join(append(errs, r.db.Close())...)
}

// read runs do, which uses one statement.
func read[T any](ctx context.Context, s *Store, op string, do func(ctx context.Context, q session) (T, error)) (T, error) {
	return reading(ctx, s, op, func() (T, error) {
		return do(ctx, session{s.reader.prepare})
	})
}

// snapshot runs do, whose statements all see the same state.
func snapshot[T any](ctx context.Context, s *Store, op string, do func(ctx context.Context, q session) (T, error)) (T, error) {
	return reading(ctx, s, op, func() (result T, err error) {
		tx, err := s.reader.db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
		if err != nil {
			return result, err
		}
		// There is nothing to commit. If ctx has ended, the transaction has too.
		defer func() { _ = tx.Rollback() }()
		return do(ctx, session{func(ctx context.Context, query string) (*sql.Stmt, error) {
			stmt, err := s.reader.prepare(ctx, query)
			if err != nil {
				return nil, err
			}
			return tx.StmtContext(ctx, stmt), nil
		}})
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
