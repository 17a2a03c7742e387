package sandbox_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/carrelhost/carrel/host/sandbox"
)

const block = 4096

// memoryWith is a memory of so many pages with these blocks not zero.
func memoryWith(pages int, blocks ...int) []byte {
	b := make([]byte, pages*sandbox.PageBytes)
	for _, at := range blocks {
		b[at*block+at%block] = byte(at%255 + 1)
	}
	return b
}

func TestASnapshotIsReadAsItWasWritten(t *testing.T) {
	for name, state := range map[string]sandbox.State{
		"no memory":                         {Globals: []uint64{1, 1 << 63}},
		"neither memory nor globals":        {},
		"a memory of zeros":                 {Memory: memoryWith(3), Globals: []uint64{0}},
		"the first and the last block":      {Memory: memoryWith(2, 0, 31)},
		"blocks beside each other":          {Memory: memoryWith(2, 3, 4, 5, 7, 8)},
		"all blocks":                        {Memory: bytes.Repeat([]byte{7}, 2*sandbox.PageBytes)},
		"the most memory there is, at last": {Memory: memoryWith(1024, 16383)},
	} {
		t.Run(name, func(t *testing.T) {
			for _, warmed := range []bool{false, true} {
				got, passed, kept, err := sandbox.DecodeSnapshot(sandbox.EncodeSnapshot(state, 12345, warmed))
				if err != nil || passed != 12345 || kept != warmed {
					t.Fatalf("got %d, %v, %v", passed, kept, err)
				}
				sameState(t, got, state)
			}
		})
	}
}

func TestSnapshotsThatNobodyWroteAreRefused(t *testing.T) {
	whole := func() []byte {
		return sandbox.EncodeSnapshot(sandbox.State{Memory: memoryWith(1, 1, 3, 4), Globals: []uint64{5, 6}}, 9, true)
	}
	const flags, pages, values, stretches, passed, places = 8, 12, 16, 20, 24, 32 + 2*8
	with := func(at int, v uint32) []byte {
		b := whole()
		binary.LittleEndian.PutUint32(b[at:], v)
		return b
	}
	for name, b := range map[string][]byte{
		"another beginning":                  with(0, 7),
		"a flag that is none":                with(flags, 2),
		"more memory than any guest has":     with(pages, 1025),
		"more pages than 32 bits count":      with(pages, 1<<31),
		"less memory than there are blocks":  with(pages, 0),
		"more globals than there are bytes":  with(values, 1<<31),
		"a global less":                      with(values, 1),
		"more stretches than bytes":          with(stretches, 1<<31),
		"a stretch less":                     with(stretches, 1),
		"a clock that went back":             with(passed+4, 1<<31),
		"a stretch beyond the memory":        with(places, 16),
		"one that begins far away":           with(places, 1<<32-1),
		"one that overlaps the next":         with(places+4, 3),
		"two that could be one":              with(places+4, 2),
		"one without bytes":                  with(places+4, 0),
		"one that wraps around":              with(places+4, 1<<32-1),
		"stretches that go backwards":        with(places+8, 0),
		"one that is longer than the file":   with(places+12, 4),
		"one that is shorter than its bytes": with(places+12, 1),
		"a byte more":                        append(whole(), 0),
	} {
		if _, _, _, err := sandbox.DecodeSnapshot(b); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	for n := range len(whole()) {
		if _, _, _, err := sandbox.DecodeSnapshot(whole()[:n]); err == nil {
			t.Errorf("its first %d bytes are accepted", n)
		}
	}
}

// FuzzSnapshot checks that no file makes the reader panic or reach for more
// memory than a guest has, and that a snapshot has one file only.
func FuzzSnapshot(f *testing.F) {
	f.Add(sandbox.EncodeSnapshot(sandbox.State{}, 0, false))
	f.Add(sandbox.EncodeSnapshot(sandbox.State{Memory: memoryWith(1, 1, 3, 4), Globals: []uint64{5, 6}}, 9, true))
	f.Fuzz(func(t *testing.T, b []byte) {
		again, pages, err := sandbox.RecodeSnapshot(b)
		if err != nil {
			return
		}
		if !bytes.Equal(again, b) || pages > 1024 {
			t.Errorf("%d pages, and the file is written as %d bytes, not %d", pages, len(again), len(b))
		}
	})
}
