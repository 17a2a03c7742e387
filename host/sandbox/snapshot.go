package sandbox

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// snapshot is the state that calls begin with, as a file holds it: a pure
// function of a module's bytes and its Setup. It aliases the file's bytes.
type snapshot struct {
	pages     uint32   // of the memory
	values    []uint64 // of the globals
	passed    int64    // what the monotonic clock showed last, in ns
	warmed    bool     // the warm-up is in it
	stretches []stretch
}

// stretch is a part of a memory that is not all zero. The rest is.
type stretch struct {
	block uint32 // its first one
	bytes []byte // whole blocks
}

const (
	// snapshotFormat is part of each entry's name. It changes with the form of
	// the file, and with whatever a guest can tell of its admission: the stubs
	// of clock and randomness, which imports work, what runs in which order.
	snapshotFormat = "1"
	snapshotMagic  = "carrel-s"
	snapshotHeader = len(snapshotMagic) + 4*4 + 8
	blockBytes     = 4096 // a page of linear memory is a whole number of these
	warmedFlag     = 1
)

var errSnapshot = errors.New("the snapshot's file is damaged")

// stretchesOf finds what of a memory is not zero. They alias it.
func stretchesOf(memory []byte) []stretch {
	var zero [blockBytes]byte
	var out []stretch
	for at := 0; at < len(memory); {
		end := at
		for end < len(memory) && !bytes.Equal(memory[end:end+blockBytes], zero[:]) {
			end += blockBytes
		}
		if end > at {
			out = append(out, stretch{uint32(at / blockBytes), memory[at:end]})
		}
		at = end + blockBytes
	}
	return out
}

// encode returns the file: a header, the globals, where the stretches are, and
// their bytes, all numbers in little-endian order.
func (s snapshot) encode() []byte {
	size := snapshotHeader + 8*len(s.values) + 8*len(s.stretches)
	for _, p := range s.stretches {
		size += len(p.bytes)
	}
	le := binary.LittleEndian
	b := append(make([]byte, 0, size), snapshotMagic...)
	flags := uint32(0)
	if s.warmed {
		flags |= warmedFlag
	}
	for _, n := range []uint32{flags, s.pages, uint32(len(s.values)), uint32(len(s.stretches))} {
		b = le.AppendUint32(b, n)
	}
	b = le.AppendUint64(b, uint64(s.passed))
	for _, v := range s.values {
		b = le.AppendUint64(b, v)
	}
	for _, p := range s.stretches {
		b = le.AppendUint32(b, p.block)
		b = le.AppendUint32(b, uint32(len(p.bytes)/blockBytes))
	}
	for _, p := range s.stretches {
		b = append(b, p.bytes...)
	}
	return b
}

// decodeSnapshot reads what encode wrote, and nothing else: a snapshot has one
// file. The result aliases b. No number in it is believed before it is
// compared with what there is.
func decodeSnapshot(b []byte) (s snapshot, err error) {
	r := fields{b}
	if len(b) < snapshotHeader {
		return s, fmt.Errorf("%w: it ends early", errSnapshot)
	}
	if string(r.take(len(snapshotMagic))) != snapshotMagic {
		return s, fmt.Errorf("%w: it begins with something else", errSnapshot)
	}
	flags, pages, values, stretches := r.uint32(), r.uint32(), r.uint32(), r.uint32()
	s.pages, s.passed, s.warmed = pages, int64(r.uint64()), flags == warmedFlag
	switch {
	case flags > warmedFlag || s.passed < 0:
		return s, fmt.Errorf("%w: its header", errSnapshot)
	case pages > maxPages:
		return s, fmt.Errorf("%w: it has %d pages", errSnapshot, pages)
	case uint64(len(r.rest)) < 8*uint64(values)+8*uint64(stretches):
		return s, fmt.Errorf("%w: it ends early", errSnapshot)
	}
	s.values = make([]uint64, values)
	for i := range s.values {
		s.values[i] = r.uint64()
	}
	s.stretches = make([]stretch, stretches)
	places := fields{r.take(8 * int(stretches))}
	next := uint64(0) // block that a stretch may begin with
	for i := range s.stretches {
		first, count := places.uint32(), places.uint32()
		end := uint64(first) + uint64(count)
		if count == 0 || uint64(first) < next || end*blockBytes > uint64(pages)*PageBytes || int(count)*blockBytes > len(r.rest) {
			return s, fmt.Errorf("%w: what it has of the memory", errSnapshot)
		}
		s.stretches[i] = stretch{first, r.take(int(count) * blockBytes)}
		next = end + 1 // one that follows at once would be the same stretch
	}
	if len(r.rest) > 0 {
		return s, fmt.Errorf("%w: %d bytes too many", errSnapshot, len(r.rest))
	}
	return s, nil
}

// fill writes the memory into one that is all zero, of the snapshot's pages.
func (s snapshot) fill(memory []byte) {
	for _, p := range s.stretches {
		copy(memory[int(p.block)*blockBytes:], p.bytes)
	}
}

// fields reads numbers. What is missing is 0 or nil.
type fields struct{ rest []byte }

func (f *fields) take(n int) []byte {
	if n > len(f.rest) {
		f.rest = nil
		return nil
	}
	b := f.rest[:n]
	f.rest = f.rest[n:]
	return b
}

func (f *fields) uint32() uint32 {
	if b := f.take(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (f *fields) uint64() uint64 {
	if b := f.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}
