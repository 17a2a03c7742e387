package cache_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carrelhost/carrel/host/sandbox/cache"
)

// opened is a cache of a directory, with its log. Each look at its clock is a
// minute later.
func opened(t testing.TB, dir string, most int64) (*cache.Cache, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	now := time.Now()
	c, err := cache.Open(cache.Config{
		Dir: dir, What: "files", Most: most,
		Now: func() time.Time { now = now.Add(time.Minute); return now },
		Log: slog.New(slog.NewTextHandler(&log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	return c, &log
}

// empty is a new cache of so many bytes.
func empty(t testing.TB, most int64) (dir string, c *cache.Cache, log *bytes.Buffer) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "cache")
	c, log = opened(t, dir, most)
	return dir, c, log
}

// filled is a room with files of two bytes.
func filled(t testing.TB, c *cache.Cache, files ...string) string {
	t.Helper()
	room, err := c.Room()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		path := filepath.Join(room, f)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte("12"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return room
}

// read returns what an entry holds; nil if there is none.
func read(t testing.TB, c *cache.Cache, name string) (b []byte) {
	t.Helper()
	err := c.Read(name, "file", func(content io.Reader, size int64) (err error) {
		if b, err = io.ReadAll(content); err == nil && int64(len(b)) != size {
			t.Errorf("%d bytes are said to be %d", len(b), size)
		}
		return err
	})
	switch {
	case errors.Is(err, cache.ErrMissing):
		return nil
	case err != nil:
		t.Fatal(err)
	}
	return b
}

func write(c *cache.Cache, name, content string) { c.Write(name, "file", strings.NewReader(content)) }

// take takes an entry; nil if there is none.
func take(t testing.TB, c *cache.Cache, name, folder string) *cache.Entry {
	t.Helper()
	e, err := c.Take(name, folder)
	if err != nil && !errors.Is(err, cache.ErrMissing) {
		t.Fatal(err)
	}
	return e
}

// names lists a directory.
func names(t testing.TB, dir string) []string {
	t.Helper()
	found, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range found {
		out = append(out, f.Name())
	}
	return out
}

func TestWhatIsWrittenIsReadAlsoAfterARestart(t *testing.T) {
	dir, c, log := empty(t, 100)
	if got := read(t, c, "entry"); got != nil {
		t.Errorf("an empty cache has %q", got)
	}
	write(c, "entry", "first")
	write(c, "entry", "second")
	again, _ := opened(t, dir, 100)
	for when, c := range map[string]*cache.Cache{"at once": c, "after a restart": again} {
		if got := string(read(t, c, "entry")); got != "second" {
			t.Errorf("%s it has %q", when, got)
		}
	}
	e := take(t, c, "entry", ".")
	if b, err := os.ReadFile(filepath.Join(e.Dir(), "file")); err != nil || string(b) != "second" || e.Bytes() != 6 {
		t.Errorf("the entry has %q of %d bytes, %v", b, e.Bytes(), err)
	}
	e.Give()
	c.Drop("entry")
	if got := read(t, c, "entry"); got != nil || len(names(t, dir)) > 0 {
		t.Errorf("when it is dropped there is %q, in %q", got, names(t, dir))
	}
	if log.Len() > 0 {
		t.Errorf("the log says %s", log)
	}
}

func TestAnEntryIsOneFileWhereItsUserLooksForIt(t *testing.T) {
	for name, tc := range map[string]struct {
		files  []string
		folder string
		fits   bool
	}{
		"one file":                    {[]string{"file"}, ".", true},
		"one file in its folder":      {[]string{"folder/file"}, "folder", true},
		"none":                        {nil, ".", false},
		"two":                         {[]string{"file", "other"}, ".", false},
		"one in another folder":       {[]string{"other/file"}, "folder", false},
		"one that is not in a folder": {[]string{"file"}, "folder", false},
		"one below the folder":        {[]string{"folder/below/file"}, "folder", false},
	} {
		t.Run(name, func(t *testing.T) {
			dir, c, _ := empty(t, 100)
			e, err := c.Publish(filled(t, c, tc.files...), "entry", tc.folder)
			if tc.fits {
				if err != nil || take(t, c, "entry", tc.folder) == nil {
					t.Fatalf("it is not kept: %v", err)
				}
				e.Give()
				if take(t, c, "entry", "elsewhere") != nil {
					t.Error("who looks for it elsewhere gets it, too")
				}
				return
			}
			if !errors.Is(err, cache.ErrForm) {
				t.Errorf("got %v", err)
			}
			if left := names(t, dir); len(left) > 0 {
				t.Errorf("left: %q", left)
			}
		})
	}
}

// digest is what the description of an entry has of its file.
func digest(entry, file, content string) string {
	return fmt.Sprintf("%x", sha256.Sum256([]byte(entry+"\x00"+file+"\x00"+content)))
}

// described makes an entry with a description, by hand.
func described(t testing.TB, dir string, sums []byte) {
	t.Helper()
	entry := filepath.Join(dir, "entry")
	if err := errors.Join(os.RemoveAll(entry), os.MkdirAll(entry, 0o700),
		os.WriteFile(filepath.Join(entry, "file"), []byte("content"), 0o600),
		os.WriteFile(filepath.Join(entry, "sums"), sums, 0o600)); err != nil {
		t.Fatal(err)
	}
}

func TestADescriptionIsNotBelieved(t *testing.T) {
	of := func(content string) string { return "v2 " + digest("entry", "file", content) }
	for name, tc := range map[string]struct {
		sums string
		want string
	}{
		"it is right":                        {of("content") + " 7 file\n", "content"},
		"it is empty":                        {"", ""},
		"it has no end":                      {of("content") + " 7 file", ""},
		"another digest":                     {of("other") + " 7 file\n", ""},
		"one of another version":             {"v1" + of("content")[2:] + " 7 file\n", ""},
		"one of the content alone":           {fmt.Sprintf("v2 %x 7 file\n", sha256.Sum256([]byte("content"))), ""},
		"one of another entry":               {"v2 " + digest("other", "file", "content") + " 7 file\n", ""},
		"one of another file":                {"v2 " + digest("entry", "other", "content") + " 7 file\n", ""},
		"a digest that is short":             {of("content")[:62] + " 7 file\n", ""},
		"another size":                       {of("content") + " 8 file\n", ""},
		"a size below zero":                  {of("content") + " -7 file\n", ""},
		"a file that is not there":           {of("content") + " 7 other\n", ""},
		"a file of the directory above":      {of("outside") + " 7 ../outside\n", ""},
		"a file that is named from the root": {of("content") + " 7 /file\n", ""},
		"two files":                          {of("content") + " 7 file\n" + of("content") + " 7 other\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := errors.Join(os.Chmod(dir, 0o700), os.WriteFile(filepath.Join(dir, "outside"), []byte("outside"), 0o600)); err != nil {
				t.Fatal(err)
			}
			described(t, dir, []byte(tc.sums))
			c, _ := opened(t, dir, 100)
			if got := string(read(t, c, "entry")); got != tc.want {
				t.Errorf("it has %q", got)
			}
			if got := names(t, dir); slices.Contains(got, "entry") != (tc.want != "") {
				t.Errorf("there is %q", got)
			}
		})
	}
}

// FuzzSums checks that no description makes a cache have what is not there.
func FuzzSums(f *testing.F) {
	f.Add([]byte("v2 " + strings.Repeat("0", 64) + " 12 wazero/x\n"))
	f.Add([]byte("v2 " + strings.Repeat("0", 64) + " -1 ../x\n"))
	f.Add([]byte("v2 " + digest("entry", "file", "content") + " 7 file\n"))
	dir := f.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, sums []byte) {
		described(t, dir, sums)
		c, _ := opened(t, dir, 1<<62)
		if b := read(t, c, "entry"); b != nil && string(b) != "content" {
			t.Errorf("it has %q", b)
		}
		write(c, "other", "x")
		if b := read(t, c, "other"); string(b) != "x" {
			t.Errorf("beside it there is %q", b)
		}
	})
}

