package snapshot

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Reader reads what State.WriteTo wrote, and nothing else. It has one user at a
// time.
type Reader struct {
	Header
	content io.Reader
	pages   uint32
	places  []place
}

// place is where a stretch of the memory is.
type place struct{ first, count uint32 } // in blocks

// NewReader reads all of a file of size bytes but the memory. No number in it
// is believed before it is compared with what there is. Its error says what is
// wrong with the file, or is the content's.
func NewReader(content io.Reader, size int64) (*Reader, error) {
	var head [headerBytes]byte
	if err := fill(content, head[:]); err != nil {
		return nil, err
	}
	if string(head[:len(magic)]) != magic {
		return nil, fmt.Errorf("%w: it begins with something else", ErrDamaged)
	}
	le, numbers := binary.LittleEndian, head[len(magic):]
	flags, values, stretches := le.Uint32(numbers), le.Uint32(numbers[8:]), le.Uint32(numbers[12:])
	r := &Reader{content: content, pages: le.Uint32(numbers[4:])}
	r.Passed, r.Warmed = int64(le.Uint64(numbers[16:])), flags == warmedFlag
	rest := size - int64(headerBytes) - 8*int64(values) - 8*int64(stretches)
	switch {
	case flags > warmedFlag || r.Passed < 0:
		return nil, fmt.Errorf("%w: its header", ErrDamaged)
	case r.pages > maxPages:
		return nil, fmt.Errorf("%w: it has %d pages", ErrDamaged, r.pages)
	case values > maxValues || stretches > maxPages*pageBytes/blockBytes/2:
		return nil, fmt.Errorf("%w: it has %d globals and %d stretches of memory", ErrDamaged, values, stretches)
	case rest < 0:
		return nil, fmt.Errorf("%w: it ends early", ErrDamaged)
	}
	b := make([]byte, 8*(values+stretches))
	if err := fill(content, b); err != nil {
		return nil, err
	}
	r.Values = make([]uint64, values)
	for i := range r.Values {
		r.Values[i], b = le.Uint64(b), b[8:]
	}
	r.places = make([]place, stretches)
	next := uint64(0) // block that a stretch may begin with
	for i := range r.places {
		p := place{le.Uint32(b), le.Uint32(b[4:])}
		b = b[8:]
		end := uint64(p.first) + uint64(p.count)
		if p.count == 0 || uint64(p.first) < next || end*blockBytes > uint64(r.pages)*pageBytes {
			return nil, fmt.Errorf("%w: what it has of the memory", ErrDamaged)
		}
		r.places[i] = p
		rest -= int64(p.count) * blockBytes
		next = end + 1 // one that follows at once would be the same stretch
	}
	if rest != 0 {
		return nil, fmt.Errorf("%w: it has %d bytes more than its memory", ErrDamaged, rest)
	}
	return r, nil
}

// Pages returns the size of the memory in pages of 64 KiB.
func (r *Reader) Pages() uint32 { return r.pages }

// End returns behind which byte the memory is all zero.
func (r *Reader) End() int {
	if len(r.places) == 0 {
		return 0
	}
	last := r.places[len(r.places)-1]
	return int(last.first+last.count) * blockBytes
}

// chunkBytes is how much of a memory is on its way at one time.
const chunkBytes = 256 << 10

// Memory reads the memory into one that is all zero and has room for End bytes.
// It works once. Its error is the content's, or that of w.
func (r *Reader) Memory(w io.WriterAt) error {
	chunk := make([]byte, min(chunkBytes, r.End()))
	for _, p := range r.places {
		at, end := int64(p.first)*blockBytes, int64(p.first+p.count)*blockBytes
		for at < end {
			part := chunk[:min(int64(len(chunk)), end-at)]
			if err := fill(r.content, part); err != nil {
				return err
			}
			if _, err := w.WriteAt(part, at); err != nil {
				return err
			}
			at += int64(len(part))
		}
	}
	return nil
}

// fill reads all of b.
func fill(content io.Reader, b []byte) error {
	_, err := io.ReadFull(content, b)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: it ends early", ErrDamaged)
	}
	return err
}
