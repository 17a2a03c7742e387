//go:build unix

package datadir_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/carrelhost/carrel/store/datadir"
)

// intruders are what may stand in a file's place. Those that are links lead to
// victim.
var intruders = map[string]func(path, victim string) error{
	"a link":                    func(path, victim string) error { return os.Symlink(victim, path) },
	"a link to nothing":         func(path, victim string) error { return os.Symlink(victim+".none", path) },
	"a pipe that nobody reads":  func(path, _ string) error { return syscall.Mkfifo(path, 0o600) },
	"a directory with contents": func(path, _ string) error { return os.MkdirAll(filepath.Join(path, "more"), 0o700) },
}

// TestWhatStandsInAFilesPlaceIsNotOpened has each intruder where a file is to
// be read and made, and a directory where the intruder is moved to.
func TestWhatStandsInAFilesPlaceIsNotOpened(t *testing.T) {
	for name, place := range intruders {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path, victim := filepath.Join(dir, "file"), filepath.Join(t.TempDir(), "victim")
			err := errors.Join(os.WriteFile(victim, []byte("precious"), 0o600), place(path, victim),
				os.MkdirAll(filepath.Join(path+".damaged", "more"), 0o700))
			if err != nil {
				t.Fatal(err)
			}
			for _, flag := range []int{os.O_RDONLY, os.O_WRONLY, os.O_RDWR | os.O_TRUNC} {
				if f, err := datadir.OpenFile(path, flag); err == nil {
					t.Errorf("it was opened: %v", f.Close())
				}
			}
			f, err := datadir.CreateFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(f, "content"); err != nil || f.Close() != nil {
				t.Fatal(err)
			}
			wantContent(t, path, "content")
			wantMode(t, path, 0o600)
			wantContent(t, victim, "precious")
			wantEntries(t, filepath.Dir(victim), "victim")
		})
	}
}

func TestAFileIsOpenedAsItIsAndMadeAnew(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if _, err := datadir.OpenFile(path, os.O_RDONLY); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what is not there: %v", err)
	}
	for _, content := range []string{"first", "second"} {
		f, err := datadir.CreateFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(f, content); err != nil || f.Close() != nil {
			t.Fatal(err)
		}
		if f, err = datadir.OpenFile(path, os.O_RDONLY); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(f); string(got) != content || err != nil || f.Close() != nil {
			t.Errorf("it has %q, %v, want %q", got, err, content)
		}
	}
	wantContent(t, path+".damaged", "first")
}
