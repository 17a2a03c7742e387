package snapshot_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
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
				want := snapshot.State{Header: snapshot.Header{Values: tc.globals, Passed: 12345, Warmed: warmed}, Memory: of}
				got, memory, err := decode(encode(want))
				if err != nil || got.Passed != 12345 || got.Warmed != warmed || !slices.Equal(got.Values, tc.globals) {
					t.Fatalf("got %d, %v, %v, %v", got.Passed, got.Warmed, got.Values, err)
				}
				if !bytes.Equal(memory, tc.memory) {
					t.Errorf("it has another memory, of %d pages", got.Pages())
				}
				if pages, n := of.Filled(); pages != tc.pages || n != tc.blocks*block {
					t.Errorf("%d pages have %d bytes, want %d and %d", pages, n, tc.pages, tc.blocks*block)
				}
			}
		})
	}
}

// encode returns the file of a state.
func encode(s snapshot.State) []byte {
	var b bytes.Buffer
	n, err := s.WriteTo(&b)
	if err != nil || n != int64(b.Len()) {
		panic(fmt.Sprintf("%d bytes are said to be %d: %v", b.Len(), n, err))
	}
	return b.Bytes()
}

// decode reads a file and its memory, all of which must be there.
func decode(b []byte) (*snapshot.Reader, []byte, error) {
	rest := bytes.NewReader(b)
	r, err := snapshot.NewReader(rest, int64(len(b)))
	if err != nil {
		return nil, nil, err
	}
	memory := make([]byte, int(r.Pages())*page)
	if err := r.Memory(pieces(memory[:r.End()])); err != nil {
		return nil, nil, err
	}
	if rest.Len() > 0 {
		return nil, nil, fmt.Errorf("%d bytes are left", rest.Len())
	}
	return r, memory, nil
}

// pieces is a memory that is written piece by piece.
type pieces []byte

func (p pieces) WriteAt(b []byte, at int64) (int, error) { return copy(p[at:], b), nil }

var state = snapshot.State{
	Header: snapshot.Header{Values: []uint64{5, 6}, Passed: 9, Warmed: true},
	Memory: snapshot.Of(memoryWith(1, 1, 3, 4)),
}

func TestFilesThatNobodyWroteAreRefused(t *testing.T) {
	whole := func() []byte { return encode(state) }
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
		if _, _, err := decode(b); !errors.Is(err, snapshot.ErrDamaged) {
			t.Errorf("%s is accepted", name)
		}
	}
	for n := range len(whole()) {
		if _, _, err := decode(whole()[:n]); !errors.Is(err, snapshot.ErrDamaged) {
			t.Errorf("its first %d bytes are accepted", n)
		}
	}
}

// FuzzReader checks that no file makes the reader panic or reach for more
// memory than a guest has, and that a state has one file only.
func FuzzReader(f *testing.F) {
	f.Add(encode(snapshot.State{}))
	f.Add(encode(state))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, memory, err := decode(b)
		if err != nil {
			return
		}
		if got.Pages() > 1024 {
			t.Fatalf("it has %d pages", got.Pages())
		}
		again := snapshot.State{Header: got.Header, Memory: snapshot.Of(memory)}
		if same := encode(again); len(same) > len(b) || len(same) == len(b) && !bytes.Equal(same, b) {
			t.Errorf("the file is written as %d bytes, not %d", len(same), len(b))
		}
	})
}
