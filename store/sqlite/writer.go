package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
)

// The writer weighs what jobs write, so that no one's imports and deletions
// keep everybody else waiting. The unit is about one row, or one page of it.
const (
	// lightMost is the most that a job writes which shares its transaction.
	lightMost = 128
	// batchWeight is when no more jobs join a transaction.
	batchWeight = 512
	// pageBytes of content weigh as much as a row.
	pageBytes = 4096
)

func weightOf(rows, bytes int64) int64 { return rows + bytes/pageBytes }

// errHeavy says that a job turned out to be a heavy one. Nobody but the writer
// sees it.
var errHeavy = errors.New("this writes too much to share a transaction")

// load is what a writer's session knows of the weight of what it does.
type load struct {
	heavy bool  // the job has its transaction for itself
	job   int64 // weight of the job under way, as far as it was told
	all   int64 // of the transaction
}

// weigh is told by a job what it is about to write. Its error, which the job
// returns, has the job begin anew in a transaction of its own.
func (q *session) weigh(rows, bytes int64) error {
	q.load.job += weightOf(rows, bytes)
	if q.load.job > lightMost && !q.load.heavy {
		return errHeavy
	}
	return nil
}

// job is one operation on its way through the writer.
type job struct {
	ended func() error // why the caller no longer waits, or nil
	// do may run more than once: what it computes it computes anew each time.
	do func(ctx context.Context, q *session) error
	// heavy is known to be so before it begins.
	heavy bool
	// alone has do run outside of any transaction and apart from other jobs.
	alone bool
	err   error
	done  chan error // has room for one, so that the writer waits for nobody
}

// writer owns the only connection that writes. Its goroutine takes whatever
// is queued into one transaction, so that callers share the cost of making it
// durable, and tells each of them only after the commit. A heavy job has a
// transaction of its own, and between two of them come the light ones that
// wait: none waits for more than one heavy job, and neither kind starves.
//
// Each kind is first come, first served, and a light job may overtake heavy
// ones. Nobody can tell: what a caller has seen end has ended, whatever is
// queued after that; two jobs whose callers both wait may come in any order;
// and a job that its caller gave up is looked at right before it begins, and
// then never does. So of what was given up and anything that is queued later,
// the first is always decided before the second begins: it is under way then,
// and jobs run one at a time, or it never happens. Host/idempotency relies on
// that, for a commit that was given up and the claim that follows it.
type writer struct {
	db      *sql.DB  // where a connection comes from when the last one was discarded
	session *session // the goroutine's alone until that has ended
	light   chan *job
	heavy   chan *job     // never closed: the writer itself puts jobs here
	most    int           // jobs in one transaction
	stopped chan struct{} // closed when the goroutine has ended
}

// newWriter starts the writer's goroutine. Statements run under ctx, which
// must never end: interrupting one would roll back a whole batch.
func newWriter(ctx context.Context, db *sql.DB, q *session, queue, most int) *writer {
	w := &writer{
		db: db, session: q, light: make(chan *job, queue), heavy: make(chan *job, queue),
		most: most, stopped: make(chan struct{}),
	}
	go w.run(ctx)
	return w
}

// run ends when the light queue is closed and both are empty.
func (w *writer) run(ctx context.Context) {
	defer close(w.stopped)
	for open := true; open || len(w.heavy) > 0; {
		var light, heavy *job
		select {
		case light, open = <-w.light:
		case heavy = <-w.heavy:
			select {
			case light, open = <-w.light:
			default:
			}
		}
		if light != nil {
			w.commit(ctx, w.gather(light))
		}
		if heavy == nil {
			select {
			case heavy = <-w.heavy:
			default:
				continue
			}
		}
		w.commitHeavy(ctx, heavy)
	}
}

// gather returns first and what other light jobs are queued now, waiting for
// nothing.
func (w *writer) gather(first *job) []*job {
	batch := []*job{first}
	for len(batch) < w.most {
		select {
		case j, open := <-w.light:
			if !open {
				return batch
			}
			batch = append(batch, j)
		default:
			return batch
		}
	}
	return batch
}

func (w *writer) commitHeavy(ctx context.Context, j *job) {
	if j.alone {
		j.done <- w.runAlone(ctx, j)
		return
	}
	if _, err := w.transact(ctx, []*job{j}, true); err != nil {
		// Once more, as in commit: the connection may have been the reason.
		if _, err := w.transact(ctx, []*job{j}, true); err != nil {
			j.err = err
		}
	}
	j.done <- j.err
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

// commit runs a batch, in as many transactions as its weight needs, and
// acknowledges it. When anything ends a transaction that jobs share, each is
// tried once more in one of its own, so that none fails because of another.
func (w *writer) commit(ctx context.Context, batch []*job) {
	for len(batch) > 0 {
		n, err := w.transact(ctx, batch, false)
		if err != nil {
			for i, j := range batch[:n] {
				if _, err := w.transact(ctx, batch[i:i+1], true); err != nil {
					j.err = err
				}
			}
		}
		for _, j := range batch[:n] {
			w.acknowledge(ctx, j)
		}
		batch = batch[n:]
	}
}

// acknowledge tells a light job's caller, unless the job turned out to be
// heavy and is yet to run.
func (w *writer) acknowledge(ctx context.Context, j *job) {
	if !errors.Is(j.err, errHeavy) {
		j.done <- j.err
		return
	}
	select {
	case w.heavy <- j:
	default: // there is no room, and only the writer makes some
		w.commitHeavy(ctx, j)
	}
}

// transact runs jobs in one transaction, up to the one with which it is heavy
// enough, and leaves each one's outcome in it. It returns how many they were.
// If it returns an error, nothing of any of them happened.
func (w *writer) transact(ctx context.Context, batch []*job, heavy bool) (n int, err error) {
	q := w.session
	if err := q.open(ctx, w.db); err != nil {
		return len(batch), fmt.Errorf("replace the writing connection: %w", err)
	}
	if _, err := q.exec(ctx, "BEGIN IMMEDIATE"); err != nil {
		q.discard() // what a new transaction cannot begin on may be good for nothing
		return len(batch), fmt.Errorf("begin: %w", err)
	}
	q.load = load{heavy: heavy}
	for n < len(batch) && q.load.all < batchWeight {
		j := batch[n]
		n++
		if j.err = j.ended(); j.err != nil {
			continue
		}
		if err := try(ctx, q, j); err != nil {
			return n, errors.Join(err, rollback(ctx, q))
		}
	}
	if _, err := q.exec(ctx, "COMMIT"); err != nil {
		return n, errors.Join(fmt.Errorf("commit: %w", err), rollback(ctx, q))
	}
	return n, nil
}

// try runs one job behind a savepoint. The error that it returns has ended
// the transaction; a job's own is in the job.
func try(ctx context.Context, q *session, j *job) error {
	if _, err := q.exec(ctx, "SAVEPOINT job"); err != nil {
		return fmt.Errorf("savepoint: %w", err)
	}
	q.load.job = 0
	j.err = j.do(ctx, q)
	q.load.all += min(q.load.job, lightMost)
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
	close(w.light)
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
	queue := s.writer.light
	if j.heavy || j.alone {
		queue = s.writer.heavy
	}
	select {
	case queue <- j:
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

// writeWeighing is write for what knows beforehand what it weighs at least.
func writeWeighing[T any](ctx context.Context, s *Store, op string, weight int64, do func(ctx context.Context, q *session) (T, error)) (T, error) {
	return written(ctx, s, op, &job{ended: ctx.Err, done: make(chan error, 1), heavy: weight > lightMost}, do)
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
