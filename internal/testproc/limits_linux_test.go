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

func TestMemoryIsLimitedForAWhile(t *testing.T) {
	const more = 1 << 30
	for name, tc := range map[string]struct {
		limited func(t testing.TB, more uint64, f func())
		prot    int // of pages that the limit is for
		other   int // of pages that it is not for; -1: there are none
	}{
		"addresses": {testproc.WithAddresses, syscall.PROT_NONE, -1},
		"data":      {testproc.WithData, syscall.PROT_READ | syscall.PROT_WRITE, syscall.PROT_NONE},
	} {
		t.Run(name, func(t *testing.T) {
			if !testproc.Apart(t) {
				return
			}
			maps := func(size, prot int) error {
				b, err := syscall.Mmap(-1, 0, size, prot, syscall.MAP_ANON|syscall.MAP_PRIVATE|syscall.MAP_NORESERVE)
				if err == nil {
					err = syscall.Munmap(b)
				}
				return err
			}
			var less, over, free error
			tc.limited(t, more, func() {
				less, over = maps(more/2, tc.prot), maps(2*more, tc.prot)
				if tc.other >= 0 {
					free = maps(2*more, tc.other)
				}
			})
			if less != nil || over != syscall.ENOMEM || free != nil { //nolint:errorlint // it is the number itself
				t.Errorf("half of it: %v, twice as much: %v, of another kind: %v", less, over, free)
			}
			if err := maps(2*more, tc.prot); err != nil {
				t.Errorf("afterwards: %v", err)
			}
		})
	}
}
