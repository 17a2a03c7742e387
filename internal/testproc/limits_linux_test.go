package testproc_test

import (
	"os"
	"syscall"
	"testing"

	"github.com/carrelhost/carrel/internal/testproc"
)

func TestMemoryIsCountedByItsKind(t *testing.T) {
	if !testproc.Apart(t) {
		return
	}
	const size = 64 << 20
	grown := func(why string, f func(), want map[testproc.Kind]bool) {
		before := map[testproc.Kind]int64{}
		for k := range want {
			before[k] = testproc.Memory(t, k)
		}
		f()
		for k, grows := range want {
			if more := testproc.Memory(t, k) - before[k]; (more > size/2) != grows {
				t.Errorf("%s: of %s there are %d bytes more", why, k, more)
			}
		}
	}
	var mapped []byte
	grown("mapped to be read", func() {
		if _, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ, syscall.MAP_ANON|syscall.MAP_PRIVATE); err != nil {
			t.Fatal(err)
		}
	}, map[testproc.Kind]bool{testproc.Addresses: true, testproc.Data: false, testproc.Resident: false, testproc.Anonymous: false})
	grown("mapped to be written", func() {
		var err error
		if mapped, err = syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE); err != nil {
			t.Fatal(err)
		}
	}, map[testproc.Kind]bool{testproc.Addresses: true, testproc.Data: true, testproc.Resident: false, testproc.Anonymous: false})
	grown("written", func() {
		for i := 0; i < size; i += os.Getpagesize() {
			mapped[i] = 1
		}
	}, map[testproc.Kind]bool{testproc.Resident: true, testproc.Anonymous: true}) // the race detector maps more
	if got := testproc.Memory(t, "nothing"); got != 0 {
		t.Errorf("of what the system does not count there are %d bytes", got)
	}
}

func TestFilesAreLimitedForAWhile(t *testing.T) {
	const more = 3
	opens := func() (n int) {
		for n < 2*more {
			f, err := os.Open(os.DevNull)
			if err != nil {
				break
			}
			defer f.Close() //nolint:errcheck // it was only read, and nothing of it
			n++
		}
		return n
	}
	var n int
	testproc.WithFiles(t, more, func() { n = opens() })
	if after := opens(); n != more || after != 2*more {
		t.Errorf("%d files can be opened, and %d afterwards", n, after)
	}
}

func TestAddressesAreLimitedForAWhile(t *testing.T) {
	if !testproc.Apart(t) {
		return
	}
	const more = 1 << 30
	maps := func(size int) error {
		b, err := syscall.Mmap(-1, 0, size, syscall.PROT_NONE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
		if err == nil {
			err = syscall.Munmap(b)
		}
		return err
	}
	var less, over error
	testproc.WithAddresses(t, more, func() { less, over = maps(more/2), maps(2*more) })
	if less != nil || over != syscall.ENOMEM { //nolint:errorlint // it is the number itself
		t.Errorf("half of it: %v, twice as much: %v", less, over)
	}
	if err := maps(2 * more); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}
