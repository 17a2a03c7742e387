//go:build unix

package marker

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mapShared maps a file of that many bytes, which stays open for no longer
// than this.
func mapShared(on *os.File, size int) ([]byte, error) {
	return unix.Mmap(int(on.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
}

func unmap(mapped []byte) error { return unix.Munmap(mapped) }

// entriesOf is a mapping as entries. It begins at a page, so they are aligned.
func entriesOf(mapped []byte) []entry {
	return unsafe.Slice((*entry)(unsafe.Pointer(unsafe.SliceData(mapped))), len(mapped)/entryBytes) //nolint:gosec // as many as were mapped
}
