package image

import (
	"bytes"
	"fmt"
	"os"
	"strings"
)

// Choose tries each method on this system, the best first, and returns the
// first one that restores a small memory exactly. The text says why better
// ones were left out, and what to do about it, for the log; it is empty when
// none was. It takes less than a millisecond, never fails, and keeps nothing:
// Copy always works.
func Choose() (Method, string) {
	var out []string
	for _, m := range []Method{PageScan, Madvise} {
		err := try(m)
		if err == nil {
			return m, strings.Join(out, "; ")
		}
		out = append(out, fmt.Sprintf("%s is left out: %v", m, err))
	}
	return Copy, strings.Join(out, "; ")
}

// try writes, grows, resets and trims a memory of a few pages and tells what
// was not as it must be.
func try(how Method) (err error) {
	page := os.Getpagesize()
	initial := make([]byte, 5*page/2) // its end within a page, zeros in its middle
	for i := range initial {
		if i/page != 1 {
			initial[i] = byte(i%251 + 1)
		}
	}
	const pages = 6
	im, err := New(initial, pages*page, how)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := im.Close(); err == nil {
			err = cerr
		}
	}()
	used, err := im.Slot()
	if err != nil {
		return err
	}
	defer func() {
		if cerr := used.Close(); err == nil {
			err = cerr
		}
	}()
	other, err := im.Slot()
	if err != nil {
		return err
	}
	defer func() {
		if cerr := other.Close(); err == nil {
			err = cerr
		}
	}()
	want := make([]byte, pages*page)
	copy(want, initial)
	if used.Bytes(len(want)) == nil {
		return fmt.Errorf("%w: %d bytes", ErrNoRoom, len(want))
	}
	if err := used.Reset(); err != nil {
		return err
	}
	// A reset is exact even if it cannot scan, but then it is not this method.
	if how == PageScan && used.Dirty() > 0 {
		return fmt.Errorf("of %d pages that nobody wrote %d are taken to be changed", pages, used.Dirty())
	}
	steps := []struct {
		what  string
		write []int // pages
		then  func() error
	}{
		{"a reset", []int{0, 1, 2, 3, 4, 5}, used.Reset},
		{"a reset of pages that were private before", []int{1, 4}, used.Reset},
		{"a reset of pages that were swapped out", []int{0, 3}, func() error { swapOut(used.mem); return used.Reset() }},
		{"giving pages back", []int{0, 1, 2, 3, 4, 5}, used.Trim},
		{"a reset after giving pages back", []int{2, 5}, used.Reset},
	}
	for _, step := range steps {
		mem := used.Bytes(len(want))
		for _, p := range step.write {
			for i := range page {
				mem[p*page+i] = 0xEE
			}
		}
		if !bytes.Equal(other.Bytes(len(want)), want) {
			return fmt.Errorf("what is written to one memory shows in another")
		}
		if err := step.then(); err != nil {
			return err
		}
		if !bytes.Equal(mem, want) {
			return fmt.Errorf("%s does not restore the memory", step.what)
		}
	}
	return nil
}

// swapOut asks the system to write a memory's pages to its swap space, if it
// has any.
func swapOut(m memory) {
	if s, ok := m.(interface{ swapOut() }); ok {
		s.swapOut()
	}
}
