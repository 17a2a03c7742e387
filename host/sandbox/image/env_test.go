package image_test

import (
	"errors"
	"os"
	"testing"

	"github.com/carrelhost/carrel/host/sandbox/image"
)

var page = os.Getpagesize()

// each runs a test with every method that this system has.
func each(t *testing.T, test func(t *testing.T, how image.Method)) {
	t.Helper()
	for _, how := range methods(t) {
		t.Run(how.String(), func(t *testing.T) { test(t, how) })
	}
}

// methods are those that this system has; what it lacks is named in the
// test's log.
func methods(tb testing.TB) []image.Method {
	tb.Helper()
	all := []image.Method{image.Copy}
	for _, how := range []image.Method{image.Madvise, image.PageScan} {
		im, err := image.New([]byte{1}, page, how)
		if err != nil {
			tb.Logf("%s is not tested: %v", how, err)
			continue
		}
		if err := im.Close(); err != nil {
			tb.Fatal(err)
		}
		all = append(all, how)
	}
	return all
}

// newImage closes it after the test, and after the slots that were made later.
func newImage(tb testing.TB, initial []byte, maxBytes int, how image.Method) *image.Image {
	tb.Helper()
	im, err := image.New(initial, maxBytes, how)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := im.Close(); err != nil {
			tb.Error(err)
		}
	})
	return im
}

// newSlot closes it after the test.
func newSlot(tb testing.TB, im *image.Image) *image.Slot {
	tb.Helper()
	s, err := im.Slot()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	return s
}

// pattern returns n bytes, none of them zero.
func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i%251 + 1)
	}
	return b
}

// fill writes v to each of b's bytes.
func fill(b []byte, v byte) {
	for i := range b {
		b[i] = v
	}
}

// shown is what a slot of the image must show in its first n bytes.
func shown(initial []byte, n int) []byte {
	b := make([]byte, n)
	copy(b, initial)
	return b
}

// failer is a test, rapid's too.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// same fails the test with the first byte that differs.
func same(tb failer, what string, got, want []byte) {
	tb.Helper()
	if len(got) != len(want) {
		tb.Fatalf("%s: %d bytes, want %d", what, len(got), len(want))
	}
	if string(got) == string(want) {
		return
	}
	for i := range got {
		if got[i] != want[i] {
			tb.Fatalf("%s: byte %#x (page %d) is %#x, want %#x", what, i, i/page, got[i], want[i])
		}
	}
}

// mustBe fails the test when err is not target.
func mustBe(tb testing.TB, what string, err, target error) {
	tb.Helper()
	if !errors.Is(err, target) {
		tb.Fatalf("%s: %v, want %v", what, err, target)
	}
}

// reset fails the test when it fails.
func reset(tb testing.TB, s *image.Slot) {
	tb.Helper()
	if err := s.Reset(); err != nil {
		tb.Fatal(err)
	}
}
