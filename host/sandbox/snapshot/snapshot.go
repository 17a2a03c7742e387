// Package snapshot is the form of a file with what calls of a guest begin with.
package snapshot

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"

	"github.com/carrelhost/carrel/abi"
)

// State is the state that calls begin with. It is safe for concurrent use as
// long as nobody changes what its memory aliases.
type State struct {
	Header
	Memory Memory
}

// Header is what a state has beside the memory.
type Header struct {
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
	blockBytes  = 4096    // a page is a whole number of these
	maxValues   = 1 << 20 // a module has far fewer globals
	warmedFlag  = 1
)

// ErrDamaged says that a file is not what State.WriteTo writes.
var ErrDamaged = errors.New("the snapshot's file is damaged")

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

// WriteTo writes the file: a header, the globals, where the stretches are, and
// their bytes, all numbers in little-endian order. A state has one file.
func (s State) WriteTo(w io.Writer) (int64, error) {
	le := binary.LittleEndian
	b := append(make([]byte, 0, headerBytes+8*len(s.Values)+8*len(s.Memory.stretches)), magic...)
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
	n, err := w.Write(b)
	written := int64(n)
	for _, p := range s.Memory.stretches {
		if err != nil {
			break
		}
		n, err = w.Write(p.bytes)
		written += int64(n)
	}
	return written, err
}
