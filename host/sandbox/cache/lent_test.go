package cache_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/carrelhost/carrel/host/sandbox/cache"
)

func TestAnEntryIsNotAnotherOne(t *testing.T) {
	dir, c, log := empty(t, 100)
	write(c, "a", "of a")
	write(c, "b", "of b")
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(os.Rename(at("a"), at("x")), os.Rename(at("b"), at("a")), os.Rename(at("x"), at("b"))); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b"} {
		if got := read(t, c, name); got != nil {
			t.Errorf("%s has %q", name, got)
		}
	}
	if got := names(t, dir); len(got) > 0 || log.Len() == 0 {
		t.Errorf("there is %q, and the log says %q", got, log)
	}
}

// TestWhatIsLentIsReadToItsEnd checks that nothing is right because its reader
// stopped early, or wrong because of what its reader said.
func TestWhatIsLentIsReadToItsEnd(t *testing.T) {
	errOwn := errors.New("the reader's own")
	some := func(content io.Reader, _ int64) error {
		_, err := io.ReadFull(content, make([]byte, 3))
		return err
	}
	for name, tc := range map[string]struct {
		use    func(content io.Reader, size int64) error
		damage bool
		want   error
	}{
		"some of it is read":                      {some, false, nil},
		"some is read of what is damaged later":   {some, true, cache.ErrMissing},
		"its reader fails":                        {func(io.Reader, int64) error { return errOwn }, false, errOwn},
		"its reader fails, and rightly":           {func(io.Reader, int64) error { return errOwn }, true, cache.ErrMissing},
		"its reader finds the end where it is":    {func(r io.Reader, _ int64) error { _, err := io.ReadAll(r); return err }, false, nil},
		"its reader believes there is more of it": {func(r io.Reader, n int64) error { _, err := io.ReadFull(r, make([]byte, n+1)); return err }, false, io.ErrUnexpectedEOF},
	} {
		t.Run(name, func(t *testing.T) {
			dir, c, _ := empty(t, 100)
			write(c, "entry", "content")
			if tc.damage {
				if err := os.WriteFile(filepath.Join(dir, "entry", "file"), []byte("contenT"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := c.Read("entry", "file", tc.use); !errors.Is(err, tc.want) {
				t.Errorf("got %v", err)
			}
			if got := slices.Contains(names(t, dir), "entry"); got == tc.damage {
				t.Errorf("that it is there is %v", got)
			}
		})
	}
}

// failing writes a part, and fails.
type failing struct{ err error }

func (f failing) WriteTo(w io.Writer) (int64, error) {
	n, err := w.Write([]byte("part"))
	return int64(n), errors.Join(err, f.err)
}

func TestWhatIsNotWrittenToItsEndIsNoEntry(t *testing.T) {
	dir, c, log := empty(t, 100)
	write(c, "entry", "before")
	c.Write("entry", "file", failing{os.ErrDeadlineExceeded})
	if got := string(read(t, c, "entry")); got != "before" || len(names(t, dir)) != 1 || log.Len() == 0 {
		t.Errorf("it has %q, there is %q, and the log says %q", got, names(t, dir), log)
	}
}
