// Package seccomp has Linux refuse system calls, so that tests meet a system
// that lacks them. It is for tests alone, and for amd64 and arm64.
//
//nolint:gosec // The kernel takes the filter by its address.
package seccomp

import (
	"fmt"
	"os/exec"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Call is a system call, or one request of those that it takes.
type Call struct {
	Number  uint32 // as unix.SYS_IOCTL
	Request uint32 // its second argument; 0 = whatever it is
}

// Where struct seccomp_data has the number and the lower half of the second
// argument, in bytes, on the processors above.
const (
	numberAt  = 0
	requestAt = 24
)

// Refuse has the kernel refuse calls of this process with EPERM, and of all
// that it starts, for good.
func Refuse(calls ...Call) error {
	return install(unix.SECCOMP_FILTER_FLAG_TSYNC, calls)
}

// Start starts a command of which the kernel refuses calls. This process is
// none the wiser.
func Start(cmd *exec.Cmd, calls ...Call) error {
	done := make(chan error)
	go func() {
		// The filter is the thread's, which ends with this goroutine, as that
		// never unlocks it; the command inherits it.
		runtime.LockOSThread()
		if err := install(0, calls); err != nil {
			done <- err
			return
		}
		done <- cmd.Start()
	}()
	return <-done
}

// install gives this thread a filter, or with the flag all of the process.
func install(flags uintptr, calls []Call) error {
	if runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64" {
		return fmt.Errorf("seccomp: no filter for %s", runtime.GOARCH)
	}
	load := func(at uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: at}
	}
	// Where it is not k, so many instructions are passed over.
	unless := func(k uint32, over uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: k, Jf: over}
	}
	end := func(with uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: with}
	}
	refuse := end(unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM))
	var program []unix.SockFilter
	for _, c := range calls {
		if c.Request == 0 {
			program = append(program, load(numberAt), unless(c.Number, 1), refuse)
			continue
		}
		program = append(program, load(numberAt), unless(c.Number, 3), load(requestAt), unless(c.Request, 1), refuse)
	}
	program = append(program, end(unix.SECCOMP_RET_ALLOW))
	filter := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	runtime.LockOSThread() // the next two must be of one thread
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("seccomp: %w", err)
	}
	unsynced, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&filter)))
	runtime.KeepAlive(&filter)
	switch {
	case errno != 0:
		return fmt.Errorf("seccomp: %w", errno)
	case unsynced != 0:
		return fmt.Errorf("seccomp: thread %d does not take the filter", unsynced)
	}
	return nil
}
