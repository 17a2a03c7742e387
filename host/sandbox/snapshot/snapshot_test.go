package snapshot_test

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"

	"github.com/carrelhost/carrel/host/sandbox/snapshot"
)

const block, page = 4096, 16 * 4096

// memoryWith is a memory of so many pages with these blocks not zero.
func memoryWith(pages int, blocks ...int) []byte {
	b := make([]byte, pages*page)
	for _, at := range blocks {
		b[at*block+at%block] = byte(at%255 + 1)
	}
	return b
}

func TestAStateIsReadAsItWasWritten(t *testing.T) {
	for name, tc := range map[string]struct {
		memory        []byte
		globals       []uint64
		pages, blocks int // with a byte that is not zero
	}{
		"no memory":                         {nil, []uint64{1, 1 << 63}, 0, 0},
		"neither memory nor globals":        {nil, nil, 0, 0},
		"a memory of zeros":                 {memoryWith(3), []uint64{0}, 0, 0},
		"the first and the last block":      {memoryWith(2, 0, 31), nil, 2, 2},
		"blocks beside each other":          {memoryWith(2, 3, 4, 5, 7, 8), nil, 1, 5},
		"blocks of two pages":               {memoryWith(3, 15, 16, 17), nil, 2, 3},
		"all blocks":                        {bytes.Repeat([]byte{7}, 2*page), nil, 2, 32},
		"the most memory there is, at last": {memoryWith(1024, 16383), nil, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			for _, warmed := range []bool{false, true} {
				of := snapshot.Of(tc.memory)
				got, err := snapshot.Decode(snapshot.State{Memory: of, Values: tc.globals, Passed: 12345, Warmed: warmed}.Encode())
				if err != nil || got.Passed != 12345 || got.Warmed != warmed || !slices.Equal(got.Values, tc.globals) {
					t.Fatalf("got %d, %v, %v, %v", got.Passed, got.Warmed, got.Values, err)
				}
				for when, m := range map[string]snapshot.Memory{"written": of, "read": got.Memory} {
					memory := make([]byte, int(m.Pages())*page)
					if m.Fill(memory); !bytes.Equal(memory, tc.memory) {
						t.Errorf("%s, it has another memory, of %d pages", when, m.Pages())
					}
					if pages, n := m.Filled(); pages != tc.pages || n != tc.blocks*block {
						t.Errorf("%s, %d pages have %d bytes, want %d and %d", when, pages, n, tc.pages, tc.blocks*block)
					}
				}
			}
		})
	}
}

var state = snapshot.State{Memory: snapshot.Of(memoryWith(1, 1, 3, 4)), Values: []uint64{5, 6}, Passed: 9, Warmed: true}

func TestFilesThatNobodyWroteAreRefused(t *testing.T) {
	whole := state.Encode
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
		if _, err := snapshot.Decode(b); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	for n := range len(whole()) {
		if _, err := snapshot.Decode(whole()[:n]); err == nil {
			t.Errorf("its first %d bytes are accepted", n)
		}
	}
}

// FuzzDecode checks that no file makes the reader panic or reach for more
// memory than a guest has, and that a state has one file only.
func FuzzDecode(f *testing.F) {
	f.Add(snapshot.State{}.Encode())
	f.Add(state.Encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := snapshot.Decode(b)
		if err != nil {
			return
		}
		if got.Memory.Pages() > 1024 {
			t.Fatalf("it has %d pages", got.Memory.Pages())
		}
		got.Memory.Fill(make([]byte, int(got.Memory.Pages())*page))
		if again := got.Encode(); !bytes.Equal(again, b) {
			t.Errorf("the file is written as %d bytes, not %d", len(again), len(b))
		}
	})
}
