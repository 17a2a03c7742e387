//go:build !portable

package image

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// guard is how many bytes before and after each slot nobody may touch, beside
// what the slot has not grown to yet. One page of WebAssembly.
const guard = 64 << 10

// mappedImage is an image in a sealed file in memory. Slots map the file
// privately: the system copies a page when it is first written.
type mappedImage struct {
	file    *os.File // nil when the image is empty
	content []byte   // the file, mapped for reading; whole pages
	max     int      // bytes that a slot may grow to
	scan    *scanner // nil: Madvise
	track   *tracker // nil: Madvise, or where there is none
}

// openMapped makes the file, seals it and maps it.
func openMapped(size, maxBytes int, how Method, fill func(io.WriterAt) error) (source, error) {
	im := &mappedImage{max: wholePages(maxBytes)}
	switch how {
	case Madvise:
	case PageScan:
		scan, err := openScanner()
		if err != nil {
			return nil, err
		}
		im.scan = scan
		im.track, _ = openTracker() // scans take longer without
	default:
		return nil, errors.New("no such method")
	}
	if err := im.fill(size, fill); err != nil {
		return nil, errors.Join(err, im.close())
	}
	return im, nil
}

// fill makes the file and its mapping. After an error, close gives back what
// there is.
func (im *mappedImage) fill(size int, fill func(io.WriterAt) error) error {
	size = wholePages(size)
	if size == 0 {
		return nil
	}
	fd, err := memoryFile()
	if err != nil {
		return refused("a file in memory of", size, err)
	}
	im.file = os.NewFile(uintptr(fd), "guest image")
	if err := im.file.Truncate(int64(size)); err != nil {
		return refused("a file in memory of", size, err)
	}
	// It is written, not mapped: where the system has no memory for it, that is
	// an error and no signal. What is not written stays a hole, which takes
	// memory only once read.
	if err := fill(refusing{im.file, size}); err != nil {
		return err
	}
	const all = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE
	if _, err := unix.FcntlInt(im.file.Fd(), unix.F_ADD_SEALS, all); err != nil {
		return fmt.Errorf("seal a file in memory: %w", err)
	}
	// Not shared: older kernels map no sealed file so, not even for reading.
	if im.content, err = mapMemory(fd, size, unix.PROT_READ); err != nil {
		return refused("mapping an image of", size, err)
	}
	return nil
}

// refusing writes into a file in memory of so many bytes, and says what is to
// be done if the system refuses.
type refusing struct {
	file *os.File
	size int
}

// WriteAt is that of the file.
func (r refusing) WriteAt(p []byte, at int64) (int, error) {
	n, err := r.file.WriteAt(p, at)
	if err != nil {
		err = refused("writing a file in memory of", r.size, err)
	}
	return n, err
}

// memoryFile opens a file that has no name and can be sealed.
func memoryFile() (int, error) {
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate("guest-image", flags|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) { // a kernel before 6.3 does not know the last flag
		fd, err = unix.MemfdCreate("guest-image", flags)
	}
	return fd, err
}

func (im *mappedImage) bytes() int { return len(im.content) }

func (im *mappedImage) close() error {
	var errs []error
	if len(im.content) > 0 {
		errs = append(errs, unmapMemory(im.content))
		im.content = nil
	}
	if im.file != nil {
		errs = append(errs, im.file.Close())
		im.file = nil
	}
	if im.scan != nil {
		errs = append(errs, im.scan.close())
		im.scan = nil
	}
	if im.track != nil {
		errs = append(errs, im.track.close())
		im.track = nil
	}
	return errors.Join(errs...)
}

// slot reserves address space for the maximum and maps the image at its
// start. What is reserved may not be touched, and so counts against no limit
// on memory that is committed, however strict the system is.
func (im *mappedImage) slot() (memory, error) {
	size := im.max + 2*guard
	reserved, err := mapMemory(-1, size, unix.PROT_NONE)
	if err != nil {
		return nil, refused("reserving", size, err)
	}
	m := &mapped{im: im, reserved: reserved, all: reserved[guard : guard+im.max]}
	// A huge page would make 2 MiB private by a write of one byte. Systems
	// that have none refuse, and that is as well.
	_ = unix.Madvise(reserved, unix.MADV_NOHUGEPAGE)
	if n := len(im.content); n > 0 {
		if err := mapOver(m.all[:n], int(im.file.Fd())); err != nil {
			return nil, errors.Join(refused("mapping an image of", n, err), m.close())
		}
		m.open = n
	}
	m.track()
	return m, nil
}

// mapped is a slot as a private mapping.
type mapped struct {
	im       *mappedImage
	reserved []byte // with its guards; most of it may not be touched
	all      []byte // what it may grow to
	open     int    // bytes of all that may be touched: whole pages, the image at least
	resets   int    // since it was last sifted
	held     int    // private pages, since the last reset or trim
	tracked  bool   // marks tell what was written
	regions  regions
}

// bytes opens what is missing.
func (m *mapped) bytes(n int) ([]byte, error) {
	if end := wholePages(n); end > m.open {
		if err := unix.Mprotect(m.all[m.open:end], unix.PROT_READ|unix.PROT_WRITE); err != nil {
			return nil, refused("growing to", end, err)
		}
		from := m.open
		m.open = end
		m.mark(from, end)
	}
	return m.all[:n:n], nil
}

// The pages that PageScan keeps private cost a copy at each reset, whether
// they were written or not: 0.2 to 0.5 µs each. Giving them back costs as much
// and a page fault for each that is written again: about 1 µs, in virtual
// machines 4 to 10.
const (
	// manyPages is from where on a reset gives all pages back instead. What
	// wrote so many was not the usual call, and the memory is worth more.
	manyPages = 2048
	// siftAfter is at which reset the pages are given back that the last call
	// did not change, so that what one call wrote is not copied for ever.
	siftAfter = 64
)

func (m *mapped) reset() int {
	if m.im.scan == nil {
		m.drop()
		return m.open / os.Getpagesize()
	}
	m.resets++
	sift := m.resets >= siftAfter
	if sift {
		m.resets = 0
	}
	m.held = 0
	dirty, err := m.restore(manyPages, sift)
	if err != nil { // what is exact does not depend on the scan
		m.tracked = m.tracked && errors.Is(err, errTooMany)
		m.drop()
		return m.open / os.Getpagesize()
	}
	m.held += dirty // less those that it sifted out
	return dirty
}

func (m *mapped) trim() { m.drop() }

// drop gives all private pages back; the image and zeros are what is left.
func (m *mapped) drop() {
	m.held = 0
	if m.open == 0 {
		return
	}
	if err := m.give(0, m.open); err != nil {
		// Memory that the process has locked cannot be given back.
		n := copy(m.all[:m.open], m.im.content)
		clear(m.all[n:m.open])
		m.held = m.open / os.Getpagesize()
	}
}

// spanned is how many bytes one page of the system's tables maps, where pages
// are 4 KiB.
const spanned = 2 << 20

// kept counts the tables, too, as if all that is open had been touched:
// they stay until the slot is closed. Two more are for what begins or ends in
// the middle of a span.
func (m *mapped) kept() int {
	return (m.held + m.open/spanned + 2) * os.Getpagesize()
}

// swapOut asks the system to write the private pages to its swap space.
func (m *mapped) swapOut() {
	_ = unix.Madvise(m.all[:m.open], unix.MADV_PAGEOUT)
}

func (m *mapped) close() error {
	if err := unmapMemory(m.reserved); err != nil {
		return fmt.Errorf("give back a guest's memory: %w", err)
	}
	m.reserved, m.all, m.open = nil, nil, 0
	return nil
}
