// Package scaffold writes the projects of new plugins and builds them. A
// project gets its SDK from this binary, so neither step needs a network.
package scaffold

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
)

// Language is what a plugin is written in.
type Language string

// The languages.
const (
	Prompt Language = "prompt" // a Markdown file, no code
	Go     Language = "go"
	C      Language = "c"
)

// Languages returns every language. The caller owns the result.
func Languages() []Language { return []Language{Prompt, Go, C} }

const newOp = "scaffold.New"

// ParseLanguage is the only way an outside string becomes a Language. Its
// error has code bad_request.
func ParseLanguage(s string) (Language, error) {
	if l := Language(s); slices.Contains(Languages(), l) {
		return l, nil
	}
	return "", carrel.Fail(newOp, abi.BadRequest, fmt.Sprintf("there is no language %q; use prompt, go or c", s))
}

// New writes a project for a plugin of that name into dir, which is made if it
// is not there, and must be empty if it is. The error has code bad_request for
// a name that cannot be a plugin's, a language that does not exist and a dir
// that is not empty. After any error nothing that New wrote is left.
func New(dir, name string, lang Language) error {
	if _, err := carrel.ParsePluginName(name); err != nil {
		return err
	}
	if _, err := ParseLanguage(string(lang)); err != nil {
		return err
	}
	files, err := project(name, lang)
	if err != nil {
		return err
	}
	made, err := prepare(dir)
	if err != nil {
		return err
	}
	if err := write(dir, files); err != nil {
		return errors.Join(err, undo(dir, made, files))
	}
	return nil
}

// prepare makes dir, or checks that it is empty; made says which.
func prepare(dir string) (made bool, err error) {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := os.MkdirAll(dir, 0o750); err != nil {
			return false, fmt.Errorf("make project: %w", err)
		}
		return true, nil
	case err != nil:
		return false, fmt.Errorf("make project: %w", err)
	case len(entries) > 0:
		return false, carrel.Fail(newOp, abi.BadRequest, fmt.Sprintf(
			"the folder %s is not empty (it has %s); name one that is, or that does not exist", dir, entries[0].Name()))
	}
	return false, nil
}

// write writes files, whose paths have slashes, and replaces none.
func write(dir string, files map[string][]byte) error {
	for _, path := range slices.Sorted(maps.Keys(files)) {
		full := filepath.Join(dir, filepath.FromSlash(path))
		if err := os.MkdirAll(filepath.Dir(full), 0o750); err != nil {
			return fmt.Errorf("write project: %w", err)
		}
		if err := writeNew(full, files[path]); err != nil {
			return fmt.Errorf("write project: %w", err)
		}
	}
	return nil
}

func writeNew(path string, content []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644) //nolint:gosec // sources are no secret
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Close())
}

// undo removes what a write that failed has left.
func undo(dir string, made bool, files map[string][]byte) error {
	if made {
		return os.RemoveAll(dir)
	}
	var errs []error
	for path := range files {
		top, _, _ := strings.Cut(path, "/")
		errs = append(errs, os.RemoveAll(filepath.Join(dir, top)))
	}
	return errors.Join(errs...)
}
