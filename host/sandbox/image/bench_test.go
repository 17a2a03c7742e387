package image_test

import (
	"fmt"
	"testing"

	"github.com/carrelhost/carrel/host/sandbox/image"
)

// BenchmarkReset measures a write of some pages and the reset after it: the
// page faults that a method leaves to the next call are counted.
func BenchmarkReset(b *testing.B) {
	const pages = 2048 // 8 MiB where a page has 4 KiB, half of it the image
	initial := pattern(pages / 2 * page)
	for _, how := range methods(b) {
		for _, dirty := range []int{0, 1, 10, 100, 1000} {
			b.Run(fmt.Sprintf("%s/%d pages", how, dirty), func(b *testing.B) {
				s := newSlot(b, newImage(b, initial, pages*page, how))
				mem := s.Bytes(pages / 2 * page)
				for b.Loop() {
					for i := range dirty {
						mem[i*(pages/2)/dirty*page]++
					}
					if err := s.Reset(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkSlot measures a new slot, a write of one page and its end.
func BenchmarkSlot(b *testing.B) {
	initial := pattern(1024 * page)
	for _, how := range methods(b) {
		b.Run(how.String(), func(b *testing.B) {
			im := newImage(b, initial, 64<<20, how)
			for b.Loop() {
				s, err := im.Slot()
				if err != nil {
					b.Fatal(err)
				}
				s.Bytes(1030 * page)[5]++
				if err := s.Close(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkChoose measures the self-test.
func BenchmarkChoose(b *testing.B) {
	for b.Loop() {
		image.Choose()
	}
}
