package image_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"testing"

	"github.com/carrelhost/carrel/host/sandbox/image"
)

func TestAnImageIsWhatWasWrittenInPieces(t *testing.T) {
	const size, most = 5 << 16, 8 << 16
	for _, how := range methods(t) {
		t.Run(how.String(), func(t *testing.T) {
			im, err := image.Make(size, most, how, func(w io.WriterAt) error {
				for _, at := range []int64{3 << 16, 10, size - 5} { // in any order
					if n, err := w.WriteAt([]byte("piece"), at); n != 5 || err != nil {
						return errors.Join(errors.New("a piece has no room"), err)
					}
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			slot, err := im.Slot()
			if err != nil {
				t.Fatal(err)
			}
			want := make([]byte, most)
			for _, at := range []int{3 << 16, 10, size - 5} {
				copy(want[at:], "piece")
			}
			if !bytes.Equal(slot.Bytes(most), want) {
				t.Error("the memory is another one")
			}
			if err := errors.Join(slot.Close(), im.Close()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestAnImageThatCannotBeFilledIsNone(t *testing.T) {
	for _, how := range methods(t) {
		for name, tc := range map[string]struct {
			size int
			fill func(w io.WriterAt) error
		}{
			"what fills it fails":     {1 << 16, func(io.WriterAt) error { return os.ErrDeadlineExceeded }},
			"it is larger than slots": {1<<17 + 1, func(io.WriterAt) error { return nil }},
			"its size is below zero":  {-1, func(io.WriterAt) error { return nil }},
		} {
			if im, err := image.Make(tc.size, 1<<17, how, tc.fill); im != nil || err == nil {
				t.Errorf("by %s, %s: there is one, %v", how, name, err)
			}
		}
	}
}
