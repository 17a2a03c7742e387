// Package marker keeps, in a file that outlives the process, which guests are
// running: if the host crashes, its next start reads there whose code ran.
//
// The file is mapped into memory, so that a mark costs no system call, and
// what is written to it is the system's to keep, however the process ends. A
// crash of the whole machine may lose or tear it; an entry that is torn is
// none.
package marker

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"os"
	"sync"
	"sync/atomic"
)

// entry is the file's unit, in the byte order of the machine. Its state is
// written last and cleared first, so that the rest of it is whole whenever
// the state is not free.
type entry struct {
	state  atomic.Uint64
	sum    uint64 // of digest and share
	digest [sha256.Size]byte
	share  [MaxShareBytes + 1]byte // its length, then it, then zeros
	_      [16]byte                // two cache lines are one entry's alone
}

const entryBytes = 128

// MaxShareBytes is how much of the name of a share a mark tells.
const MaxShareBytes = 63

// States of an entry.
const (
	free    = 0
	running = 0x72756e6e696e6731 // on a CPU
	away    = 0x617761792d2d2d31 // in a host call, or waiting for a CPU
)

// MaxMarks is the most that a file has: 2 MiB.
const MaxMarks = 1 << 14

// File is the marks of one sandbox. It is safe for concurrent use. A nil File
// marks nothing.
type File struct {
	entries []entry

	mu     sync.Mutex // guards what is below
	mapped []byte     // nil after Close
	free   []uint32   // the last one given back is taken next; nil after Close
}

// Guest is what a mark says of a guest.
type Guest struct {
	Number  uint64 // of its mark
	Digest  [sha256.Size]byte
	Share   string // whose CPU it used, the first MaxShareBytes of it
	Running bool   // false: it was in a host call, or waited for a CPU
}

// Open returns a file of so many free marks, at most MaxMarks, and what was
// marked in it before. It makes the file if it is missing; one process at a
// time may have it open. What is no entry is left out, whatever the file
// holds. errors.ErrUnsupported says that this system cannot map files; others
// are of the file. The caller closes the File after the sandbox.
func Open(path string, marks int) (*File, []Guest, error) {
	marks = min(max(marks, 1), MaxMarks)
	switch info, err := os.Lstat(path); {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		return nil, nil, fmt.Errorf("marks of running guests: %w", err)
	case !info.Mode().IsRegular():
		return nil, nil, fmt.Errorf("marks of running guests: %s is no file", path)
	}
	on, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600) //nolint:gosec // a file of the host's own
	if err != nil {
		return nil, nil, fmt.Errorf("marks of running guests: %w", err)
	}
	defer on.Close() //nolint:errcheck // the mapping needs it no more
	before, err := read(on)
	if err != nil {
		return nil, nil, fmt.Errorf("read the marks of running guests: %w", err)
	}
	f := &File{}
	if f.mapped, err = blank(on, marks*entryBytes); err != nil {
		return nil, before, fmt.Errorf("map the marks of running guests: %w", err)
	}
	f.entries = entriesOf(f.mapped)
	for i := range f.entries {
		f.free = append(f.free, uint32(len(f.entries)-1-i))
	}
	return f, before, nil
}

// blank makes a file all zero and maps it. Every byte is written, not only
// the length set: a write to a mapping for which the disk has no block ends
// the process. File systems that copy on write can still run out of blocks;
// those of SQLite's shared memory, beside it, are no better off.
func blank(on *os.File, size int) ([]byte, error) {
	if _, err := on.WriteAt(make([]byte, size), 0); err != nil {
		return nil, err
	}
	if err := on.Truncate(int64(size)); err != nil {
		return nil, err
	}
	if err := on.Chmod(0o600); err != nil {
		return nil, err
	}
	return mapShared(on, size)
}

// Read returns what is marked in a file, also while another process has it
// open.
func Read(path string) ([]Guest, error) {
	on, err := os.Open(path) //nolint:gosec // a file of the host's own
	if err != nil {
		return nil, fmt.Errorf("marks of running guests: %w", err)
	}
	defer on.Close() //nolint:errcheck // it was only read
	return read(on)
}

