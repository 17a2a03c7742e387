package sandbox

import "context"

// What the host does for a guest is charged to it, in units of fuel as what
// the guest does itself. So one that has the host work in its place comes to
// refuel as often as one that works: it ends in time, uses up its fuel, and
// leaves its slot to others. A price is that of a slow case, such as bytes
// that are no text.
const (
	importUnits       = 256 // an import, whatever it does; a refusal has a text to write
	vectorUnits       = 8
	subscriptionUnits = 64
	lineUnits         = 256 // a line of the log

	copyShift   = 3 // bytes that are moved or searched: a unit for 8, as in the guest's own copies
	randomUnits = 2 // a byte
	textUnits   = 4 // a byte that is checked to be text
	jsonUnits   = 4 // a byte that is parsed
)

// The most bytes that the host works on between two looks at the guest's time
// and fuel.
const (
	copyPiece   = 512 << 10
	randomPiece = 16 << 10
	writePiece  = 4 << 10 // it may be lines only
)

// charge takes fuel for what the host does or did. Without any left it is a
// place to stop the guest, or to have its slot pass to others. Views of the
// guest's memory stay valid: it does not run meanwhile.
func (r *run) charge(ctx context.Context, units int) {
	fuel := r.instance.fuel
	left := int64(fuel.Get()) - int64(units)
	fuel.Set(uint64(left))
	if left < 0 {
		r.refuel(ctx)
	}
}

// copy copies what of src follows offset and returns how much that was.
func (r *run) copy(ctx context.Context, dst, src []byte, offset uint32) int64 {
	if uint64(offset) >= uint64(len(src)) {
		return 0
	}
	src = src[offset:]
	n := 0
	for n < len(dst) && n < len(src) {
		moved := copy(dst[n:min(len(dst), n+copyPiece)], src[n:])
		n += moved
		r.charge(ctx, moved>>copyShift)
	}
	return int64(n)
}

// print logs what the guest wrote to a stream.
func (r *run) print(ctx context.Context, stream int, b []byte) {
	for len(b) > 0 {
		lines := len(r.log.lines)
		piece := b[:min(len(b), writePiece)]
		taken := r.log.write(stream, piece)
		r.charge(ctx, taken*textUnits+(len(r.log.lines)-lines)*lineUnits)
		if taken < len(piece) {
			return // of the rest nothing could be kept
		}
		b = b[taken:]
	}
}

// random fills dst.
func (r *run) random(ctx context.Context, dst []byte) error {
	for len(dst) > 0 {
		n := min(len(dst), randomPiece)
		if err := r.clock.random(dst[:n]); err != nil {
			return err
		}
		r.charge(ctx, n*randomUnits)
		dst = dst[n:]
	}
	return nil
}
