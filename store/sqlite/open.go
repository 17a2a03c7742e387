// Package sqlite is the store that a host uses by default: one SQLite file,
// embedded, in pure Go. It implements the contract in package store.
//
// One goroutine writes. It takes what is queued into one transaction and
// acknowledges each operation after the commit, so that many callers share one
// fsync. Reads have connections of their own and wait for nobody. Only one
// process may have a database open, which package datadir sees to.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/carrelhost/carrel/store"
)

// Store implements store.Store. Make one with Open; it has two goroutines,
// which Close ends.
type Store struct {
	secret [32]byte
	db     *sql.DB // the writer's only connection comes from it
	writer *writer
	reader *reader

	emptier *emptier
	dir     string // of the database
	now     func() time.Time

	closing   chan struct{} // closed when Close begins: who waits for room gives up
	closeOnce sync.Once
	closeErr  error // set by closeOnce

	// life is held shared by every read and while a write is queued.
	life   sync.RWMutex
	closed bool // guarded by life
}

var _ store.Store = (*Store)(nil)

// Open opens the database, creating it or bringing its schema up to date. It
// refuses a database with a newer schema than it knows. The caller closes the
// store. ctx bounds the opening only.
func Open(ctx context.Context, c Config) (*Store, error) {
	c = c.withDefaults()
	if err := c.validate(); err != nil {
		return nil, fmt.Errorf("sqlite store: %w", err)
	}
	s, err := open(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("open database %s: %w", c.Path, err)
	}
	return s, nil
}

func open(ctx context.Context, c Config) (s *Store, err error) {
	path, err := filepath.Abs(c.Path)
	if err != nil {
		return nil, err
	}
	if err := private(path); err != nil {
		return nil, err
	}
	db, err := sql.Open("sqlite", writerDSN(path))
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	s = &Store{db: db, closing: make(chan struct{}), dir: filepath.Dir(path), now: c.Now}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.release())
			s = nil
		}
	}()
	if err := inspect(ctx, db); err != nil {
		return s, err
	}
	if err := migrate(ctx, db); err != nil {
		return s, err
	}
	if s.secret, err = hostSecret(ctx, db, c.Rand); err != nil {
		return s, err
	}
	readers, err := sql.Open("sqlite", readerDSN(path))
	if err != nil {
		return s, err
	}
	s.reader = newReader(readers, c.Readers)
	q, err := s.reader.lease(ctx)
	if err != nil {
		return s, err
	}
	var left bool // by the last process
	err = q.one(ctx, "SELECT EXISTS (SELECT 1 FROM closings)", nil, &left)
	s.reader.giveBack(q, err)
	if err != nil {
		return s, err
	}
	q = &session{ends: endings{records: c.EvictionRecords, histories: atOnce, messages: atOnceMessages}}
	if err := q.open(ctx, db); err != nil {
		return s, err
	}
	s.writer = newWriter(context.WithoutCancel(ctx), db, q, c.Queue, c.BatchMax)
	s.emptier = newEmptier()
	if left {
		s.emptier.rouse()
	}
	go s.empty(context.WithoutCancel(ctx))
	return s, nil
}

// private creates the file if it is missing and takes everybody else's access
// away. SQLite gives its other files the same mode.
func private(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600) //nolint:gosec // the operator names the file
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil && info.Mode().Perm()&^0o600 != 0 {
		err = f.Chmod(0o600)
	}
	return errors.Join(err, f.Close())
}

// dsn has the pragmas in it because each is one connection's: an Exec would
// reach one connection of a pool, and not the one that replaces it.
func dsn(path, mode string, parameters url.Values, pragmas ...string) string {
	parameters.Set("mode", mode)
	parameters["_pragma"] = pragmas
	u := url.URL{Scheme: "file", Path: filepath.ToSlash(path), RawQuery: parameters.Encode()}
	return u.String()
}

// inMemory keeps what SQLite spills, copies of rows among it, out of the
// system's directory for temporary files, where no scrub would find it. It is
// little: sorted pages, and what a statement overwrites until it has ended.
const inMemory = "temp_store(MEMORY)"

func writerDSN(path string) string {
	return dsn(path, "rw", url.Values{"_txlock": {"immediate"}},
		"busy_timeout(10000)", // milliseconds; a backup may hold the lock
		"journal_mode(WAL)",
		"synchronous(FULL)",
		"foreign_keys(ON)",
		"secure_delete(ON)",
		inMemory,
		"journal_size_limit(67108864)") // bytes; else a log keeps its largest size for ever
}

func readerDSN(path string) string {
	return dsn(path, "ro", url.Values{}, "busy_timeout(10000)", "query_only(ON)", inMemory)
}

// HostSecret implements store.Store.
func (s *Store) HostSecret(ctx context.Context) ([32]byte, error) {
	return reading(ctx, s, "sqlite.HostSecret", func() ([32]byte, error) { return s.secret, nil })
}

// hostSecret makes the secret when the database has none.
func hostSecret(ctx context.Context, db *sql.DB, random io.Reader) (secret [32]byte, err error) {
	if _, err := io.ReadFull(random, secret[:]); err != nil {
		return secret, fmt.Errorf("make host secret: %w", err)
	}
	_, err = db.ExecContext(ctx, `INSERT INTO meta (id, host_secret, last_generation, checks) VALUES (1, ?, 0, 0)
		ON CONFLICT DO NOTHING`, secret[:])
	if err != nil {
		return secret, fmt.Errorf("keep host secret: %w", err)
	}
	err = db.QueryRowContext(ctx, "SELECT host_secret FROM meta").Scan(fixed(secret[:]))
	return secret, err
}

// Check implements store.Store.
func (s *Store) Check(ctx context.Context) error {
	return change(ctx, s, "sqlite.Check", func(ctx context.Context, q *session) error {
		_, err := q.exec(ctx, "UPDATE meta SET checks = checks + 1")
		return err
	})
}

// Close implements store.Store.
func (s *Store) Close() error {
	s.closeOnce.Do(func() {
		close(s.closing)
		s.life.Lock()
		s.closed = true
		s.life.Unlock() // now, so that what comes late fails at once
		s.closeErr = s.release()
	})
	return s.closeErr
}

// release closes what was opened, the writing connection last: the last one
// to close takes the write-ahead log into the database and removes it.
func (s *Store) release() error {
	var errs []error
	if s.emptier != nil {
		<-s.emptier.stopped
	}
	if s.reader != nil {
		errs = append(errs, s.reader.close())
	}
	if s.writer != nil {
		errs = append(errs, s.writer.close())
	}
	return errors.Join(append(errs, s.db.Close())...)
}
