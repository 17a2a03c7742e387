//go:build !portable

package image_test

import (
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/carrelhost/carrel/host/sandbox/image"
	"github.com/carrelhost/carrel/internal/testproc"
)

// mapped runs a test with each method that maps a file.
func mapped(t *testing.T, test func(t *testing.T, how image.Method)) {
	t.Helper()
	for _, how := range methods(t) {
		if how != image.Copy {
			t.Run(how.String(), func(t *testing.T) { test(t, how) })
		}
	}
}

func TestEveryLinuxHasMadvise(t *testing.T) {
	if all := methods(t); !slices.Contains(all, image.Madvise) {
		t.Errorf("there are but %v", all)
	}
}

// faults tells whether writing a byte that many bytes from the start of b
// faults.
func faults(b []byte, at int) (faulted bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { faulted = recover() != nil }()
	poke(b, at)
	return false
}

// poke is a call of its own: the compiler may move a bare write to where
// nothing is deferred any more.
//
//go:noinline
func poke(b []byte, at int) {
	*(*byte)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(b)), at)) = 1
}

func TestWhatWasNotAskedForCannotBeReached(t *testing.T) {
	mapped(t, func(t *testing.T, how image.Method) {
		const pages = 32
		im := newImage(t, pattern(2*page), pages*page, how)
		for range 20 { // neighbours
			newSlot(t, im)
		}
		s := newSlot(t, im)
		for _, n := range []int{1, 4 * page, 4*page + 1, pages * page} {
			b := s.Bytes(n)
			open := max((n+page-1)/page, 2) * page
			if faults(b, 0) || faults(b, open-1) {
				t.Fatalf("%d bytes: a write within them faults", n)
			}
			for _, at := range []int{-1, -64 << 10, open, open + 64<<10 - 1, pages * page, pages*page + 64<<10 - 1} {
				if !faults(b, at) {
					t.Errorf("%d bytes: a write at %d does not fault", n, at)
				}
			}
			reset(t, s)
			same(t, "after a reset", s.Bytes(n), shown(pattern(2*page), n))
		}
	})
}

func TestNobodyCanWriteTheImage(t *testing.T) {
	mapped(t, func(t *testing.T, how image.Method) {
		im := newImage(t, pattern(3*page), 4*page, how)
		found := false
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			to, err := os.Readlink(filepath.Join("/proc/self/fd", e.Name()))
			if err != nil || !strings.HasPrefix(to, "/memfd:guest-image") {
				continue
			}
			found = true
			fd, err := strconv.Atoi(e.Name())
			if err != nil {
				t.Fatal(err)
			}
			_, err = unix.Pwrite(fd, []byte{0}, 0)
			mustBe(t, "writing to the file", err, unix.EPERM)
			mustBe(t, "shortening the file", unix.Ftruncate(fd, 0), unix.EPERM)
			mustBe(t, "lengthening the file", unix.Ftruncate(fd, 1<<20), unix.EPERM)
			_, err = unix.Mmap(fd, 0, page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
			mustBe(t, "mapping the file for writing", err, unix.EPERM)
			flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
			if err != nil || flags&unix.FD_CLOEXEC == 0 {
				t.Errorf("children get the file: flags %#x, %v", flags, err)
			}
		}
		if !found {
			t.Fatal("no image is open")
		}
		same(t, "a slot", newSlot(t, im).Bytes(3*page), pattern(3*page))
	})
}

func TestAResetFindsHugePages(t *testing.T) {
	const huge = 2 << 20
	mapped(t, func(t *testing.T, how image.Method) {
		initial := pattern(page)
		s := newSlot(t, newImage(t, initial, 3*huge, how))
		b := s.Bytes(3 * huge)
		if err := unix.Madvise(b, unix.MADV_HUGEPAGE); err != nil {
			t.Skipf("no huge pages: %v", err)
		}
		for _, size := range []int{2*huge + 9, 3 * huge} {
			for at := 0; at < size; at += 64 * page {
				b[at]++
			}
			reset(t, s)
			same(t, "after a reset", b, shown(initial, 3*huge))
			if s.Dirty() < huge/page {
				t.Log("the system gave no huge page")
			}
		}
	})
}

