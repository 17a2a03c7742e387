//go:build !portable

package image

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// The categories of pages, from linux/fs.h.
const (
	pageIsWritten = 1 << 1 // since it was marked
	pageIsFile    = 1 << 2
	pageIsPresent = 1 << 3
	pageIsSwapped = 1 << 4
	pageIsZero    = 1 << 5 // the system's one page of zeros
)

// scanner asks the system about this process's pages. It may be used by many
// goroutines at once.
type scanner struct{ pagemap *os.File }

// openScanner fails where the system does not answer, so that a slot need not
// find out at its resets.
func openScanner() (*scanner, error) {
	f, err := os.Open("/proc/self/pagemap")
	if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) {
		return nil, refused("a file in /proc", 0, err)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: mount /proc and let this process read it", err)
	}
	s := &scanner{pagemap: f}
	if _, err := s.ask(&scanArguments{}, new(regions)); err != nil { // about no pages
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *scanner) close() error { return s.pagemap.Close() }

// ask returns how many regions the answer has.
func (s *scanner) ask(args *scanArguments, out *regions) (int, error) {
	n, err := pagemapScanInto(s.pagemap.Fd(), args, out)
	switch {
	case errors.Is(err, unix.ENOTTY):
		return 0, fmt.Errorf("PAGEMAP_SCAN: %w: it is there from Linux 6.7 on", err)
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.ENOSYS):
		return 0, fmt.Errorf("PAGEMAP_SCAN: %w: have the filter of system calls (seccomp) let ioctl %#x pass", err, pagemapScan)
	case err != nil:
		return 0, fmt.Errorf("PAGEMAP_SCAN: %w", err)
	case n > len(out):
		return 0, fmt.Errorf("PAGEMAP_SCAN: told of %d regions where %d fit", n, len(out))
	}
	return n, nil
}

// errTooMany says that more pages are private than were to be copied.
var errTooMany = errors.New("too many private pages")

// restore copies the image into the private pages of its part and clears
// those beyond it, most pages at the most, and returns how many there were.
// When sift is set it gives those back that need no restoring. After an error,
// which may be errTooMany, some are restored and some not.
func (m *mapped) restore(most int, sift bool) (int, error) {
	put := m.put
	if sift {
		put = m.sift
	}
	return m.changed(most, put)
}

// put restores the bytes from..to, which are all of the image or all beyond.
func (m *mapped) put(from, to int) {
	if from < len(m.im.content) {
		copy(m.all[from:to], m.im.content[from:to])
		return
	}
	clear(m.all[from:to])
}

// sift is put, but gives back the pages that are as they must be: they were
// written by an earlier call, and the last one had no use for them.
func (m *mapped) sift(from, to int) {
	page := os.Getpagesize()
	for from < to {
		same := from
		for same < to && m.isRestored(same, same+page) {
			same += page
		}
		if same > from {
			// Where the system does not take them they are no worse.
			if m.give(from, same) == nil {
				m.held -= (same - from) / page
			}
			from = same
			continue
		}
		m.put(from, from+page)
		from += page
	}
}

// isRestored tells whether put would change nothing.
func (m *mapped) isRestored(from, to int) bool {
	if from < len(m.im.content) {
		return bytes.Equal(m.all[from:to], m.im.content[from:to])
	}
	return isZero(m.all[from:to])
}

// changed calls do for each run of pages that may not be as they must be: that
// have no mark, or, if the slot is not tracked, that are private. A run is of
// the image or beyond it. Past most pages the error is errTooMany. What the
// system answers is checked: a wrong answer is an error.
func (m *mapped) changed(most int, do func(from, to int)) (int, error) {
	base, page, size := address(m.all), uint64(os.Getpagesize()), len(m.im.content)
	found := 0
	for from := 0; from < m.open; {
		args := scanArguments{start: base + uint64(from), end: base + uint64(m.open), maxPages: uint64(most - found + 1)}
		if m.tracked {
			// Asked for this and nothing else, the system is twice as fast.
			args.flags, args.categoryMask, args.returnMask = scanTracked, pageIsWritten, pageIsWritten
		} else {
			// A page of the image that was never written is the file's or
			// absent. A private one is neither, in memory or swapped out,
			// whatever is in it: the system may put its page of zeros into the
			// place of any page of zeros.
			args.categoryInverted, args.categoryMask = pageIsFile, pageIsFile
			args.categoryAnyofMask, args.returnMask = pageIsPresent|pageIsSwapped, pageIsZero
		}
		n, err := m.im.scan.ask(&args, &m.regions)
		if err != nil {
			return found, err
		}
		for _, r := range m.regions[:n] {
			if r.start < args.start || r.end > args.end || r.start > r.end || (r.start|r.end)%page != 0 {
				return found, fmt.Errorf("PAGEMAP_SCAN: asked for %#x to %#x and was told of %#x to %#x",
					args.start, args.end, r.start, r.end)
			}
			begin, end := int(r.start-base), int(r.end-base)
			// Beyond the image the page of zeros is what a read leaves, and right.
			if begin >= size && r.is&pageIsZero != 0 {
				continue
			}
			if found += (end - begin) / int(page); found > most {
				return found, errTooMany
			}
			if begin < size && size < end {
				do(begin, size)
				begin = size
			}
			do(begin, end)
		}
		if args.walkEnd <= args.start || args.walkEnd > args.end {
			return found, fmt.Errorf("PAGEMAP_SCAN: asked for %#x to %#x and was stopped at %#x",
				args.start, args.end, args.walkEnd)
		}
		from = int(args.walkEnd - base)
	}
	return found, nil
}
