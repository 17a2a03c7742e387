package image_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/carrelhost/carrel/host/sandbox/image"
)

// BenchmarkReset measures a write of some pages and the reset after it, and
// the reset apart: the page faults that a method leaves to the next call are
// in the former alone.
func BenchmarkReset(b *testing.B) {
	const pages = 2048 // 8 MiB where a page has 4 KiB, half of it the image
	initial := pattern(pages / 2 * page)
	for _, how := range methods(b) {
		for _, dirty := range []int{0, 1, 10, 100, 1000} {
			b.Run(fmt.Sprintf("%s/%d pages", how, dirty), func(b *testing.B) {
				s := newSlot(b, newImage(b, initial, pages*page, how))
				mem := s.Bytes(pages / 2 * page)
				var resets time.Duration
				for b.Loop() {
					for i := range dirty {
						mem[i*(pages/2)/dirty*page]++
					}
					start := time.Now()
					if err := s.Reset(); err != nil {
						b.Fatal(err)
					}
					resets += time.Since(start)
				}
				b.ReportMetric(float64(resets.Nanoseconds())/float64(b.N), "reset-ns/op")
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
