package testproc

import (
	"syscall"
	"testing"
)

// WithAddresses runs f while this process has so many bytes of address space
// more. What runs out of it meanwhile may end the process: see Apart.
func WithAddresses(t testing.TB, more uint64, f func()) {
	t.Helper()
	limited(t, syscall.RLIMIT_AS, uint64(Memory(t, Addresses))+more, f)
}

// WithData runs f while this process has so many bytes of private, writable
// memory more. What runs out of it meanwhile may end the process, too.
func WithData(t testing.TB, more uint64, f func()) {
	t.Helper()
	limited(t, syscall.RLIMIT_DATA, uint64(Memory(t, Data))+more, f)
}
