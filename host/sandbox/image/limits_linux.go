//go:build !portable

package image

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// refused is the error of a request that the system refused. When it is for
// want of room it is ErrNoRoom and names the limits that may be the reason;
// the system does not say which one was.
func refused(what string, size int, err error) error {
	if size > 0 {
		what = fmt.Sprintf("%s %d bytes", what, size)
	}
	switch {
	case errors.Is(err, unix.ENOMEM):
		return fmt.Errorf("%w: %s: %w: raise what is reached of the address space (ulimit -v, %s), data (ulimit -d, %s), "+
			"mappings of the process (sysctl vm.max_map_count, %s) and committed memory (sysctl vm.overcommit_memory, %s)",
			ErrNoRoom, what, err, limit(unix.RLIMIT_AS), limit(unix.RLIMIT_DATA),
			setting("/proc/sys/vm/max_map_count"), setting("/proc/sys/vm/overcommit_memory"))
	case errors.Is(err, unix.ENOSPC): // what a file in memory says where a mapping says ENOMEM
		return fmt.Errorf("%w: %s: %w: raise the limit on committed memory (sysctl vm.overcommit_memory, %s, and vm.overcommit_ratio, %s) "+
			"or on files in memory (tmpfs)", ErrNoRoom, what, err,
			setting("/proc/sys/vm/overcommit_memory"), setting("/proc/sys/vm/overcommit_ratio"))
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
		return fmt.Errorf("%w: %s: %w: an image keeps up to three files open; raise the limit on open files (ulimit -n, %s)",
			ErrNoRoom, what, err, limit(unix.RLIMIT_NOFILE))
	case errors.Is(err, unix.EFBIG):
		return fmt.Errorf("%w: %s: %w: raise the limit on the size of files (ulimit -f, %s bytes)",
			ErrNoRoom, what, err, limit(unix.RLIMIT_FSIZE))
	case errors.Is(err, unix.EAGAIN):
		return fmt.Errorf("%w: %s: %w: raise the limit on locked memory (ulimit -l, %s bytes)",
			ErrNoRoom, what, err, limit(unix.RLIMIT_MEMLOCK))
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.ENOSYS):
		return fmt.Errorf("%s: %w: have the filter of system calls (seccomp) let memfd_create, fcntl and mmap pass", what, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// limit shows one of the process's limits.
func limit(resource int) string {
	var l unix.Rlimit
	if err := unix.Getrlimit(resource, &l); err != nil {
		return "unknown"
	}
	if l.Cur == unix.RLIM_INFINITY {
		return "unlimited"
	}
	return strconv.FormatUint(l.Cur, 10)
}

// setting shows one of the system's settings.
func setting(path string) string {
	b, err := os.ReadFile(path) //nolint:gosec // G304: the paths are constants
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(b))
}
