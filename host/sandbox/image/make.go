package image

import (
	"fmt"
	"io"
)

// Make is New for a memory that fill writes, in pieces, into one that has size
// bytes, all zero. There is no other copy of it, and nobody sees it before fill
// has ended. fill's own error is the result, too, and leaves nothing behind.
func Make(size, maxBytes int, how Method, fill func(io.WriterAt) error) (*Image, error) {
	if maxBytes < 0 || maxBytes > largest {
		return nil, fmt.Errorf("a guest's memory of at most %d bytes: must be 0 to %d", maxBytes, largest)
	}
	if size < 0 || size > maxBytes {
		return nil, fmt.Errorf("an image of %d bytes for a memory of at most %d bytes", size, maxBytes)
	}
	src, err := open(size, maxBytes, how, fill)
	if err != nil {
		return nil, fmt.Errorf("guest image by %s: %w", how, err)
	}
	return &Image{src: src, max: maxBytes}, nil
}

// open keeps an image as the method wants it.
func open(size, maxBytes int, how Method, fill func(io.WriterAt) error) (source, error) {
	if how != Copy {
		return openMapped(size, maxBytes, how, fill)
	}
	im := &plainImage{initial: make([]byte, size), max: maxBytes}
	return im, fill(buffer(im.initial))
}

// buffer writes into bytes that are there.
type buffer []byte

// WriteAt fails beyond the end.
func (b buffer) WriteAt(p []byte, at int64) (int, error) {
	if at < 0 || at > int64(len(b)) {
		return 0, io.ErrShortWrite
	}
	n := copy(b[at:], p)
	if n < len(p) {
		return n, io.ErrShortWrite
	}
	return n, nil
}

// content writes bytes but for their pages of zeros, which are there already.
func content(b []byte, page int) func(io.WriterAt) error {
	return func(w io.WriterAt) error {
		for at := 0; at < len(b); at += page {
			part := b[at:min(at+page, len(b))]
			if isZero(part) {
				continue
			}
			if _, err := w.WriteAt(part, int64(at)); err != nil {
				return err
			}
		}
		return nil
	}
}
