package image_test

import (
	"math"
	"os"
	"strings"
	"testing"

	"github.com/carrelhost/carrel/host/sandbox/image"
)

// holed is an image with whole pages of zeros in its middle and its end.
func holed() []byte {
	b := pattern(6 * page)
	clear(b[page : 3*page])
	clear(b[4*page:])
	return b
}

func TestASlotIsTheImageAgainAfterAReset(t *testing.T) {
	early := make([]byte, 3*page)
	early[0] = 1
	late := make([]byte, 3*page)
	late[3*page-1] = 1
	for _, c := range []struct {
		name    string
		initial []byte
	}{
		{"an image of no bytes", nil},
		{"an image of one byte", []byte{7}},
		{"an image of one page", pattern(page)},
		{"an image that ends within a page", pattern(2*page + 17)},
		{"an image of zeros alone", make([]byte, 3*page)},
		{"an image with pages of zeros in its middle and at its end", holed()},
		{"an image of which only the first byte is not zero", early},
		{"an image of which only the last byte is not zero", late},
		{"an image as large as a slot can be", pattern(9 * page)},
	} {
		t.Run(c.name, func(t *testing.T) {
			each(t, func(t *testing.T, how image.Method) {
				im := newImage(t, c.initial, 9*page, how)
				s, other := newSlot(t, im), newSlot(t, im)
				for _, n := range []int{0, 1, page, 3*page + 5, 9 * page, 2} {
					b := s.Bytes(n)
					same(t, "before a write", b, shown(c.initial, n))
					fill(b, 0xAA)
					same(t, "another slot", other.Bytes(n), shown(c.initial, n))
					reset(t, s)
					same(t, "the bytes from before the reset", b, shown(c.initial, n))
					same(t, "after the reset", s.Bytes(n), shown(c.initial, n))
				}
				same(t, "all of it", s.Bytes(9*page), shown(c.initial, 9*page))
			})
		})
	}
}

func TestWhatWasWrittenBeforeAResetIsGoneWhenTheSlotGrowsAgain(t *testing.T) {
	each(t, func(t *testing.T, how image.Method) {
		s := newSlot(t, newImage(t, pattern(page), 8*page, how))
		fill(s.Bytes(8*page), 0xAA)
		fill(s.Bytes(2*page), 0xBB)
		reset(t, s)
		same(t, "grown again", s.Bytes(8*page), shown(pattern(page), 8*page))
	})
}

func TestGrowingKeepsWhatWasWritten(t *testing.T) {
	each(t, func(t *testing.T, how image.Method) {
		initial := pattern(2*page + 100)
		s := newSlot(t, newImage(t, initial, 16*page, how))
		want := shown(initial, 16*page)
		for n := 10; n <= 16*page; n += page/2 + 3 {
			b := s.Bytes(n)
			same(t, "after growing", b, want[:n])
			b[n-1] = 0xCC
			want[n-1] = 0xCC
		}
		same(t, "at last", s.Bytes(16*page), want)
	})
}

func TestBytesAreNilBeyondTheMaximum(t *testing.T) {
	each(t, func(t *testing.T, how image.Method) {
		most := 3*page + 1
		s := newSlot(t, newImage(t, pattern(10), most, how))
		for _, n := range []int{-1, math.MinInt, most + 1, 4 * page, math.MaxInt} {
			if s.Bytes(n) != nil {
				t.Errorf("%d bytes of a slot of at most %d", n, most)
			}
		}
		if b := s.Bytes(most); len(b) != most || cap(b) != most {
			t.Errorf("%d bytes with a capacity of %d, want %d of both", len(b), cap(b), most)
		}
		if b := s.Bytes(5); len(b) != 5 || cap(b) != 5 {
			t.Errorf("%d bytes with a capacity of %d, want 5 of both", len(b), cap(b))
		}
	})
}

func TestASlotOfNoBytesIsASlot(t *testing.T) {
	each(t, func(t *testing.T, how image.Method) {
		s := newSlot(t, newImage(t, nil, 0, how))
		if b := s.Bytes(0); b == nil || len(b) != 0 {
			t.Errorf("no bytes are %v", b)
		}
		if s.Bytes(1) != nil {
			t.Error("a byte of a slot without any")
		}
		reset(t, s)
		if err := s.Trim(); err != nil {
			t.Error(err)
		}
	})
}

func TestImagesThatCannotBeAreRefused(t *testing.T) {
	each(t, func(t *testing.T, how image.Method) {
		for _, c := range []struct {
			name    string
			initial []byte
			most    int
			says    string
		}{
			{"a negative maximum", nil, -1, "at most -1 bytes"},
			{"a maximum beyond every limit", nil, math.MaxInt, "at most"},
			{"an image longer than its maximum", make([]byte, 11), 10, "11 bytes for a memory of at most 10"},
		} {
			im, err := image.New(c.initial, c.most, how)
			if err == nil || im != nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %v, want an error that says %q", c.name, err, c.says)
			}
		}
	})
	if _, err := image.New(nil, page, image.Method(77)); err == nil || !strings.Contains(err.Error(), "method 77") {
		t.Errorf("a method that does not exist: %v", err)
	}
}

