package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
)

// job is one operation on its way through the writer.
type job struct {
	ended func() error // why the caller no longer waits, or nil
	// do may run more than once: what it computes it computes anew each time.
	do func(ctx context.Context, q *session) error
	// alone has do run outside of any transaction and apart from other jobs.
	alone bool
	err   error
	done  chan error // has room for one, so that the writer waits for nobody
}

// writer owns the only connection that writes. Its goroutine takes whatever
// is queued into one transaction, so that callers share the cost of making it
// durable, and tells each of them only after the commit.
type writer struct {
	db      *sql.DB  // where a connection comes from when the last one was discarded
	session *session // the goroutine's alone until that has ended
	queue   chan *job
	most    int           // jobs in one transaction
	stopped chan struct{} // closed when the goroutine has ended
}

// newWriter starts the writer's goroutine. Statements run under ctx, which
// must never end: interrupting one would roll back a whole batch.
func newWriter(ctx context.Context, db *sql.DB, q *session, queue, most int) *writer {
	w := &writer{db: db, session: q, queue: make(chan *job, queue), most: most, stopped: make(chan struct{})}
	go w.run(ctx)
	return w
}

// run ends when the queue is closed and empty.
func (w *writer) run(ctx context.Context) {
	defer close(w.stopped)
	for j := range w.queue {
		batch, alone := w.gather(j)
		if len(batch) > 0 {
			w.commit(ctx, batch)
		}
		if alone != nil {
			alone.done <- w.runAlone(ctx, alone)
		}
	}
}

// gather returns first and what else is queued now, waiting for nothing, up to
// a job that runs alone.
func (w *writer) gather(first *job) (batch []*job, alone *job) {
	for j := first; ; {
		if j.alone {
			return batch, j
		}
		if batch = append(batch, j); len(batch) == w.most {
			return batch, nil
		}
		var open bool
		select {
		case j, open = <-w.queue:
			if !open {
				return batch, nil
			}
		default:
			return batch, nil
		}
	}
}

func (w *writer) runAlone(ctx context.Context, j *job) error {
	if err := j.ended(); err != nil {
		return err
	}
	if err := w.session.open(ctx, w.db); err != nil {
		return fmt.Errorf("replace the writing connection: %w", err)
	}
	return j.do(ctx, w.session)
}

// commit runs a batch and acknowledges it. When anything ends the transaction
// they share, each job is tried once more in one of its own, so that none
// fails because of another.
func (w *writer) commit(ctx context.Context, batch []*job) {
	if err := w.transact(ctx, batch); err != nil {
		for _, j := range batch {
			if err := w.transact(ctx, []*job{j}); err != nil {
				j.err = err
			}
		}
	}
	for _, j := range batch {
		j.done <- j.err
	}
}

// transact runs the jobs in one transaction and leaves each one's outcome in
// it. If it returns an error, nothing of any of them happened.
func (w *writer) transact(ctx context.Context, batch []*job) error {
	q := w.session
	if err := q.open(ctx, w.db); err != nil {
		return fmt.Errorf("replace the writing connection: %w", err)
	}
	if _, err := q.exec(ctx, "BEGIN IMMEDIATE"); err != nil {
		q.discard() // what a new transaction cannot begin on may be good for nothing
		return fmt.Errorf("begin: %w", err)
	}
	for _, j := range batch {
		if j.err = j.ended(); j.err != nil {
			continue
		}
		if err := try(ctx, q, j); err != nil {
			return errors.Join(err, rollback(ctx, q))
		}
	}
	if _, err := q.exec(ctx, "COMMIT"); err != nil {
		return errors.Join(fmt.Errorf("commit: %w", err), rollback(ctx, q))
	}
	return nil
}

// try runs one job behind a savepoint. The error that it returns has ended
// the transaction; a job's own is in the job.
func try(ctx context.Context, q *session, j *job) error {
	if _, err := q.exec(ctx, "SAVEPOINT job"); err != nil {
		return fmt.Errorf("savepoint: %w", err)
	}
	j.err = j.do(ctx, q)
	if endsTransaction(j.err) {
		return j.err
	}
	if j.err != nil {
		if _, err := q.exec(ctx, "ROLLBACK TO job"); err != nil {
			return fmt.Errorf("roll back to savepoint: %w", err)
		}
	}
	if _, err := q.exec(ctx, "RELEASE job"); err != nil {
		return fmt.Errorf("release savepoint: %w", err)
	}
	return nil
}

// rollback leaves the session without a transaction. SQLite may have ended it
// already, which makes ROLLBACK itself fail; that is told by whether a new one
// can begin and end. If not, the connection is discarded, which ends whatever
// it has open, and the next transaction has another.
func rollback(ctx context.Context, q *session) error {
	if _, err := q.exec(ctx, "ROLLBACK"); err == nil {
		return nil
	}
	_, err := q.exec(ctx, "BEGIN")
	if err == nil {
		_, err = q.exec(ctx, "ROLLBACK")
	}
	if err != nil {
		q.discard()
		return fmt.Errorf("the transaction could not be ended, its connection was: %w", err)
	}
	return nil
}

// close waits for what is queued and gives the connection back. Nothing may
// be queued any more.
func (w *writer) close() error {
	close(w.queue)
	<-w.stopped
	return w.session.close()
}

// enqueue hands a job to the writer, waiting for room in the queue.
func (s *Store) enqueue(ctx context.Context, j *job) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.life.RLock()
	defer s.life.RUnlock()
	if s.closed {
		return errClosed
	}
	select {
	case s.writer.queue <- j:
		return nil
	case <-s.closing:
		return errClosed
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return &carrel.Error{
				Op:   "sqlite.enqueue",
				Code: abi.Overloaded,
				Msg:  "the store has more to write than it can; try again later",
				Err:  ctx.Err(),
			}
		}
		return ctx.Err()
	}
}

// write runs do in the writer and returns what it computed once that is
// durable. If ctx ends while it waits, do may still run.
func write[T any](ctx context.Context, s *Store, op string, do func(ctx context.Context, q *session) (T, error)) (T, error) {
	return written(ctx, s, op, &job{ended: ctx.Err, done: make(chan error, 1)}, do)
}

// alone is write for what runs outside of any transaction.
func alone[T any](ctx context.Context, s *Store, op string, do func(ctx context.Context, q *session) (T, error)) (T, error) {
	return written(ctx, s, op, &job{ended: ctx.Err, done: make(chan error, 1), alone: true}, do)
}

func written[T any](ctx context.Context, s *Store, op string, j *job, do func(ctx context.Context, q *session) (T, error)) (T, error) {
	var none, result T // result is the writer's until done delivers
	j.do = func(ctx context.Context, q *session) error {
		var err error
		result, err = do(ctx, q)
		if q.ends.began { // its steps are queued behind this change
			q.ends.began = false
			s.emptier.rouse()
		}
		return err
	}
	if err := s.enqueue(ctx, j); err != nil {
		return none, classify(op, err)
	}
	select {
	case err := <-j.done:
		if err != nil {
			return none, classify(op, err)
		}
		return result, nil
	case <-ctx.Done():
		return none, classify(op, ctx.Err())
	}
}

// change is write for what has no result.
func change(ctx context.Context, s *Store, op string, do func(ctx context.Context, q *session) error) error {
	_, err := write(ctx, s, op, func(ctx context.Context, q *session) (struct{}, error) {
		return struct{}{}, do(ctx, q)
	})
	return err
}
