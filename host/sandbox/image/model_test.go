package image_test

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/carrelhost/carrel/host/sandbox/image"
)

// pair is a slot and what it must show.
type pair struct {
	slot *image.Slot
	want []byte // to the maximum
	size int    // bytes that the guest has
}

// drawBytes draws a number of bytes from least to most: pages and a few bytes
// more, as rapid prefers small numbers.
func drawBytes(t *rapid.T, what string, least, most int) int {
	pages := rapid.IntRange(0, (most-least)/page).Draw(t, what+", pages")
	more := rapid.OneOf(rapid.Just(0), rapid.IntRange(0, page-1)).Draw(t, what+", bytes more")
	return min(least+pages*page+more, most)
}

// randomImage draws content of at most a number of pages, some of them zeros.
func randomImage(t *rapid.T, pages int) []byte {
	b := make([]byte, drawBytes(t, "image", 0, pages*page))
	mask := rapid.Uint32().Draw(t, "pages that are not zeros")
	for i := range b {
		if mask>>(i/page%32)&1 == 1 {
			b[i] = byte(i*7/3 + i/page)
		}
	}
	return b
}

// TestSlotsBehaveAsPlainMemory compares many slots of one image with arrays
// through random writes, growth, resets, trims, closing and opening.
func TestSlotsBehaveAsPlainMemory(t *testing.T) {
	each(t, func(t *testing.T, how image.Method) {
		rapid.Check(t, func(t *rapid.T) {
			initial := randomImage(t, 12)
			most := drawBytes(t, "maximum", len(initial), 24*page)
			im, err := image.New(initial, most, how)
			if err != nil {
				t.Fatal(err)
			}
			var pairs []*pair
			defer func() {
				for _, p := range pairs {
					if err := p.slot.Close(); err != nil {
						t.Error(err)
					}
				}
				if err := im.Close(); err != nil {
					t.Error(err)
				}
			}()
			one := func(t *rapid.T) *pair {
				if len(pairs) == 0 {
					t.Skip("no slot is open")
				}
				return pairs[rapid.IntRange(0, len(pairs)-1).Draw(t, "slot")]
			}
			t.Repeat(map[string]func(*rapid.T){
				"open": func(t *rapid.T) {
					if len(pairs) == 5 {
						t.Skip("enough")
					}
					s, err := im.Slot()
					if err != nil {
						t.Fatal(err)
					}
					pairs = append(pairs, &pair{slot: s, want: shown(initial, most)})
				},
				"close": func(t *rapid.T) {
					p := one(t)
					if err := p.slot.Close(); err != nil {
						t.Fatal(err)
					}
					for i := range pairs {
						if pairs[i] == p {
							pairs = append(pairs[:i], pairs[i+1:]...)
							break
						}
					}
				},
				"grow": func(t *rapid.T) {
					p := one(t)
					p.size = drawBytes(t, "size", p.size, most)
				},
				"write": func(t *rapid.T) {
					p := one(t)
					if p.size == 0 {
						t.Skip("a slot without bytes")
					}
					from := drawBytes(t, "from", 0, p.size-1)
					n := drawBytes(t, "length", 1, 6*page)
					v := rapid.Byte().Draw(t, "value")
					to := min(from+n, p.size)
					fill(p.slot.Bytes(p.size)[from:to], v)
					fill(p.want[from:to], v)
				},
				"reset": func(t *rapid.T) {
					p := one(t)
					if err := p.slot.Reset(); err != nil {
						t.Fatal(err)
					}
					p.want = shown(initial, most)
				},
				"trim": func(t *rapid.T) {
					p := one(t)
					if err := p.slot.Trim(); err != nil {
						t.Fatal(err)
					}
					p.want = shown(initial, most)
				},
				"": func(t *rapid.T) {
					for _, p := range pairs {
						same(t, "a slot", p.slot.Bytes(p.size), p.want[:p.size])
					}
				},
			})
		})
	})
}

// TestManySlotsAtOnce has goroutines write, grow, reset and trim slots of one
// image, each its own, while others come and go, children are started and the
// garbage collector runs.
func TestManySlotsAtOnce(t *testing.T) {
	const users, rounds, most = 8, 400, 48
	each(t, func(t *testing.T, how image.Method) {
		initial := pattern(20*page + 33)
		clear(initial[5*page : 9*page])
		im := newImage(t, initial, most*page, how)
		plain := shown(initial, most*page)
		stop := make(chan struct{})
		var around, all sync.WaitGroup
		around.Go(func() { disturb(t, stop) })
		for user := range users {
			all.Go(func() {
				rnd := rand.New(rand.NewPCG(uint64(user), 1))
				s, err := im.Slot()
				if err != nil {
					t.Error(err)
					return
				}
				for round := range rounds {
					b := s.Bytes(1 + rnd.IntN(most*page))
					want := shown(initial, len(b))
					for range rnd.IntN(30) {
						from := rnd.IntN(len(b))
						to := min(from+1+rnd.IntN(page), len(b))
						fill(b[from:to], byte(user+1))
						fill(want[from:to], byte(user+1))
					}
					if string(b) != string(want) {
						t.Errorf("user %d, round %d: not what was written", user, round)
						return
					}
					end := s.Reset
					if rnd.IntN(20) == 0 {
						end = s.Trim
					}
					if err := end(); err != nil {
						t.Error(err)
						return
					}
					if got := s.Bytes(most * page); string(got) != string(plain) {
						t.Errorf("user %d, round %d: not the image", user, round)
						return
					}
					if rnd.IntN(50) == 0 {
						if err := s.Close(); err != nil {
							t.Error(err)
							return
						}
						if s, err = im.Slot(); err != nil {
							t.Error(err)
							return
						}
					}
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		close(stop)
		around.Wait()
	})
}

// disturb makes garbage, collects it and starts children until stop.
func disturb(t *testing.T, stop <-chan struct{}) {
	t.Helper()
	var kept [][]byte
	for {
		select {
		case <-stop:
			return
		default:
		}
		for range 50 {
			kept = append(kept, make([]byte, 10_000))
		}
		kept = kept[len(kept)/2:]
		runtime.GC()
		if out, err := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$").CombinedOutput(); err != nil {
			t.Errorf("a child: %v\n%s", err, out)
			return
		}
	}
}

// TestAResetHarmsNoSlotThatIsBeingWritten resets one slot again and again
// while another one is written.
func TestAResetHarmsNoSlotThatIsBeingWritten(t *testing.T) {
	each(t, func(t *testing.T, how image.Method) {
		im := newImage(t, pattern(16*page), 32*page, how)
		resetting, written := newSlot(t, im), newSlot(t, im)
		stop := make(chan struct{})
		var around sync.WaitGroup
		around.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				fill(resetting.Bytes(32*page), 0xEE)
				if err := resetting.Reset(); err != nil {
					t.Error(err)
					return
				}
			}
		})
		want := shown(pattern(16*page), 32*page)
		rnd := rand.New(rand.NewPCG(1, 2))
		for range 2000 {
			at := rnd.IntN(len(want))
			want[at]++
			written.Bytes(len(want))[at]++
			same(t, "the slot that is written", written.Bytes(len(want)), want)
		}
		close(stop)
		around.Wait()
	})
}
