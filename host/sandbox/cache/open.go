package cache

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// openFile opens a file of an entry for reading. Whatever else is in its place,
// a pipe that nobody writes or a device, is an error, and does not delay it.
func openFile(path string) (*os.File, fs.FileInfo, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, nil, err
	}
	if !info.Mode().IsRegular() { // to open some devices has effects
		return nil, nil, fmt.Errorf("%s is no file", path)
	}
	f, err := os.OpenFile(path, os.O_RDONLY|openFlags, 0) //nolint:gosec // in a directory of the cache
	if err != nil {
		return nil, nil, err
	}
	if info, err = f.Stat(); err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no file", path)
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, info, nil
}

// Refused returns ErrLack, or another error, if the system refused to read or
// write what may be whole; it stays then. Else the result is nil.
func Refused(err error) error {
	switch {
	case !unreadable(err):
		return nil
	case lacking(err):
		return fmt.Errorf("%w: %w", ErrLack, err)
	}
	return err
}

// unreadable tells whether the system refused to read what may be whole. That
// something is not there, or is something else, is no refusal.
func unreadable(err error) bool {
	errno, ok := errors.AsType[syscall.Errno](err)
	return ok && !errors.Is(err, fs.ErrNotExist) &&
		errno != syscall.ENOTDIR && errno != syscall.EISDIR && errno != syscall.ELOOP && errno != syscall.ENXIO
}

// lacking tells whether this process, or all together, have too much open or in
// memory.
func lacking(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOMEM)
}
