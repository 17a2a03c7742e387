//go:build unix

package testproc

import (
	"os"
	"syscall"
	"testing"
)

// WithFiles runs f while this process can open so many files more. Nothing
// else may open or close any meanwhile.
func WithFiles(t testing.TB, more uint64, f func()) {
	t.Helper()
	var taken []*os.File
	for range more + 1 { // each gets the lowest number that is free
		null, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		taken = append(taken, null)
	}
	first := uint64(taken[more].Fd()) // that cannot be had
	for _, null := range taken {
		if err := null.Close(); err != nil {
			t.Fatal(err)
		}
	}
	limited(t, syscall.RLIMIT_NOFILE, first, f)
}

// limited runs f under a limit of this process.
func limited(t testing.TB, resource int, most uint64, f func()) {
	t.Helper()
	var was syscall.Rlimit
	if err := syscall.Getrlimit(resource, &was); err != nil {
		t.Fatal(err)
	}
	now := was
	assign(&now.Cur, most)
	if err := syscall.Setrlimit(resource, &now); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := syscall.Setrlimit(resource, &was); err != nil {
			t.Errorf("the limit stays: %v", err)
		}
	}()
	f()
}

// assign takes a limit for what the system takes it for: some have signed ones.
func assign[T int64 | uint64](to *T, n uint64) { *to = T(n) }
