//go:build !portable

package plugins_test

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/plugins"
)

// withFiles lets this process open so many files more until the test ends.
func withFiles(t *testing.T, more uint64) {
	t.Helper()
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	next := uint64(f.Fd()) // the lowest number that is free
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: next + more, Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
			t.Error(err)
		}
	})
}

// TestWhatNobodyUsesMakesRoom opens more plugins than the process may have
// files open for.
func TestWhatNobodyUsesMakesRoom(t *testing.T) {
	const n, files = 12, 10
	f := newFull(t, n, func(*plugins.Config) {})
	withFiles(t, files)
	for range 3 {
		for _, name := range f.names {
			f.call(name)
		}
	}
	if opened := f.opened.Load(); opened <= n {
		t.Errorf("%d plugins were opened %d times: there was room for all", n, opened)
	}
	if f.call(f.names[n-1]) {
		t.Error("the one that was used last made room")
	}
}

// TestWithoutRoomACallIsToComeAgain has all be in use.
func TestWithoutRoomACallIsToComeAgain(t *testing.T) {
	const n = 12
	f := newFull(t, n, func(*plugins.Config) {})
	withFiles(t, 10)
	var used []plugins.Running
	var err error
	for _, name := range f.names {
		var r plugins.Running
		if r, err = f.Running(t.Context(), acme, name, active); err != nil {
			break
		}
		used = append(used, r)
	}
	wantCode(t, err, abi.Overloaded)
	if len(used) == 0 || len(used) == n {
		t.Fatalf("%d of %d were opened", len(used), n)
	}
	for i, r := range used {
		if got, err := says(t, r); err != nil || got != string(f.names[i]) {
			t.Errorf("one that is in use says %q, %v", got, err)
		}
		r.Release()
	}
	for _, name := range f.names {
		f.call(name)
	}
}
