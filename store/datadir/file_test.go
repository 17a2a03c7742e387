package datadir_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/carrelhost/carrel/store/datadir"
)

// wantEntries fails the test unless a directory has exactly these.
func wantEntries(t *testing.T, dir string, want ...string) {
	t.Helper()
	found, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range found {
		if i >= len(want) || f.Name() != want[i] {
			t.Fatalf("%s has %v, want %v", dir, found, want)
		}
	}
	if len(found) != len(want) {
		t.Fatalf("%s has %v, want %v", dir, found, want)
	}
}

func wantContent(t *testing.T, path, want string) {
	t.Helper()
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		t.Errorf("%s is %q, %v, want %q", path, got, err, want)
	}
}

func TestAFileIsReplacedWholeAndIsPrivate(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	if err := os.WriteFile(path, []byte("a longer content than the next"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o644); err != nil { // others could read the old one
		t.Fatal(err)
	}
	for _, content := range []string{"first", ""} {
		if err := datadir.WriteFile(path, []byte(content)); err != nil {
			t.Fatal(err)
		}
		wantContent(t, path, content)
		wantMode(t, path, 0o600)
		wantEntries(t, dir, "file")
	}
}

func TestAFileInTheCurrentDirectoryIsWritten(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := datadir.WriteFile("file", []byte("content")); err != nil {
		t.Fatal(err)
	}
	wantEntries(t, ".", "file")
}

func TestAFileThatCannotBeWrittenLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "file", "more"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(dir, "file"), filepath.Join(dir, "none", "file")} {
		if err := datadir.WriteFile(path, []byte("content")); err == nil {
			t.Errorf("%s was written", path)
		}
	}
	wantEntries(t, dir, "file")
	wantEntries(t, filepath.Join(dir, "file"), "more")
}

func TestWhateverStandsInAFilesPlaceIsMovedAside(t *testing.T) {
	for name, place := range map[string]func(path string) error{
		"a file":      func(path string) error { return os.WriteFile(path, []byte("content"), 0o600) },
		"a directory": func(path string) error { return os.MkdirAll(filepath.Join(path, "more"), 0o700) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "file")
			for range 2 { // the second time over what was moved the first
				if err := place(path); err != nil {
					t.Fatal(err)
				}
				aside, err := datadir.MoveAside(path)
				if err != nil {
					t.Fatal(err)
				}
				wantEntries(t, dir, filepath.Base(aside))
			}
			if _, err := datadir.MoveAside(path); err == nil {
				t.Error("what is not there was moved")
			}
		})
	}
}
