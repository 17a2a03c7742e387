package scaffold

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/carrelhost/carrel"
)

// checkedOut is how far the times of files lie apart that a checkout wrote.
const checkedOut = 2 * time.Second

// Newer returns the path of a source in a module's folder that was changed
// after the module was written, or "": then what the module was built of is
// there, or the folder is no project. Tests and generated files are no sources.
func Newer(modulePath string) (string, error) {
	built, err := os.Stat(modulePath)
	if err != nil {
		return "", fmt.Errorf("read module: %w", err)
	}
	dir := filepath.Dir(modulePath)
	by, err := filesOf(dir)
	if err != nil {
		return "", err
	}
	var sources []string
	switch {
	case len(by[".go"]) > 0:
		sources = slices.Concat(by[".go"], []string{"go.mod"})
	case len(by[".c"]) > 0:
		sources = slices.Concat(by[".c"], by[".h"], []string{manifestFile})
	default:
		source, err := promptSource(dir, by)
		if _, none := errors.AsType[*carrel.Error](err); err != nil && !none {
			return "", err
		}
		if source != "" {
			sources = []string{source}
		}
	}
	for _, name := range sources {
		if strings.HasSuffix(name, "_test.go") || name == exportsFile {
			continue
		}
		path := filepath.Join(dir, name)
		source, err := os.Stat(path)
		if err == nil && source.ModTime().After(built.ModTime().Add(checkedOut)) {
			return path, nil
		}
	}
	return "", nil
}

// HasExportsFile reports whether the exports that Build makes of a declaration
// in Go lie beside a module: one that was compiled by hand has those of the
// last build.
func HasExportsFile(modulePath string) bool {
	about, err := os.Stat(filepath.Join(filepath.Dir(modulePath), exportsFile))
	return err == nil && about.Mode().IsRegular()
}

// Modules returns the paths of the modules in a folder, sorted.
func Modules(dir string) ([]string, error) {
	by, err := filesOf(dir)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, name := range by[".wasm"] {
		out = append(out, filepath.Join(dir, name))
	}
	return out, nil
}

// filesOf returns the names of a folder's files by their extension, sorted.
func filesOf(dir string) (map[string][]string, error) {
	entries, err := os.ReadDir(dir) // sorted
	if err != nil {
		return nil, fmt.Errorf("find sources: %w", err)
	}
	by := map[string][]string{}
	for _, e := range entries {
		if e.IsDir() {
			continue
		}
		ext := strings.ToLower(filepath.Ext(e.Name()))
		by[ext] = append(by[ext], e.Name())
	}
	return by, nil
}