func read(on io.Reader) ([]Guest, error) {
	content, err := io.ReadAll(io.LimitReader(on, MaxMarks*entryBytes))
	if err != nil {
		return nil, err
	}
	var out []Guest
	for i := range len(content) / entryBytes {
		if g, ok := parse(content[i*entryBytes : (i+1)*entryBytes]); ok {
			g.Number = numbered(i)
			out = append(out, g)
		}
	}
	return out, nil
}

// parse reads an entry. It is not ok if it is free or damaged.
func parse(b []byte) (g Guest, ok bool) {
	state := binary.NativeEndian.Uint64(b)
	if state != running && state != away {
		return g, false
	}
	var share [MaxShareBytes + 1]byte
	copy(g.Digest[:], b[16:])
	copy(share[:], b[16+sha256.Size:])
	if share[0] > MaxShareBytes || binary.NativeEndian.Uint64(b[8:]) != sum(&g.Digest, &share) {
		return Guest{}, false
	}
	g.Share, g.Running = string(share[1:1+share[0]]), state == running
	return g, true
}

// sum tells what was written whole from what was not. It is no defence
// against somebody who can write the file.
func sum(digest *[sha256.Size]byte, share *[MaxShareBytes + 1]byte) uint64 {
	const prime = 0x9e3779b97f4a7c15
	s := uint64(0x63617272656c0001) // and the version of the layout
	for i := 0; i < len(digest); i += 8 {
		s = bits.RotateLeft64((s^binary.NativeEndian.Uint64(digest[i:]))*prime, 29)
	}
	for i := 0; i < len(share); i += 8 {
		s = bits.RotateLeft64((s^binary.NativeEndian.Uint64(share[i:]))*prime, 29)
	}
	return s
}

// Mark is an entry that a guest has. The zero Mark marks nothing. It has one
// user at a time.
type Mark struct {
	file   *File
	number uint64 // numbered its index
}

// Take marks a guest as running, until Release. If every mark is taken, the
// guest has none.
func (f *File) Take(digest *[sha256.Size]byte, share string) Mark {
	if f == nil {
		return Mark{}
	}
	f.mu.Lock()
	n := len(f.free)
	if n == 0 {
		f.mu.Unlock()
		return Mark{}
	}
	i := f.free[n-1]
	f.free = f.free[:n-1]
	f.mu.Unlock()
	e := &f.entries[i]
	e.digest = *digest
	n = copy(e.share[1:], share)
	e.share[0] = byte(n)
	clear(e.share[1+n:])
	e.sum = sum(&e.digest, &e.share)
	e.state.Store(running)
	return Mark{f, numbered(int(i))}
}

func (m Mark) index() uint32 { return uint32(m.number & (MaxMarks - 1)) }

// Away says that the guest does not run for now.
func (m Mark) Away() { m.set(away) }

// Back says that it runs again.
func (m Mark) Back() { m.set(running) }

func (m Mark) set(state uint64) {
	if m.file != nil {
		m.file.entries[m.index()].state.Store(state)
	}
}

// Release ends the mark, which is not used after it.
func (m Mark) Release() {
	if m.file == nil {
		return
	}
	m.set(free)
	m.file.mu.Lock()
	defer m.file.mu.Unlock()
	if m.file.mapped != nil { // after Close there is nothing to take
		m.file.free = append(m.file.free, m.index())
	}
}

// Close ends the marking: nothing is marked any more, and the file stays with
// what is. Whoever still has a mark may go on to use it, for then the file
// stays mapped to the end of the process. It is safe to call twice.
func (f *File) Close() error {
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	mapped, all := f.mapped, len(f.free) == len(f.entries)
	f.mapped, f.free = nil, nil
	if mapped == nil || !all {
		return nil
	}
	f.entries = nil
	if err := unmap(mapped); err != nil {
		return fmt.Errorf("unmap the marks of running guests: %w", err)
	}
	return nil
}
