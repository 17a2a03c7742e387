package sandbox

import (
	"context"
	"encoding/binary"
	"io"
	"math"
	"math/rand/v2"
	"time"
)

// clock is what a guest sees of time and chance.
type clock interface {
	wall() int64      // ns since 1970
	monotonic() int64 // ns, above 0
	// sleep returns when d has passed or ctx ends.
	sleep(ctx context.Context, d time.Duration)
	random(dst []byte) error
}

// realClock is that of calls.
type realClock struct {
	now    func() time.Time
	start  time.Time // of the call
	base   int64     // what monotonic showed last before the call
	source io.Reader
	away   func(ctx context.Context, f func())
}

func (c *realClock) wall() int64 { return c.now().UnixNano() }

// monotonic goes on from what the guest saw at its initialisation. It begins
// above 0: guests take 0 for a clock that does not work.
func (c *realClock) monotonic() int64 { return c.base + max(int64(c.now().Sub(c.start)), 0) + 1 }

func (c *realClock) random(dst []byte) error {
	_, err := io.ReadFull(c.source, dst)
	return err
}

func (c *realClock) sleep(ctx context.Context, d time.Duration) {
	c.away(ctx, func() {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	})
}

// stubClock is that of admission: the same in each run, so that what a module
// does there depends on its bytes only. Each look at it takes a microsecond,
// and sleeping takes no time at all: a guest that waits for time to pass ends.
type stubClock struct {
	passed int64
	source *rand.ChaCha8
}

// stubEpoch is when admission takes place, for guests: the beginning of 2025.
const stubEpoch = 1_735_689_600_000_000_000

func newStubClock() *stubClock {
	// The same seed in each admission; calls get real randomness.
	return &stubClock{source: rand.NewChaCha8([32]byte{})}
}

func (c *stubClock) look() int64 {
	c.pass(time.Microsecond)
	return c.passed
}

func (c *stubClock) pass(d time.Duration) {
	// 73 years are enough, after which the clock stands still. One more step,
	// which is no longer than that, cannot make the sum wrap around.
	if c.passed < math.MaxInt64/4 {
		c.passed += min(int64(d), math.MaxInt64/4)
	}
}

func (c *stubClock) wall() int64      { return stubEpoch + c.look()%stubEpoch }
func (c *stubClock) monotonic() int64 { return c.look() }

func (c *stubClock) sleep(_ context.Context, d time.Duration) { c.pass(d) }

func (c *stubClock) random(dst []byte) error {
	for len(dst) >= 8 {
		binary.LittleEndian.PutUint64(dst, c.source.Uint64())
		dst = dst[8:]
	}
	if len(dst) > 0 {
		var last [8]byte
		binary.LittleEndian.PutUint64(last[:], c.source.Uint64())
		copy(dst, last[:])
	}
	return nil
}

// The imports that tell the time.

// deadlineMS answers the milliseconds that are left, 0 when there are none,
// and the largest number without a deadline.
func deadlineMS(ctx context.Context, _ *run, _ []uint64) int64 {
	deadline, ok := ctx.Deadline()
	if !ok {
		return math.MaxInt64
	}
	return max(time.Until(deadline).Milliseconds(), 0)
}

func nowNS(_ context.Context, r *run, _ []uint64) int64 { return r.clock.wall() }
