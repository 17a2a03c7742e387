// Package datadir owns the directory in which one host keeps its state. A
// lock in it makes sure that no two hosts ever write to the same files.
package datadir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/gofrs/flock"
)

// ErrInUse says that another host, perhaps in this same process, has the
// directory open.
var ErrInUse = errors.New("another host runs on it")

// The lock is a file of its own, so that backing up or replacing the database
// file never touches it.
const lockName = "lock"

// private lets only the user that the host runs as look inside: histories and
// modules of all tenants lie there.
const private os.FileMode = 0o700

// Dir is a data directory that this process holds the lock of. Its methods
// are safe for concurrent use.
type Dir struct {
	path string
	lock *flock.Flock
}

// Open creates the directory if it is missing, with its parents, takes
// everybody else's access to it away, and locks it. It does not wait: while
// the directory is open elsewhere, in this process or another, it fails with
// an error that matches ErrInUse and names the directory. The caller closes
// the Dir after everything that uses its files. The lock ends with the process
// too, however that ends.
func Open(dir string) (*Dir, error) {
	path, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("data directory %s: %w", dir, err)
	}
	if err := os.MkdirAll(path, private); err != nil {
		return nil, fmt.Errorf("create data directory: %w", err)
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	if open := info.Mode().Perm(); open&^private != 0 {
		if err := os.Chmod(path, open&private); err != nil {
			return nil, fmt.Errorf("make data directory private: %w", err)
		}
	}
	lock := flock.New(filepath.Join(path, lockName), flock.SetPermissions(0o600))
	locked, err := lock.TryLock()
	if err != nil {
		return nil, fmt.Errorf("lock data directory %s: %w", path, err)
	}
	if !locked {
		return nil, fmt.Errorf("data directory %s: %w; stop it, or give this one a directory of its own", path, ErrInUse)
	}
	return &Dir{path: path, lock: lock}, nil
}

// Path returns the absolute path of a file of the given name in the
// directory. The file need not exist.
func (d *Dir) Path(name string) string { return filepath.Join(d.path, name) }

// Close gives the lock back; the lock file stays. It is safe to call twice.
func (d *Dir) Close() error {
	if err := d.lock.Unlock(); err != nil {
		return fmt.Errorf("unlock data directory %s: %w", d.path, err)
	}
	return nil
}