func TestAResetFindsPagesThatWereSwappedOut(t *testing.T) {
	swaps, err := os.ReadFile("/proc/swaps")
	if err != nil || strings.Count(string(swaps), "\n") < 2 {
		t.Log("this system has no swap: the pages will stay in memory")
	}
	mapped(t, func(t *testing.T, how image.Method) {
		initial := pattern(20 * page)
		s := newSlot(t, newImage(t, initial, 40*page, how))
		b := s.Bytes(40 * page)
		for range 3 {
			fill(b[5*page:30*page], 0xAB)
			if err := unix.Madvise(b, unix.MADV_PAGEOUT); err != nil {
				t.Skipf("pages cannot be sent out: %v", err)
			}
			b[6*page] = 1 // one comes back
			reset(t, s)
			same(t, "after a reset", b, shown(initial, 40*page))
		}
	})
}

func TestAResetRestoresMemoryThatIsLocked(t *testing.T) {
	mapped(t, func(t *testing.T, how image.Method) {
		initial := pattern(3 * page)
		s := newSlot(t, newImage(t, initial, 8*page, how))
		b := s.Bytes(8 * page)
		if err := unix.Mlock(b); err != nil {
			t.Skipf("nothing can be locked: %v", err)
		}
		for _, end := range []func() error{s.Reset, s.Trim, s.Reset} {
			fill(b, 0xAB)
			if err := end(); err != nil {
				t.Fatal(err)
			}
			same(t, "after a reset", b, shown(initial, 8*page))
		}
	})
}

func TestReadingMakesNothingDirty(t *testing.T) {
	s := newSlot(t, newImage(t, holed(), 64*page, pageScan(t)))
	for range 3 {
		same(t, "a slot", s.Bytes(64*page), shown(holed(), 64*page))
		reset(t, s)
		if s.Dirty() != 0 {
			t.Fatalf("%d dirty pages", s.Dirty())
		}
	}
}

func TestPagesThatWereWrittenOnceAreNotRestoredForEver(t *testing.T) {
	s := newSlot(t, newImage(t, pattern(100*page), 200*page, pageScan(t)))
	b := s.Bytes(200 * page)
	for p := range 200 {
		b[p*page]++
	}
	reset(t, s)
	if s.Dirty() != 200 {
		t.Fatalf("%d dirty pages, want 200", s.Dirty())
	}
	for range 100 {
		b[3*page], b[150*page] = 99, 99
		reset(t, s)
		same(t, "after a reset", b, shown(pattern(100*page), 200*page))
	}
	if s.Dirty() != 2 {
		t.Errorf("after 100 calls that write 2 pages there are %d dirty pages", s.Dirty())
	}
}

func TestPagesThatEachCallWritesFaultOnlyOnce(t *testing.T) {
	s := newSlot(t, newImage(t, pattern(100*page), 200*page, pageScan(t)))
	b := s.Bytes(200 * page)
	runtime.LockOSThread() // whose faults are counted
	defer runtime.UnlockOSThread()
	var faults int
	for call := range 200 {
		before := minorFaults(t)
		for p := 50; p < 150; p++ {
			b[p*page]++
		}
		if call > 0 {
			faults += minorFaults(t) - before
		}
		reset(t, s)
	}
	// A few for what the test and Go do themselves.
	if faults > 50 {
		t.Errorf("%d page faults in 199 calls that write the same 100 pages", faults)
	}
}

// minorFaults counts the page faults of this thread.
func minorFaults(t *testing.T) int {
	t.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &u); err != nil {
		t.Fatal(err)
	}
	return int(u.Minflt)
}

