package sqlite

import (
	"context"
	"errors"
	"fmt"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
)

// errClosed answers every method after Close.
var errClosed = errors.New("the store is closed")

// classify gives an error its operation, and its code where SQLite's says
// enough.
func classify(op string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*carrel.Error](err); ok {
		return err
	}
	if isFull(err) {
		return &carrel.Error{
			Op:   op,
			Code: abi.StorageFull,
			Msg:  "the disk that holds the host's data is full; what is stored can still be read. The operator frees space or enlarges the disk, then writes work again without a restart",
			Err:  err,
		}
	}
	return fmt.Errorf("%s: %w", op, err)
}

// expected reports whether an error says something about data and nothing
// about the connection.
func expected(err error) bool {
	_, ok := errors.AsType[*carrel.Error](err)
	return ok
}

// isFull knows both faces of a full disk: no room for a page, and no room for
// the shared index of the write-ahead log, which SQLite reports as an I/O
// error.
func isFull(err error) bool {
	e, ok := errors.AsType[*sqlite.Error](err)
	return ok && (e.Code()&0xff == sqlite3.SQLITE_FULL || e.Code() == sqlite3.SQLITE_IOERR_SHMSIZE)
}

// endsTransaction reports whether a statement's error may have rolled back
// the whole transaction, so that its savepoint can no longer be trusted.
// Violated constraints do not; whatever else SQLite reports is treated as if
// it did.
func endsTransaction(err error) bool {
	e, ok := errors.AsType[*sqlite.Error](err)
	return ok && e.Code()&0xff != sqlite3.SQLITE_CONSTRAINT
}

// ended returns an error that wraps the context's. An interrupted statement's
// own error does not.
func ended(ctx context.Context, err error) error {
	if cause := ctx.Err(); err != nil && cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}
