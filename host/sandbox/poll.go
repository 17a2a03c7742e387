package sandbox

import (
	"context"
	"encoding/binary"
	"math"
	"time"
)

// mostSubscriptions bounds what one poll waits for.
const mostSubscriptions = 1024

// The layout of a poll's subscriptions and events, and their kinds.
const (
	subscriptionBytes = 48
	eventBytes        = 32
	eventClock        = 0
	eventRead         = 1
	eventWrite        = 2
	clockAbsolute     = 1
)

// subscription is one of a poll, decoded.
type subscription struct {
	userData uint64
	kind     byte
	errno    uint16 // it can never come true: told at once
	wait     uint64 // ns from the start of the poll
}

// wasiPoll sleeps until the first subscription comes true, without a CPU
// slot, and ends the guest if its context ends first. Files are always ready:
// standard input is at its end, and the log takes everything.
func wasiPoll(ctx context.Context, r *run, a []uint64) int64 {
	in, out, n, result := uint32(a[0]), uint32(a[1]), uint32(a[2]), uint32(a[3])
	if n == 0 || n > mostSubscriptions {
		return wasiInval
	}
	list, ok := r.bytes(in, n*subscriptionBytes)
	if !ok {
		return wasiFault
	}
	if _, ok := r.bytes(out, n*eventBytes); !ok {
		return wasiFault
	}
	if errno := r.put32(result, 0); errno != wasiOK {
		return errno
	}
	r.charge(ctx, int(n)*subscriptionUnits)
	subscriptions := make([]subscription, 0, n)
	shortest := uint64(math.MaxUint64)
	for ; len(list) > 0; list = list[subscriptionBytes:] {
		s, ok := r.subscription(list[:subscriptionBytes])
		if !ok {
			return wasiInval
		}
		subscriptions = append(subscriptions, s)
		shortest = min(shortest, s.wait)
	}
	if shortest > 0 {
		r.clock.sleep(ctx, time.Duration(min(shortest, math.MaxInt64)))
	}
	// Views do not survive the sleep, the guest's memory does.
	events, _ := r.bytes(out, n*eventBytes)
	var count uint32
	for _, s := range subscriptions {
		if s.wait > shortest {
			continue
		}
		event := events[count*eventBytes:][:eventBytes]
		clear(event)
		binary.LittleEndian.PutUint64(event, s.userData)
		binary.LittleEndian.PutUint16(event[8:], s.errno)
		event[10] = s.kind
		count++
	}
	return r.put32(result, count)
}

// subscription decodes one; ok is false for a kind that does not exist.
func (r *run) subscription(b []byte) (s subscription, ok bool) {
	s = subscription{userData: binary.LittleEndian.Uint64(b), kind: b[8]}
	switch s.kind {
	case eventClock:
		id, timeout := binary.LittleEndian.Uint32(b[16:]), binary.LittleEndian.Uint64(b[24:])
		flags := binary.LittleEndian.Uint16(b[40:])
		now, known := r.clockNow(id)
		switch {
		case !known:
			s.errno = wasiInval
		case flags&clockAbsolute == 0:
			s.wait = timeout
		case timeout > uint64(now):
			s.wait = timeout - uint64(now)
		}
	case eventRead, eventWrite:
		if binary.LittleEndian.Uint32(b[16:]) >= files {
			s.errno = wasiBadF
		}
	default:
		return s, false
	}
	return s, true
}