func TestAfterACallThatWroteVeryMuchTheMemoryIsGivenBack(t *testing.T) {
	const pages = 4096
	s := newSlot(t, newImage(t, pattern(pages/2*page), pages*page, pageScan(t)))
	b := s.Bytes(pages * page)
	for _, c := range []struct {
		name        string
		first, last int
	}{
		{"many pages of the image and beyond", 0, pages},
		{"many pages beyond the image", pages/2 - 1, pages},
		{"more pages together than in either part", pages / 4, pages*3/4 + 1},
	} {
		for p := c.first; p < c.last; p++ {
			b[p*page]++
		}
		reset(t, s)
		same(t, c.name, b, shown(pattern(pages/2*page), pages*page))
		reset(t, s)
		if s.Dirty() != 0 {
			t.Errorf("%s: %d pages are kept", c.name, s.Dirty())
		}
	}
}

func TestTrimGivesPrivatePagesBack(t *testing.T) {
	s := newSlot(t, newImage(t, pattern(10*page), 50*page, pageScan(t)))
	fill(s.Bytes(50*page), 1)
	if err := s.Trim(); err != nil {
		t.Fatal(err)
	}
	reset(t, s)
	if s.Dirty() != 0 {
		t.Errorf("%d private pages after trimming", s.Dirty())
	}
}

// pageScan skips the test where the system does not have the method.
func pageScan(t *testing.T) image.Method {
	t.Helper()
	im, err := image.New(nil, page, image.PageScan)
	if err != nil {
		t.Skip(err)
	}
	if err := im.Close(); err != nil {
		t.Fatal(err)
	}
	if how, why := image.Choose(); how != image.PageScan {
		t.Skip(why)
	}
	return image.PageScan
}

// usage returns the process's address space and resident memory, in bytes.
func usage(t *testing.T) (space, resident int) {
	t.Helper()
	return int(testproc.Memory(t, testproc.Addresses)), int(testproc.Memory(t, testproc.Resident))
}

// openFiles counts the process's.
func openFiles(t *testing.T) int {
	t.Helper()
	e, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(e)
}

func TestAThousandSlotsLeaveNothingBehind(t *testing.T) {
	each(t, func(t *testing.T, how image.Method) {
		const most = 64 << 20
		initial := pattern(1 << 20)
		cycle := func(n int) {
			im, err := image.New(initial, most, how)
			if err != nil {
				t.Fatal(err)
			}
			for range n {
				s, err := im.Slot()
				if err != nil {
					t.Fatal(err)
				}
				b := s.Bytes(2 << 20)
				for at := 0; at < len(b); at += 16 * page {
					b[at]++
				}
				reset(t, s)
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
			}
			if err := im.Close(); err != nil {
				t.Fatal(err)
			}
		}
		cycle(20)
		debug.FreeOSMemory()
		space, resident := usage(t)
		files := openFiles(t)
		for range 10 {
			cycle(100)
		}
		debug.FreeOSMemory()
		spaceAfter, residentAfter := usage(t)
		// One slot that stayed would be 64 MiB and 2 MiB.
		if how != image.Copy && spaceAfter-space >= most {
			t.Errorf("the address space grew by %d bytes", spaceAfter-space)
		}
		if residentAfter-resident > 8<<20 {
			t.Errorf("the memory grew by %d bytes", residentAfter-resident)
		}
		if n := openFiles(t); n > files {
			t.Errorf("%d files are open, before it were %d", n, files)
		}
	})
}

func TestThousandsOfSlotsReserveNoMemory(t *testing.T) {
	if strconv.IntSize < 64 {
		t.Skip("there are not so many addresses")
	}
	mapped(t, func(t *testing.T, how image.Method) {
		im := newImage(t, pattern(64<<10), 64<<20, how)
		_, before := usage(t)
		const slots = 4000 // 250 GiB
		for range slots {
			newSlot(t, im).Bytes(128 << 10)[70_000] = 1
		}
		_, after := usage(t)
		// The written page, and what Go keeps of a slot.
		if per := (after - before) / slots; per > page+16<<10 {
			t.Errorf("%d bytes per slot", per)
		}
	})
}
