//go:build !portable

package image_test

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carrelhost/carrel/host/sandbox/image"
	"github.com/carrelhost/carrel/internal/seccomp"
	"github.com/carrelhost/carrel/internal/testproc"
)

// protect is UFFDIO_WRITEPROTECT.
const protect = 0xC018AA06

// trackers counts the open files that have the system track writes.
func trackers(t *testing.T) (n int) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if to, err := os.Readlink(filepath.Join("/proc/self/fd", e.Name())); err == nil && to == "anon_inode:[userfaultfd]" {
			n++
		}
	}
	return n
}

func TestWritesAreTrackedWhereTheSystemCan(t *testing.T) {
	how := pageScan(t)
	const userModeOnly = 1
	fd, _, errno := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|userModeOnly, 0, 0)
	if errno != 0 {
		t.Skip(errno)
	}
	if err := unix.Close(int(fd)); err != nil {
		t.Fatal(err)
	}
	before := trackers(t)
	im, err := image.New(pattern(page), page, how)
	if err != nil {
		t.Fatal(err)
	}
	if got := trackers(t) - before; got != 1 {
		t.Errorf("an image has %d trackers", got)
	}
	if err := im.Close(); err != nil {
		t.Fatal(err)
	}
	if got := trackers(t) - before; got != 0 {
		t.Errorf("a closed image has %d trackers", got)
	}
}

// Everything holds without a tracker, and its own tests do not need one.
func TestWhereNothingIsTrackedSlotsAreTheSame(t *testing.T) {
	if !testproc.Apart(t) {
		return
	}
	pageScan(t)
	forbid(t, unix.SYS_USERFAULTFD)
	chosen(t, image.PageScan)
	newSlot(t, newImage(t, pattern(page), 2*page, image.PageScan))
	if n := trackers(t); n > 0 {
		t.Fatalf("there are %d trackers", n)
	}
	for name, test := range map[string]func(*testing.T){
		"they behave as plain memory":           TestSlotsBehaveAsPlainMemory,
		"many at once":                          TestManySlotsAtOnce,
		"a reset while another one is written":  TestAResetHarmsNoSlotThatIsBeingWritten,
		"they are the image again":              TestASlotIsTheImageAgainAfterAReset,
		"trimming is a reset":                   TestTrimIsAReset,
		"reading makes nothing dirty":           TestReadingMakesNothingDirty,
		"a reset tells what it restored":        TestDirtyIsWhatTheResetTookToBeChanged,
		"huge pages":                            TestAResetFindsHugePages,
		"pages that were swapped out":           TestAResetFindsPagesThatWereSwappedOut,
		"memory that is locked":                 TestAResetRestoresMemoryThatIsLocked,
		"a call that wrote very much":           TestAfterACallThatWroteVeryMuchTheMemoryIsGivenBack,
		"pages that are written once are given": TestPagesThatWereWrittenOnceAreNotRestoredForEver,
		"what they keep":                        TestPrivateIsLessAfterASift,
	} {
		t.Run(name, test)
	}
}

// The system refuses marks to slots that have some, and those go on.
func TestASlotThatGetsNoMoreMarksIsRestored(t *testing.T) {
	if !testproc.Apart(t) {
		return
	}
	how := pageScan(t)
	const pages = 64
	initial := pattern(pages / 2 * page)
	im := newImage(t, initial, pages*page, how)
	grown, small := newSlot(t, im), newSlot(t, im)
	for _, s := range []*image.Slot{grown, small} {
		fill(s.Bytes(pages / 2 * page)[3*page:5*page], 0xAA)
		reset(t, s)
	}
	fill(grown.Bytes(pages * page)[40*page:], 0xBB)
	if err := seccomp.Refuse(seccomp.Call{Number: unix.SYS_IOCTL, Request: protect}); err != nil {
		t.Skip(err)
	}
	for round := range 100 { // more than it takes for pages to be given back
		for i, s := range []*image.Slot{grown, small, newSlot(t, im)} {
			n := (pages/2 + (i+round)%(pages/2+1)) * page
			b := s.Bytes(n)
			same(t, "before a write", b, shown(initial, n))
			at := (round * 7 % pages) * page
			fill(b[min(at, n-page):][:page], byte(round+1))
			end := s.Reset
			if round%10 == 9 {
				end = s.Trim
			}
			if err := end(); err != nil {
				t.Fatal(err)
			}
			same(t, "after a reset", s.Bytes(pages*page), shown(initial, pages*page))
		}
	}
}
