package datadir

import (
	"errors"
	"fmt"
	"os"
)

// OpenFile opens a file that is there, with the flags of os.OpenFile but for
// O_CREATE. Whatever else is in its place, a link, a pipe or a device, is an
// error, is not touched, and does not delay it.
func OpenFile(path string, flag int) (*os.File, error) {
	noFile := fmt.Errorf("%s is no file", path)
	info, err := os.Lstat(path)
	if err != nil {
		return nil, fmt.Errorf("open file: %w", err)
	}
	if !info.Mode().IsRegular() { // to open some devices has effects
		return nil, noFile
	}
	f, err := os.OpenFile(path, flag|openFlags, 0) //nolint:gosec // the caller named it
	if err != nil {
		return nil, fmt.Errorf("open file: %w", err)
	}
	if info, err = f.Stat(); err == nil && !info.Mode().IsRegular() { // it came in between
		err = noFile
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// CreateFile makes a new, empty file for writing that only the user that the
// host runs as can read. Whatever is in its place is moved aside.
func CreateFile(path string) (*os.File, error) {
	create := func() (*os.File, error) {
		return os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600) //nolint:gosec // the caller named it
	}
	f, err := create()
	if errors.Is(err, os.ErrExist) {
		if _, err := MoveAside(path); err != nil {
			return nil, err
		}
		f, err = create()
	}
	if err != nil {
		return nil, fmt.Errorf("create file: %w", err)
	}
	return f, nil
}
