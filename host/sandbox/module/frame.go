package module

// frameEstimate bounds how large a function's native frame is. The engine
// gives every value that it ever spills a slot of its own and uses none of
// them again, so what counts is not how many values live at once but how many
// live across some call, or over more than there are registers for.
type frameEstimate struct {
	locals  int
	height  int // of the operand stack
	settled int // so many of its lowest values have their slot
	slots   int
	outside int // of arguments and results that do not fit into registers
	clock   int // counts writes to locals
	epoch   int // counts events
	fresh   int // locals written since the last event
	writes  []localWrite
	vectors bool
}

// localWrite says when a local was last written, by clock and epoch.
type localWrite struct{ clock, epoch int }

const (
	// frameBytes are the return address, the frame pointer, alignment, and
	// the registers that a callee saves beyond those that values live in.
	frameBytes = 64
	// registers is how many values live at once before some are spilled
	// between calls. Engines have 13 or more; some hold addresses.
	registers = 8
	// shallow is how many values of the operand stack stay in registers, where
	// locals have others: what lies deeper has a slot from then on.
	shallow = 4
)

func (f *frameEstimate) begin(s signature, locals int) {
	*f = frameEstimate{locals: locals, epoch: 1, writes: f.writes}
	if cap(f.writes) < locals {
		f.writes = make([]localWrite, locals)
	}
	f.writes = f.writes[:locals]
	clear(f.writes)
	f.slots = len(s.params) // live across the entry's check
	f.arguments(s)
}

// arguments makes room for those of a call, or of the function itself.
func (f *frameEstimate) arguments(s signature) {
	f.outside = max(f.outside, len(s.params)+len(s.results))
	for _, list := range [][]byte{s.params, s.results} {
		for _, t := range list {
			f.vectors = f.vectors || t == typeV128
		}
	}
}

func (f *frameEstimate) push(n int) {
	f.height += n
	if deep := f.height - shallow; deep > f.settled {
		f.slots += deep - f.settled
		f.settled = deep
	}
}

func (f *frameEstimate) pop(n int) { f.reset(max(f.height-n, 0)) }

func (f *frameEstimate) reset(height int) {
	f.height = height
	f.settled = min(f.settled, height)
}

// crowded reports whether the engine may spill here without a call.
func (f *frameEstimate) crowded() bool { return f.locals+f.height > registers }

// write is one to a local.
func (f *frameEstimate) write(local int) {
	if local >= len(f.writes) {
		return // the engine refuses it
	}
	f.clock++
	w := &f.writes[local]
	w.clock = f.clock
	if f.crowded() {
		f.slots++
		w.epoch = f.epoch
		return
	}
	if w.epoch != f.epoch {
		w.epoch = f.epoch
		f.fresh++
	}
}

// event is a call: what is live needs a slot, if it has none.
func (f *frameEstimate) event() {
	f.slots += max(f.height-f.settled, 0) + f.fresh
	f.settled = max(f.settled, f.height)
	f.fresh = 0
	f.epoch++
}

// join is the end of a block: each local that was written in it has a new
// value there, or, of a loop, at its header.
func (f *frameEstimate) join(b *openBlock) {
	f.reset(b.base)
	f.push(b.block.results)
	if b.since == f.clock {
		return
	}
	for i := range f.writes {
		w := &f.writes[i]
		switch {
		case w.clock <= b.since:
		case b.op == opLoop, f.crowded():
			f.slots++
		case w.epoch != f.epoch:
			w.epoch = f.epoch
			f.fresh++
		}
	}
}

// bytes returns the bound. It is called at the end of the body.
func (f *frameEstimate) bytes() int {
	size := 8
	if f.vectors {
		size = 16
	}
	n := frameBytes + size*f.slots
	if f.outside > registers {
		n += size * f.outside
	}
	return (n + 15) &^ 15
}
