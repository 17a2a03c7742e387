// Package image is the linear memory of guests whose state is restored after
// each call. An Image is what every instance of a guest begins with; a Slot
// is one instance's own memory, which Reset makes the image again.
//
// On Linux an image is a sealed file in memory and a slot a private mapping
// of it, so that instances share the pages that they do not write, and a
// reset costs what was written and not what there is. Everywhere else a slot
// is Go memory and a reset a copy of all of it. Both behave alike, byte for
// byte.
//
// What a slot's user wrote is in no other slot and in no image, ever: slots
// share nothing but pages that nobody can write.
package image

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"sync"
)

// Method is how a slot becomes the image again.
type Method int

const (
	// Copy keeps slots in Go memory and copies the whole image. It works
	// everywhere.
	Copy Method = iota
	// Madvise gives a slot's private pages back to the system, which shows
	// the image again when they are next read (Linux). The reset is cheap and
	// the call after it pays: a page fault for each page that it writes.
	Madvise
	// PageScan asks the system which pages of a slot were written and copies
	// the image into those (Linux 6.7 and later). They stay private, so that
	// the next call writes them without a page fault. The system answers
	// several times as fast where it tracks writes, for which this process
	// needs userfaultfd; filters of system calls often refuse that.
	PageScan
)

// String returns the method's name, as logs and reports show it.
func (m Method) String() string {
	switch m {
	case Copy:
		return "copy"
	case Madvise:
		return "madvise"
	case PageScan:
		return "page scan"
	}
	return fmt.Sprintf("method %d", int(m))
}

var (
	// ErrNoRoom is the error when the system has no address space, mappings
	// or open files left for an image or a slot. Its text names the limits.
	// Others' slots are not harmed; when some are closed there is room again.
	ErrNoRoom = errors.New("no room for a guest's memory")
	// ErrClosed is the error of an image or slot that was closed.
	ErrClosed = errors.New("the guest's memory is closed")
	// ErrInUse is the error of closing an image whose slots are not closed.
	ErrInUse = errors.New("the guest's image is in use")
)

// largest is the most that a slot may reserve, in bytes: all that a guest
// with 32-bit addresses can reach, less where an int cannot say so.
const largest = min(1<<32, math.MaxInt/2)

// Image is the memory of an initialised guest. Nobody can change it, this
// process included. Its methods may be called by many goroutines at once.
//
// With a method other than Copy it keeps one file open (PageScan: up to three), and
// its pages count as memory of the process only once, however many slots
// there are.
type Image struct {
	src source
	max int // bytes of a slot

	mu     sync.Mutex
	slots  int // open ones
	closed bool
}

// source is an image as one method keeps it.
type source interface {
	// slot returns a new memory that shows the image.
	slot() (memory, error)
	// bytes returns how much memory the image takes at the most.
	bytes() int
	// close gives back what the image holds. No memory of it is left.
	close() error
}

// memory is a slot as one method keeps it: one user at a time.
type memory interface {
	// bytes returns the first n bytes, 0 ≤ n ≤ the image's maximum.
	bytes(n int) ([]byte, error)
	// reset makes it the image again and returns how many pages it took to
	// be changed.
	reset() int
	// trim is reset, and leaves no memory to the slot that it can do without.
	trim()
	// kept returns the bytes of memory that are its own after reset or
	// trim.
	kept() int
	// close gives everything back. Nothing is called after it succeeded.
	close() error
}

// New returns the image of a guest whose memory begins with initial and is
// zero beyond it. It copies initial and keeps no pages for the zeros at its
// end. Slots of the image may grow to maxBytes, at most 4 GiB; address space
// for as much is reserved for each of them, memory is not.
//
// The caller closes the image after its slots. The error is ErrNoRoom when
// the system refuses for want of room, and another one when initial is longer
// than maxBytes or the system does not have the method (Choose tells which
// one it has).
func New(initial []byte, maxBytes int, how Method) (*Image, error) {
	if len(initial) > maxBytes { // also where zeros at its end are
		return nil, fmt.Errorf("an image of %d bytes for a memory of at most %d bytes", len(initial), maxBytes)
	}
	initial = withoutZeroPages(initial)
	return Make(len(initial), maxBytes, how, content(initial, os.Getpagesize()))
}

// withoutZeroPages returns b without the pages at its end that hold nothing
// but zeros.
func withoutZeroPages(b []byte) []byte {
	page := os.Getpagesize()
	for len(b) > 0 {
		last := (len(b) - 1) / page * page
		if !isZero(b[last:]) {
			break
		}
		b = b[:last]
	}
	return b
}

// isZero tells whether a page or a part of one is all zeros.
func isZero(b []byte) bool {
	// Its first byte is zero, and each other one is as the one before it.
	return len(b) == 0 || b[0] == 0 && bytes.Equal(b[1:], b[:len(b)-1])
}

// Slot returns a new slot that shows the image. The caller closes it. The
// errors are ErrNoRoom and, after Close, ErrClosed.
//
// A mapped slot takes up to four of the process's mappings, of which Linux
// allows 65,530 unless told otherwise. Go's own memory needs some as well and
// cannot do without, so whoever makes slots bounds them, well below that.
func (im *Image) Slot() (*Slot, error) {
	im.mu.Lock()
	defer im.mu.Unlock()
	if im.closed {
		return nil, ErrClosed
	}
	mem, err := im.src.slot()
	if err != nil {
		return nil, fmt.Errorf("memory for a guest: %w", err)
	}
	im.slots++
	return &Slot{im: im, mem: mem, max: im.max}, nil
}

// Bytes returns how many bytes of memory the image takes at the most; pages of
// zeros take none until they are read. After Close it is 0.
func (im *Image) Bytes() int {
	im.mu.Lock()
	defer im.mu.Unlock()
	if im.closed {
		return 0
	}
	return im.src.bytes()
}

// Close gives back what the image holds. While a slot is open it does nothing
// and its error is ErrInUse. Closing again is no error.
func (im *Image) Close() error {
	im.mu.Lock()
	defer im.mu.Unlock()
	if im.closed {
		return nil
	}
	if im.slots > 0 {
		return fmt.Errorf("%w: %d of its memories are open", ErrInUse, im.slots)
	}
	im.closed = true
	return im.src.close()
}

// gone counts a slot that was closed.
func (im *Image) gone() {
	im.mu.Lock()
	defer im.mu.Unlock()
	im.slots--
}
