//go:build !portable

//nolint:gosec // All that is unsafe in this package stands in this file.
package image

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mapMemory maps size bytes, of a file unless fd is -1. Nothing but
// unmapMemory gives them back.
func mapMemory(fd, size, protection int) ([]byte, error) {
	flags := unix.MAP_PRIVATE | unix.MAP_NORESERVE
	if fd < 0 {
		flags |= unix.MAP_ANON
	}
	at, err := unix.MmapPtr(fd, 0, nil, uintptr(size), protection, flags)
	if err != nil {
		return nil, err
	}
	return unsafe.Slice((*byte)(at), size), nil
}

// mapOver puts a private, writable mapping of a file in the place of b, which
// is whole pages of what mapMemory returned.
func mapOver(b []byte, fd int) error {
	_, err := unix.MmapPtr(fd, 0, unsafe.Pointer(unsafe.SliceData(b)), uintptr(len(b)),
		unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_FIXED|unix.MAP_NORESERVE)
	return err
}

// unmapMemory gives back what mapMemory returned, all of it.
func unmapMemory(b []byte) error {
	return unix.MunmapPtr(unsafe.Pointer(unsafe.SliceData(b)), uintptr(len(b)))
}

// address is where b begins. The memory is none of Go's, so it does not move.
func address(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

// The kernel's interface to PAGEMAP_SCAN, from linux/fs.h.
type (
	// scanArguments is struct pm_scan_arg.
	scanArguments struct {
		size              uint64
		flags             uint64
		start             uint64
		end               uint64
		walkEnd           uint64
		vec               uint64
		vecLen            uint64
		maxPages          uint64
		categoryInverted  uint64
		categoryMask      uint64
		categoryAnyofMask uint64
		returnMask        uint64
	}
	// region is struct page_region.
	region struct {
		start uint64
		end   uint64
		is    uint64 // the categories that were asked for
	}
	// regions is how many runs of pages one question may be answered with.
	regions [128]region
)

// scanTracked is PM_SCAN_CHECK_WPASYNC: the answer is an error unless the pages
// are tracked.
const scanTracked = 1 << 1

// pagemapScan is _IOWR('f', 16, struct pm_scan_arg).
const pagemapScan = 0xC0606610

// pagemapScanInto asks a pagemap file; the answer is in out. out is on the
// heap, where nothing moves: the kernel gets its address as a number.
func pagemapScanInto(pagemap uintptr, args *scanArguments, out *regions) (int, error) {
	args.size = uint64(unsafe.Sizeof(*args))
	args.vec, args.vecLen = uint64(uintptr(unsafe.Pointer(out))), uint64(len(out))
	n, _, errno := unix.Syscall(unix.SYS_IOCTL, pagemap, pagemapScan, uintptr(unsafe.Pointer(args)))
	runtime.KeepAlive(out)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// The kernel's interface to userfaultfd, from linux/userfaultfd.h.
type (
	// userfaultVersion is struct uffdio_api.
	userfaultVersion struct{ api, features, ioctls uint64 }
	// userfaultRange is struct uffdio_register and struct uffdio_writeprotect,
	// which ends before ioctls.
	userfaultRange struct{ start, size, mode, ioctls uint64 }
)

const (
	userfaultUserMode     = 1          // UFFD_USER_MODE_ONLY: no right is needed for it
	userfaultAPICall      = 0xC018AA3F // UFFDIO_API
	userfaultRegisterCall = 0xC020AA00 // UFFDIO_REGISTER
	userfaultProtectCall  = 0xC018AA06 // UFFDIO_WRITEPROTECT
	userfaultRegisterMode = 1 << 1     // UFFDIO_REGISTER_MODE_WP
	userfaultProtectMode  = 1 << 0     // UFFDIO_WRITEPROTECT_MODE_WP
	userfaultWriteProtect = 1 << 0     // UFFD_FEATURE_PAGEFAULT_FLAG_WP
	userfaultInFiles      = 1 << 12    // UFFD_FEATURE_WP_HUGETLBFS_SHMEM
	userfaultUnpopulated  = 1 << 13    // UFFD_FEATURE_WP_UNPOPULATED
	userfaultAsynchronous = 1 << 15    // UFFD_FEATURE_WP_ASYNC
)

func userfaultfd() (int, error) {
	fd, _, errno := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|unix.O_NONBLOCK|userfaultUserMode, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(fd), nil
}

// userfaultAPI must be the first thing that is asked.
func userfaultAPI(fd uintptr) error {
	return userfault(fd, userfaultAPICall, unsafe.Pointer(&userfaultVersion{
		api:      0xAA,
		features: userfaultWriteProtect | userfaultInFiles | userfaultUnpopulated | userfaultAsynchronous,
	}))
}

// userfaultRegister tracks b, which is whole pages, until it is unmapped.
func userfaultRegister(fd uintptr, b []byte) error {
	return userfault(fd, userfaultRegisterCall, unsafe.Pointer(&userfaultRange{
		start: address(b), size: uint64(len(b)), mode: userfaultRegisterMode,
	}))
}

// userfaultProtect marks the pages of b as not written.
func userfaultProtect(fd uintptr, b []byte) error {
	return userfault(fd, userfaultProtectCall, unsafe.Pointer(&userfaultRange{
		start: address(b), size: uint64(len(b)), mode: userfaultProtectMode,
	}))
}

func userfault(fd, call uintptr, argument unsafe.Pointer) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, call, uintptr(argument)); errno != 0 {
		return errno
	}
	return nil
}
