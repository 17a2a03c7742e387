//go:build !portable

package sandbox

import (
	"fmt"
	"math"
	"os"
	"strings"
	"syscall"
	"time"
)

// limitsChildren is whether limitProcess bounds anything.
const limitsChildren = true

// niceness is how much a compilation stands back behind guests that run.
const niceness = 5

// limitProcess bounds what this process may do from now on, for good: memory
// is bytes of address space beyond what it has now, which for the most part
// the Go runtime reserved and does not use.
func limitProcess(memory int64, cpu time.Duration) error {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return err
	}
	var pages uint64
	if _, err := fmt.Sscan(strings.TrimSpace(string(b)), &pages); err != nil {
		return fmt.Errorf("/proc/self/statm: %w", err)
	}
	space := pages*uint64(os.Getpagesize()) + uint64(memory)
	if err := lower(syscall.RLIMIT_AS, space); err != nil {
		return fmt.Errorf("of memory: %w", err)
	}
	if err := lower(syscall.RLIMIT_CPU, uint64(math.Ceil(cpu.Seconds()))); err != nil {
		return fmt.Errorf("of time on the CPU: %w", err)
	}
	if err := syscall.Setpriority(syscall.PRIO_PROCESS, 0, niceness); err != nil {
		return fmt.Errorf("setpriority: %w", err)
	}
	return nil
}

// lower limits a resource, unless whoever started the host limited it more:
// nobody may raise that but root, and root would not want it. Soft and hard are
// the same: the runtime ignores the signal of the soft limit of time.
func lower(resource int, most uint64) error {
	var now syscall.Rlimit
	if err := syscall.Getrlimit(resource, &now); err != nil {
		return err
	}
	most = min(most, now.Max)
	return syscall.Setrlimit(resource, &syscall.Rlimit{Cur: most, Max: most})
}

// killed reports whether a process was ended by SIGKILL.
func killed(p *os.ProcessState) bool {
	w, ok := p.Sys().(syscall.WaitStatus)
	return ok && w.Signaled() && w.Signal() == syscall.SIGKILL
}

// peakBytes is how much memory a process had at most.
func peakBytes(p *os.ProcessState) int64 {
	u, ok := p.SysUsage().(*syscall.Rusage)
	if !ok {
		return 0
	}
	return u.Maxrss << 10
}
