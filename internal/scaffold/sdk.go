package scaffold

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
)

// sdkFolder holds a Go project's copy of the SDK, beside its go.mod.
const sdkFolder = "carrel-sdk"

// OtherSDK returns the path of the SDK's copy that the project in dir is built
// with, if a file of it is not as this program has it, else "": also for
// projects that have none. Line ends do not count, as a checkout may change
// them, nor do files that are no Go.
func OtherSDK(dir string) (string, error) {
	path, err := sdkOf(dir)
	if err != nil || path == "" {
		return "", err
	}
	own := map[string][]byte{}
	if err := addSDK(own, ""); err != nil {
		return "", err
	}
	same := true
	err = filepath.WalkDir(path, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(path, file)
		if err != nil {
			return err
		}
		name := filepath.ToSlash(rel)
		want, known := own[name]
		delete(own, name)
		switch {
		case !known:
			same = same && !strings.HasSuffix(name, ".go")
			return nil
		default:
			got, err := os.ReadFile(file) //nolint:gosec // a file of the user's project
			same = same && bytes.Equal(bytes.ReplaceAll(got, []byte("\r\n"), []byte("\n")), want)
			return err
		}
	})
	if err != nil {
		return "", fmt.Errorf("compare the SDK: %w", err)
	}
	if same && len(own) == 0 {
		return "", nil
	}
	return path, nil
}

// UpdateSDK replaces the SDK's copy of the project in dir by this program's,
// whole or not at all, and returns its path. Nothing else is written. A
// project without one is bad_request.
func UpdateSDK(dir string) (string, error) {
	path, err := sdkOf(dir)
	if err != nil {
		return "", err
	}
	if path == "" {
		return "", carrel.Fail(buildOp, abi.BadRequest, fmt.Sprintf(
			"%s has no %s that could be replaced; `carrel new --lang go` makes projects with one", dir, sdkFolder))
	}
	files := map[string][]byte{}
	if err := addSDK(files, sdkFolder+"/"); err != nil {
		return "", err
	}
	// In the same folder, so that renaming is enough.
	tmp, err := os.MkdirTemp(filepath.Dir(path), ".carrel-sdk-")
	if err != nil {
		return "", fmt.Errorf("replace the SDK: %w", err)
	}
	keep := false // the only copy is in it
	defer func() {
		if !keep {
			_ = os.RemoveAll(tmp)
		}
	}()
	if err := write(tmp, files); err != nil {
		return "", err
	}
	old := filepath.Join(tmp, "old")
	if err := os.Rename(path, old); err != nil {
		return "", fmt.Errorf("replace the SDK: %w", err)
	}
	if err := os.Rename(filepath.Join(tmp, sdkFolder), path); err != nil {
		back := os.Rename(old, path)
		keep = back != nil
		return "", errors.Join(fmt.Errorf("replace the SDK: %w", err), back)
	}
	return path, nil
}

// sdkOf finds the SDK's copy of the module that dir belongs to, or "".
func sdkOf(dir string) (string, error) {
	root, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("find the SDK: %w", err)
	}
	for steps := ""; ; steps = filepath.Join(steps, "..") {
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			copied := filepath.Join(dir, steps, sdkFolder)
			if _, err := os.Stat(filepath.Join(copied, "sdk", "go")); err != nil {
				return "", nil //nolint:nilerr // the module gets the SDK in another way
			}
			return copied, nil
		}
		if up := filepath.Dir(root); up != root {
			root = up
			continue
		}
		return "", nil
	}
}
