//go:build !portable

package image_test

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carrelhost/carrel/host/sandbox/image"
	"github.com/carrelhost/carrel/internal/seccomp"
	"github.com/carrelhost/carrel/internal/testproc"
)

// forbid has the kernel refuse system calls of this process, for good.
func forbid(t *testing.T, calls ...uint32) {
	t.Helper()
	refused := make([]seccomp.Call, len(calls))
	for i, c := range calls {
		refused[i].Number = c
	}
	if err := seccomp.Refuse(refused...); err != nil {
		t.Skip(err)
	}
}

// chosen checks what Choose takes, that it works, and what is said of others.
func chosen(t *testing.T, want image.Method, says ...string) {
	t.Helper()
	how, why := image.Choose()
	if how != want {
		t.Errorf("%s is chosen, want %s: %s", how, want, why)
	}
	for _, s := range says {
		if !strings.Contains(why, s) {
			t.Errorf("%q does not say %q", why, s)
		}
	}
	s := newSlot(t, newImage(t, pattern(3*page), 5*page, how))
	fill(s.Bytes(5*page), 0xAA)
	reset(t, s)
	same(t, "a slot", s.Bytes(5*page), shown(pattern(3*page), 5*page))
}

func TestWhereTheScanIsForbiddenPagesAreGivenBack(t *testing.T) {
	if !testproc.Apart(t) {
		return
	}
	how := pageScan(t)
	early := newSlot(t, newImage(t, pattern(3*page), 5*page, how))
	forbid(t, unix.SYS_IOCTL)
	chosen(t, image.Madvise, "page scan is left out: ", "PAGEMAP_SCAN: operation not permitted: have the filter of system calls (seccomp) let ioctl 0xc0606610 pass")
	for range 3 {
		fill(early.Bytes(5*page), 0xAA)
		reset(t, early)
		same(t, "a slot from before", early.Bytes(5*page), shown(pattern(3*page), 5*page))
	}
}

func TestWhereFilesInMemoryAreForbiddenEverythingIsCopied(t *testing.T) {
	if !testproc.Apart(t) {
		return
	}
	forbid(t, unix.SYS_MEMFD_CREATE)
	chosen(t, image.Copy, "page scan is left out: ", "madvise is left out: ", "operation not permitted: have the filter of system calls (seccomp) let memfd_create,")
}

func TestWhereNoProcIsMountedPagesAreGivenBack(t *testing.T) {
	if !testproc.Inside(t) {
		again := testproc.Again(t.Context(), t)
		again.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  unix.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
		}
		testproc.Run(t, again)
		return
	}
	if err := unix.Chroot(t.TempDir()); err != nil {
		t.Skip(err)
	}
	chosen(t, image.Madvise, "page scan is left out: ", "/proc/self/pagemap", "mount /proc")
}

// closer is an image or a slot.
type closer interface{ Close() error }

// fillUp opens until there is no room and returns the error. One that is
// closed then makes room for another, and all are closed at the end.
func fillUp(t *testing.T, most int, open func() (closer, error)) error {
	t.Helper()
	var opened []closer
	for len(opened) < most {
		o, err := open()
		if err == nil {
			opened = append(opened, o)
			continue
		}
		mustBe(t, "the one that does not fit", err, image.ErrNoRoom)
		if len(opened) == 0 {
			t.Fatalf("there is no room at all: %v", err)
		}
		if err := opened[0].Close(); err != nil {
			t.Fatal(err)
		}
		again, aerr := open()
		if aerr != nil {
			t.Fatalf("after one was closed: %v", aerr)
		}
		opened[0] = again
		for _, o := range opened {
			if err := o.Close(); err != nil {
				t.Error(err)
			}
		}
		return err
	}
	t.Fatalf("%d fit", most)
	return nil
}

// lower sets a limit of this process.
func lower(t *testing.T, resource int, to uint64) {
	t.Helper()
	var l unix.Rlimit
	if err := unix.Getrlimit(resource, &l); err != nil {
		t.Fatal(err)
	}
	if l.Max < to {
		t.Skipf("the limit is %d already", l.Max)
	}
	l.Cur = to
	if err := unix.Setrlimit(resource, &l); err != nil {
		t.Fatal(err)
	}
}

