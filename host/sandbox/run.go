package sandbox

import (
	"context"
	"time"

	"github.com/tetratelabs/wazero/api"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox/marker"
	"github.com/carrelhost/carrel/host/sandbox/slots"
)

// run is the host's side of one call: everything that the imports read and
// write. It has one user at a time, the goroutine that runs the guest, and is
// dropped with the call: an instance that is used again gets a new one.
type run struct {
	cfg       *Config
	slots     *slots.Pool
	share     string // of the slots
	input     []byte
	host      Host
	admitting bool
	warming   bool // the warm-up runs
	clock     clock
	names     map[uint32]string // of the functions of the code
	instance  *instance         // while a guest runs in it
	memory    api.Memory        // the instance's; nil without an export of it

	output      []byte
	outputBytes int // the most
	guestError  *guestError
	refusal     []byte // the JSON of last_error; nil before the first refusal
	results     results
	hostCalls   int
	log         logbook

	mark    marker.Mark // while a guest runs in it
	onSlot  bool
	slotted time.Time // since when
	onCPU   time.Duration
	fuel    int64 // used before the slice of now
	granted int64 // with that slice
}

type guestError struct{ code, message string }

// runKey finds the run in the context that the engine hands to imports.
type runKey struct{}

func runOf(ctx context.Context) *run {
	r, ok := ctx.Value(runKey{}).(*run)
	if !ok {
		panic("sandbox: an import was called outside of a run")
	}
	return r
}

func (s *Sandbox) newRun() *run {
	return &run{
		cfg: &s.cfg, slots: s.slots,
		results: results{left: s.cfg.ResultBytes},
		log:     logbook{left: s.cfg.LogBytes, limit: s.cfg.LogBytes},
	}
}

// call returns the run of a call. passed is what its monotonic clock showed
// last.
func (s *Sandbox) call(c Call, passed int64) *run {
	r := s.newRun()
	r.input, r.host, r.share = c.Input, c.Host, c.Share
	r.outputBytes = s.cfg.OutputBytes
	r.clock = &realClock{now: s.cfg.Now, start: s.cfg.Now(), base: passed, source: s.cfg.Random, away: r.away}
	return r
}

// admission returns the run of what guests do before their first call.
func (s *Sandbox) admission(share string) *run {
	r := s.newRun()
	r.admitting = true
	r.share = share
	r.outputBytes = abi.MaxManifestBytes
	r.clock = newStubClock()
	return r
}

func (r *run) takeSlot(ctx context.Context) error {
	if err := r.slots.Acquire(ctx, r.share, nil); err != nil {
		return err
	}
	r.onSlot, r.slotted = true, time.Now()
	r.mark.Back()
	return nil
}

func (r *run) giveSlot() {
	if r.onSlot {
		r.offSlot()
		r.slots.Release(r.share)
	}
}

// keepSlot ends the run's time on its slot, which the caller gives back.
func (r *run) keepSlot() (giveBack func()) {
	r.offSlot()
	pool, share := r.slots, r.share
	return func() { pool.Release(share) }
}

// offSlot ends the guest's time on its slot.
func (r *run) offSlot() {
	r.mark.Away()
	r.onCPU += time.Since(r.slotted)
	r.onSlot = false
}

// away gives up the CPU slot while f blocks, so that guests that wait for
// others, and sleepers, never keep a slot from those they wait for. If ctx
// ends before there is a slot again, the guest ends.
func (r *run) away(ctx context.Context, f func()) {
	r.giveSlot()
	f()
	if err := r.takeSlot(ctx); err != nil {
		panic(&stop{context: err})
	}
}

// bytes returns a view of guest memory. It is valid until the guest runs
// again; ok is false if any byte of it is outside.
func (r *run) bytes(ptr, n uint32) (view []byte, ok bool) {
	if r.memory == nil {
		return nil, false
	}
	return r.memory.Read(ptr, n) // it adds in 64 bits
}
