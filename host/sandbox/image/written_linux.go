//go:build !portable

package image

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// tracker has the system keep a mark at each page that was not written
// (userfaultfd with asynchronous write protection, Linux 6.7). A scan that
// asks for the mark looks at the system's tables only; one that asks which
// pages are a file's looks up each page, at 20 ns and more.
//
// The mark goes by itself with the first write, whoever writes. So a page
// without one may be as it must be, but a page with one is: marks are set on
// nothing else. It may be used by many goroutines at once.
type tracker struct{ file *os.File }

// openTracker fails where the system has none, or does not let this process
// have one.
func openTracker() (*tracker, error) {
	fd, err := userfaultfd()
	if err != nil {
		return nil, err
	}
	t := &tracker{os.NewFile(uintptr(fd), "written pages")}
	if err := userfaultAPI(t.file.Fd()); err != nil {
		return nil, errors.Join(err, t.close())
	}
	return t, nil
}

func (t *tracker) close() error { return t.file.Close() }

// track begins with a slot's memory. Without an error, scans ask for marks.
func (m *mapped) track() {
	t := m.im.track
	if t == nil || userfaultRegister(t.file.Fd(), m.reserved[guard:]) != nil {
		return
	}
	m.tracked = true
	m.mark(0, m.open)
}

// mark says of the bytes from..to that they are as they must be. Where the
// system refuses, scans ask for private pages from then on.
func (m *mapped) mark(from, to int) {
	if m.tracked && from < to && userfaultProtect(m.im.track.file.Fd(), m.all[from:to]) != nil {
		m.tracked = false
	}
}

// give gives the memory of from..to back to the system, which shows the image
// and zeros from then on.
func (m *mapped) give(from, to int) error {
	err := unix.Madvise(m.all[from:to], unix.MADV_DONTNEED)
	if err == nil {
		m.mark(from, to)
	}
	return err
}