func TestTheImageIsItsOwnCopy(t *testing.T) {
	each(t, func(t *testing.T, how image.Method) {
		mine := pattern(2 * page)
		im := newImage(t, mine, 2*page, how)
		before := newSlot(t, im)
		fill(mine, 0xFF)
		same(t, "a slot from before", before.Bytes(2*page), pattern(2*page))
		same(t, "a slot from after", newSlot(t, im).Bytes(2*page), pattern(2*page))
		reset(t, before)
		same(t, "after a reset", before.Bytes(2*page), pattern(2*page))
	})
}

func TestTrimIsAReset(t *testing.T) {
	each(t, func(t *testing.T, how image.Method) {
		initial := holed()
		s := newSlot(t, newImage(t, initial, 20*page, how))
		b := s.Bytes(20 * page)
		for range 3 {
			fill(b, 0xAA)
			if err := s.Trim(); err != nil {
				t.Fatal(err)
			}
			same(t, "after trimming", b, shown(initial, 20*page))
			b[5*page] = 1
			reset(t, s)
			same(t, "after a reset", b, shown(initial, 20*page))
		}
	})
}

func TestWhatIsClosedIsOfNoUse(t *testing.T) {
	each(t, func(t *testing.T, how image.Method) {
		im, err := image.New(pattern(page), 4*page, how)
		if err != nil {
			t.Fatal(err)
		}
		s, err := im.Slot()
		if err != nil {
			t.Fatal(err)
		}
		mustBe(t, "closing an image with a slot", im.Close(), image.ErrInUse)
		same(t, "the slot after that", s.Bytes(page), pattern(page))
		for range 2 {
			if err := s.Close(); err != nil {
				t.Fatalf("closing a slot: %v", err)
			}
		}
		if s.Bytes(0) != nil || s.Bytes(1) != nil {
			t.Error("a closed slot has bytes")
		}
		mustBe(t, "a reset", s.Reset(), image.ErrClosed)
		mustBe(t, "trimming", s.Trim(), image.ErrClosed)
		for range 2 {
			if err := im.Close(); err != nil {
				t.Fatalf("closing an image: %v", err)
			}
		}
		_, err = im.Slot()
		mustBe(t, "a slot of a closed image", err, image.ErrClosed)
	})
}

func TestDirtyIsWhatTheResetTookToBeChanged(t *testing.T) {
	each(t, func(t *testing.T, how image.Method) {
		s := newSlot(t, newImage(t, pattern(8*page), 64*page, how))
		b := s.Bytes(64 * page)
		if s.Dirty() != 0 {
			t.Errorf("%d dirty pages before the first reset", s.Dirty())
		}
		for _, p := range []int{0, 3, 4, 20, 63} {
			b[p*page+9]++
		}
		reset(t, s)
		want := 64
		if how == image.PageScan {
			want = 5
		}
		if s.Dirty() != want {
			t.Errorf("%d dirty pages, want %d", s.Dirty(), want)
		}
	})
}

// TestPrivateKnowsNothingOfWhatWasWrittenSince asks slots before their first
// reset, and after they are closed.
func TestPrivateKnowsNothingOfWhatWasWrittenSince(t *testing.T) {
	each(t, func(t *testing.T, how image.Method) {
		const pages = 64
		s := newSlot(t, newImage(t, pattern(3*page), pages*page, how))
		b := s.Bytes(pages * page)
		before := s.Private()
		if before <= 0 || how == image.Copy && before < len(b) || how != image.Copy && before > 8*page {
			t.Errorf("of %d bytes that nobody wrote %d are its own", len(b), before)
		}
		fill(b, 0xAA)
		if got := s.Private(); got != before {
			t.Errorf("when they were written %d are, before it were %d", got, before)
		}
		if err := s.Trim(); err != nil {
			t.Fatal(err)
		}
		if got := s.Private(); got != before {
			t.Errorf("after a trim %d are, before it were %d", got, before)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if got := s.Private(); got != 0 {
			t.Errorf("closed it says %d", got)
		}
	})
}

func TestAnImageOf64MiB(t *testing.T) {
	const size = 64 << 20
	initial := make([]byte, size)
	for at := 0; at < size; at += 3 * page { // two pages of three are holes
		initial[at+at%page] = byte(at/page) | 1
	}
	initial[size-1] = 9
	each(t, func(t *testing.T, how image.Method) {
		s := newSlot(t, newImage(t, initial, size, how))
		b := s.Bytes(size)
		same(t, "at first", b, initial)
		for _, every := range []int{1, 7, 100, 5000} { // pages
			for at := 0; at < size; at += every * page {
				b[at]++
			}
			reset(t, s)
			same(t, "after a reset", b, initial)
		}
	})
}

func TestChooseTakesAMethodThatThisSystemHas(t *testing.T) {
	how, why := image.Choose()
	for _, m := range []image.Method{image.PageScan, image.Madvise} {
		if how == m {
			break
		}
		if !strings.Contains(why, m.String()+" is left out: ") {
			t.Errorf("%s is chosen, and why not %s is not said: %q", how, m, why)
		}
	}
	if how == image.PageScan && why != "" {
		t.Errorf("the best is chosen, and yet something is left out: %s", why)
	}
	s := newSlot(t, newImage(t, pattern(100), os.Getpagesize(), how))
	same(t, "a slot", s.Bytes(100), pattern(100))
}
