package datadir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// WriteFile replaces a file, whole or not at all: after a power cut there is
// the old or the new content, and once it has returned without an error, the
// new. Only the user that the host runs as can read it. If it fails the old
// file is as it was. Two that write one file at once are safe; one of them is
// the last.
func WriteFile(path string, content []byte) error {
	dir, name := filepath.Split(path)
	f, err := os.CreateTemp(filepath.Clean(dir), name+".*") // for the owner's eyes
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // a leftover harms nothing
		return fmt.Errorf("write %s: %w", name, err)
	}
	return syncDir(filepath.Clean(dir))
}

// syncDir makes a rename durable, where the system can.
func syncDir(path string) error {
	d, err := os.Open(path) //nolint:gosec // the host's own directory
	if err != nil {
		return nil //nolint:nilerr // not on every system; the file is whole in any case
	}
	_ = d.Sync() // likewise
	return d.Close()
}

// MoveAside makes room for a new file in the place of one that cannot be read,
// which may be a directory as well, and returns where that is for a person to
// look at. What was aside before is deleted.
func MoveAside(path string) (aside string, err error) {
	aside = path + ".damaged"
	if err := os.RemoveAll(aside); err != nil {
		return aside, fmt.Errorf("move %s aside: %w", filepath.Base(path), err)
	}
	if err := os.Rename(path, aside); err != nil {
		return aside, fmt.Errorf("move %s aside: %w", filepath.Base(path), err)
	}
	return aside, nil
}
