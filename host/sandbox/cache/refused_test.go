//go:build unix

package cache_test

import (
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/carrelhost/carrel/host/sandbox/cache"
	"github.com/carrelhost/carrel/internal/testproc"
)

func TestWhatCannotBeReadAtTheMomentIsKept(t *testing.T) {
	dir, c, log := empty(t, 100)
	write(c, "entry", "content")
	nobody := func(io.Reader, int64) error { t.Error("there is something to read"); return nil }
	testproc.WithFiles(t, 0, func() {
		if err := c.Read("entry", "file", nobody); !errors.Is(err, cache.ErrLack) || !errors.Is(err, syscall.EMFILE) {
			t.Errorf("to read it without files gives %v", err)
		}
		if _, err := c.Take("entry", "."); !errors.Is(err, cache.ErrLack) {
			t.Errorf("to take it without files gives %v", err)
		}
	})
	if got := string(read(t, c, "entry")); got != "content" || !slices.Equal(names(t, dir), []string{"entry"}) {
		t.Errorf("later it has %q, and there is %q", got, names(t, dir))
	}
	if strings.Contains(log.String(), "damaged") {
		t.Errorf("the log says %s", log)
	}
	write(c, "other", strings.Repeat("x", 100)) // nobody has the entry: it can go
	if got := names(t, dir); !slices.Equal(got, []string{"other"}) {
		t.Errorf("with something else in its room there is %q", got)
	}
}

func TestWhatThisUserMayNotReadIsKept(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may read everything")
	}
	for _, name := range []string{"file", "sums"} {
		dir, c, _ := empty(t, 100)
		write(c, "entry", "content")
		path := filepath.Join(dir, "entry", name)
		if err := os.Chmod(path, 0); err != nil {
			t.Fatal(err)
		}
		again, _ := opened(t, dir, 100)
		for when, c := range map[string]*cache.Cache{"at once": c, "after a restart": again} {
			if _, err := c.Take("entry", "."); err == nil || errors.Is(err, cache.ErrMissing) || errors.Is(err, cache.ErrLack) {
				t.Errorf("%s, without a right to read %s, there is %v", when, name, err)
			}
		}
		if err := os.Chmod(path, 0o600); err != nil {
			t.Fatal(err)
		}
		for when, c := range map[string]*cache.Cache{"at once": c, "after a restart": again} {
			if e := take(t, c, "entry", "."); e == nil || e.Bytes() != 7 {
				t.Errorf("%s, with the right to read %s again, there is %v", when, name, e)
			}
		}
	}
}

// TestNothingButFilesIsRead has in the place of files what delays or never ends
// whoever opens it.
func TestNothingButFilesIsRead(t *testing.T) {
	for what, put := range map[string]func(path string) error{
		"a pipe that nobody writes": func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"a link to a device":        func(path string) error { return os.Symlink("/dev/zero", path) },
		"a link to a pipe": func(path string) error {
			pipe := filepath.Join(t.TempDir(), "pipe")
			return errors.Join(syscall.Mkfifo(pipe, 0o600), os.Symlink(pipe, path))
		},
		"a directory": func(path string) error { return os.Mkdir(path, 0o700) },
		"a file that is larger than any": func(path string) error {
			return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, math.MaxUint32))
		},
	} {
		for _, name := range []string{"file", "sums"} {
			for when, running := range map[string]bool{"while it is open": true, "before it is opened": false} {
				t.Run(what+" instead of "+name+" "+when, func(t *testing.T) {
					dir, c, _ := empty(t, 1<<40)
					write(c, "entry", "content")
					path := filepath.Join(dir, "entry", name)
					if err := errors.Join(os.Remove(path), put(path)); err != nil {
						t.Fatal(err)
					}
					if !running {
						c, _ = opened(t, dir, 1<<40)
					}
					if got := read(t, c, "entry"); got != nil {
						t.Errorf("it has %q", got)
					}
					if got := names(t, dir); len(got) > 0 {
						t.Errorf("there is %q", got)
					}
				})
			}
		}
	}
}
