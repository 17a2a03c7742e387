//go:build !portable

package image_test

import (
	"runtime/debug"
	"testing"

	"github.com/carrelhost/carrel/host/sandbox/image"
	"github.com/carrelhost/carrel/internal/testproc"
)

// TestPrivateIsWhatASlotKeeps holds what slots say of themselves against what
// the system counts.
func TestPrivateIsWhatASlotKeeps(t *testing.T) {
	const slots, pages, written = 200, 128, 64
	mapped(t, func(t *testing.T, how image.Method) {
		im := newImage(t, pattern(pages/2*page), pages*page, how)
		all := make([]*image.Slot, slots)
		used := func() *image.Slot {
			s := newSlot(t, im)
			b := s.Bytes(pages * page)
			for p := range written { // in and beyond the image
				b[(p*2)*page] ^= 0xFF
			}
			reset(t, s)
			return s
		}
		debug.FreeOSMemory() // what others left would be given back meanwhile
		for range slots {    // what this takes of the process besides, it then has
			if err := used().Close(); err != nil {
				t.Fatal(err)
			}
		}
		empty := testproc.Memory(t, testproc.Anonymous)
		sum := func() (bytes int) {
			for _, s := range all {
				bytes += s.Private()
			}
			return bytes
		}
		for i := range all {
			all[i] = used()
		}
		want := 0
		if how == image.PageScan {
			want = written * page
		}
		tables := all[0].Private() - want
		if tables < page || tables > 4*page {
			t.Errorf("a slot says that it keeps %d bytes besides %d of pages", tables, want)
		}
		says, has := sum()-slots*tables, int(testproc.Memory(t, testproc.Anonymous)-empty)
		if says < has-has/10-1<<20 || says > has+has/10+1<<20 {
			t.Errorf("the slots say that they keep %d bytes of pages, the system says %d", says, has)
		}
		for _, s := range all {
			if err := s.Trim(); err != nil {
				t.Fatal(err)
			}
		}
		if got := sum(); got != slots*tables {
			t.Errorf("trimmed slots keep %d bytes, want %d", got, slots*tables)
		}
	})
}

// A page that one call wrote and no later one is not counted for ever.
func TestPrivateIsLessAfterASift(t *testing.T) {
	how := pageScan(t)
	const pages = 32
	s := newSlot(t, newImage(t, pattern(pages*page), pages*page, how))
	fill(s.Bytes(pages*page), 0xAA)
	reset(t, s)
	before := s.Private()
	for range 200 {
		reset(t, s)
	}
	if got := before - s.Private(); got != pages*page {
		t.Errorf("resets gave back %d bytes, want %d", got, pages*page)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if got := s.Private(); got != 0 {
		t.Errorf("a closed slot keeps %d bytes", got)
	}
}

func TestBytesOfAnImage(t *testing.T) {
	each(t, func(t *testing.T, how image.Method) {
		im := newImage(t, append(pattern(3*page-1), make([]byte, 5*page)...), 20*page, how)
		if got := im.Bytes(); got < 3*page-1 || got > 3*page {
			t.Errorf("an image of three pages and zeros takes %d bytes", got)
		}
		if err := im.Close(); err != nil {
			t.Fatal(err)
		}
		if got := im.Bytes(); got != 0 {
			t.Errorf("closed it takes %d bytes", got)
		}
	})
}
