// Package snapshot is the form of a file with what calls of a guest begin with.
package snapshot

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/carrelhost/carrel/abi"
)

// State is the state that calls begin with. It is safe for concurrent use as
// long as nobody changes what it aliases.
type State struct {
	Memory Memory
	Values []uint64 // of the globals
	Passed int64    // what the monotonic clock showed last, in ns
	Warmed bool     // the warm-up is in it
}

// Memory is a linear memory, of which only what is not zero takes room.
type Memory struct {
	pages     uint32
	stretches []stretch
}

// stretch is a part of a memory that is not all zero. The rest is.
type stretch struct {
	block uint32 // its first one
	bytes []byte // whole blocks
}

const (
	magic       = "carrel-s"
	headerBytes = len(magic) + 4*4 + 8
	pageBytes   = 64 << 10
	maxPages    = abi.MaxMemoryMiB << 20 / pageBytes
	blockBytes  = 4096 // a page is a whole number of these
	warmedFlag  = 1
)

var errDamaged = errors.New("the snapshot's file is damaged")

// Of finds what of a memory, which has whole pages, is not zero. The result
// aliases it.
func Of(memory []byte) Memory {
	var zero [blockBytes]byte
	out := Memory{pages: uint32(len(memory) / pageBytes)}
	for at := 0; at < len(memory); {
		end := at
		for end < len(memory) && !bytes.Equal(memory[end:end+blockBytes], zero[:]) {
			end += blockBytes
		}
		if end > at {
			out.stretches = append(out.stretches, stretch{uint32(at / blockBytes), memory[at:end]})
		}
		at = end + blockBytes
	}
	return out
}

// Pages returns the size in pages of 64 KiB.
func (m Memory) Pages() uint32 { return m.pages }

// Filled returns how many pages have a byte that is not zero, and how many
// bytes the blocks of 4 KiB have that do.
func (m Memory) Filled() (pages, size int) {
	counted := 0 // pages, from the first on
	for _, s := range m.stretches {
		from := int(s.block) * blockBytes
		end := (from + len(s.bytes) + pageBytes - 1) / pageBytes
		pages += end - max(from/pageBytes, counted)
		size += len(s.bytes)
		counted = end
	}
	return pages, size
}

// Fill writes the memory into one that is all zero, of as many pages.
func (m Memory) Fill(memory []byte) {
	for _, p := range m.stretches {
		copy(memory[int(p.block)*blockBytes:], p.bytes)
	}
}

// Encode returns the file: a header, the globals, where the stretches are, and
// their bytes, all numbers in little-endian order.
func (s State) Encode() []byte {
	size := headerBytes + 8*len(s.Values) + 8*len(s.Memory.stretches)
	for _, p := range s.Memory.stretches {
		size += len(p.bytes)
	}
	le := binary.LittleEndian
	b := append(make([]byte, 0, size), magic...)
	flags := uint32(0)
	if s.Warmed {
		flags |= warmedFlag
	}
	for _, n := range []uint32{flags, s.Memory.pages, uint32(len(s.Values)), uint32(len(s.Memory.stretches))} {
		b = le.AppendUint32(b, n)
	}
	b = le.AppendUint64(b, uint64(s.Passed))
	for _, v := range s.Values {
		b = le.AppendUint64(b, v)
	}
	for _, p := range s.Memory.stretches {
		b = le.AppendUint32(b, p.block)
		b = le.AppendUint32(b, uint32(len(p.bytes)/blockBytes))
	}
	for _, p := range s.Memory.stretches {
		b = append(b, p.bytes...)
	}
	return b
}

// Decode reads what Encode wrote, and nothing else: a state has one file. The
// result aliases b. No number in it is believed before it is compared with what
// there is. Its error says what is wrong with the file.
func Decode(b []byte) (s State, err error) {
	r := fields{b}
	if len(b) < headerBytes {
		return s, fmt.Errorf("%w: it ends early", errDamaged)
	}
	if string(r.take(len(magic))) != magic {
		return s, fmt.Errorf("%w: it begins with something else", errDamaged)
	}
	flags, pages, values, stretches := r.uint32(), r.uint32(), r.uint32(), r.uint32()
	s.Memory.pages, s.Passed, s.Warmed = pages, int64(r.uint64()), flags == warmedFlag
	switch {
	case flags > warmedFlag || s.Passed < 0:
		return s, fmt.Errorf("%w: its header", errDamaged)
	case pages > maxPages:
		return s, fmt.Errorf("%w: it has %d pages", errDamaged, pages)
	case uint64(len(r.rest)) < 8*uint64(values)+8*uint64(stretches):
		return s, fmt.Errorf("%w: it ends early", errDamaged)
	}
	s.Values = make([]uint64, values)
	for i := range s.Values {
		s.Values[i] = r.uint64()
	}
	s.Memory.stretches = make([]stretch, stretches)
	places := fields{r.take(8 * int(stretches))}
	next := uint64(0) // block that a stretch may begin with
	for i := range s.Memory.stretches {
		first, count := places.uint32(), places.uint32()
		end := uint64(first) + uint64(count)
		if count == 0 || uint64(first) < next || end*blockBytes > uint64(pages)*pageBytes || int(count)*blockBytes > len(r.rest) {
			return s, fmt.Errorf("%w: what it has of the memory", errDamaged)
		}
		s.Memory.stretches[i] = stretch{first, r.take(int(count) * blockBytes)}
		next = end + 1 // one that follows at once would be the same stretch
	}
	if len(r.rest) > 0 {
		return s, fmt.Errorf("%w: %d bytes too many", errDamaged, len(r.rest))
	}
	return s, nil
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