func TestAnAddressSpaceThatIsTooSmallIsAnErrorThatNamesIt(t *testing.T) {
	if !testproc.Apart(t) {
		return
	}
	im := newImage(t, pattern(page), 64<<20, image.Madvise)
	space, _ := usage(t)
	lower(t, unix.RLIMIT_AS, uint64(space+220<<20))
	err := fillUp(t, 4, func() (closer, error) { return im.Slot() })
	if !strings.Contains(err.Error(), "ulimit -v, ") || strings.Contains(err.Error(), "ulimit -v, unlimited") {
		t.Errorf("%v does not name the limit", err)
	}
}

func TestTooFewOpenFilesAreAnErrorThatNamesThem(t *testing.T) {
	if !testproc.Apart(t) {
		return
	}
	how := pageScan(t)
	lower(t, unix.RLIMIT_NOFILE, uint64(openFiles(t)+9))
	err := fillUp(t, 20, func() (closer, error) { return image.New(pattern(page), page, how) })
	if !strings.Contains(err.Error(), "ulimit -n, ") {
		t.Errorf("%v does not name the limit", err)
	}
}

func TestAnImageLongerThanFilesMayBeIsAnErrorThatNamesTheLimit(t *testing.T) {
	if !testproc.Apart(t) {
		return
	}
	lower(t, unix.RLIMIT_FSIZE, uint64(page))
	newImage(t, pattern(page), 4*page, image.Madvise)
	_, err := image.New(pattern(2*page), 4*page, image.Madvise)
	mustBe(t, "an image of two pages", err, image.ErrNoRoom)
	if !strings.Contains(err.Error(), "ulimit -f, "+strconv.Itoa(page)) {
		t.Errorf("%v does not name the limit", err)
	}
	chosen(t, image.Copy, "madvise is left out: ")
}

// TestWhatTheSystemRefusesForWantOfRoomIsThat has each answer of the system,
// also those that take the whole of it to provoke.
func TestWhatTheSystemRefusesForWantOfRoomIsThat(t *testing.T) {
	for answer, tc := range map[syscall.Errno]struct {
		room  bool
		names string
	}{
		unix.ENOMEM: {true, "ulimit -v, "},
		unix.ENOSPC: {true, "vm.overcommit_ratio, "},
		unix.EMFILE: {true, "ulimit -n, "},
		unix.ENFILE: {true, "ulimit -n, "},
		unix.EFBIG:  {true, "ulimit -f, "},
		unix.EAGAIN: {true, "ulimit -l, "},
		unix.EPERM:  {false, "(seccomp)"},
		unix.ENOSYS: {false, "(seccomp)"},
		unix.EINVAL: {false, "invalid argument"},
	} {
		err := image.Refused("writing a file in memory of", page, &os.PathError{Op: "write", Path: "guest image", Err: answer})
		if errors.Is(err, image.ErrNoRoom) != tc.room || !errors.Is(err, answer) || !strings.Contains(err.Error(), tc.names) {
			t.Errorf("%v: %v", answer, err)
		}
	}
}

func TestASlotThatFindsNoRoomToGrowKeepsWhatItHas(t *testing.T) {
	if !testproc.Apart(t) {
		return
	}
	const most = 1<<30 - 1<<20
	s := newSlot(t, newImage(t, pattern(page), most, image.Madvise))
	b := s.Bytes(2 * page)
	fill(b, 7)
	// What is reserved is no data until it is opened.
	lower(t, unix.RLIMIT_DATA, uint64(testproc.Memory(t, testproc.Data)+256<<20))
	if s.Bytes(most+1) != nil || s.Lack() != nil {
		t.Errorf("beyond its maximum it lacks room: %v", s.Lack())
	}
	if s.Bytes(most) != nil {
		t.Error("it grew beyond the limit")
	}
	mustBe(t, "why", s.Lack(), image.ErrNoRoom)
	if !strings.Contains(s.Lack().Error(), "ulimit -d, ") {
		t.Errorf("%v does not name the limit", s.Lack())
	}
	for i, v := range b {
		if v != 7 {
			t.Fatalf("byte %d is %d", i, v)
		}
	}
	if s.Bytes(3*page) == nil {
		t.Error("it does not grow within the limit")
	}
	reset(t, s)
	same(t, "after a reset", s.Bytes(3*page), shown(pattern(page), 3*page))
}