func TestWhatWasUsedLastIsKept(t *testing.T) {
	dir, c, _ := empty(t, 3)
	for _, name := range []string{"a", "b", "c"} {
		write(c, name, "1")
	}
	read(t, c, "a")
	write(c, "d", "1")
	if got := names(t, dir); !slices.Equal(got, []string{"a", "c", "d"}) {
		t.Errorf("there is %q", got)
	}
	for _, name := range []string{"d", "c", "a"} {
		read(t, c, name)
	}
	opened(t, dir, 2) // knows when each was used
	if got := names(t, dir); !slices.Equal(got, []string{"a", "c"}) {
		t.Errorf("opened with less room there is %q", got)
	}
}

func TestWhatIsNoEntryIsRemoved(t *testing.T) {
	dir, c, _ := empty(t, 100)
	write(c, "entry", "1")
	filled(t, c, "file")
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "bare"), 0o700), os.WriteFile(filepath.Join(dir, "stray"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	opened(t, dir, 100)
	if got := names(t, dir); !slices.Equal(got, []string{"entry"}) {
		t.Errorf("there is %q", got)
	}
}

func TestADirectoryThatOthersMayWriteIsRefused(t *testing.T) {
	for _, mode := range []os.FileMode{0o777, 0o770, 0o702} {
		dir := t.TempDir()
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		_, err := cache.Open(cache.Config{Dir: dir, What: "files", Most: 1, Now: time.Now, Log: slog.New(slog.DiscardHandler)})
		if err == nil || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "chmod go-w") {
			t.Errorf("with mode %v it says %v", mode, err)
		}
	}
}

func TestADirectoryThatCannotBeWrittenIsSaidOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c, log := opened(t, filepath.Join(file, "below"), 100) // not even root can write there
	for range 3 {
		write(c, "entry", "1")
	}
	if got := read(t, c, "entry"); got != nil {
		t.Errorf("there is %q", got)
	}
	if n := strings.Count(log.String(), "cannot be written"); n != 1 {
		t.Errorf("it was said %d times:\n%s", n, log)
	}
}
