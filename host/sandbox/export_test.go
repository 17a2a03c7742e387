package sandbox

import (
	"context"
	"testing"
)

// Programs returns how many compiled modules the open plugins of a sandbox
// use together.
func Programs(s *Sandbox) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.programs)
}

// OnSlots returns how many guests of a share have a CPU slot, and how many
// wait for one.
func OnSlots(s *Sandbox, share string) (held, waiting int) { return s.slots.of(share) }

func (s *slots) of(share string) (held, waiting int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held[share], len(s.waiting[share])
}

// Slots are CPU slots without a sandbox.
type Slots struct{ slots *slots }

func NewSlots(n int) Slots { return Slots{newSlots(n)} }

func (s Slots) Acquire(ctx context.Context, share string) error { return s.slots.acquire(ctx, share) }
func (s Slots) Release(share string)                            { s.slots.release(share) }
func (s Slots) Of(share string) (held, waiting int)             { return s.slots.of(share) }

// Left returns how much a set of slots without users and waiters remembers.
func (s Slots) Left() int {
	return len(s.slots.held) + len(s.slots.waiting) + len(s.slots.turns)
}

// Pass passes a slot on and takes it back.
func (s Slots) Pass(ctx context.Context, share string) error { return s.slots.pass(ctx, share) }

// OccupySlot takes a CPU slot that no guest has.
func OccupySlot(t testing.TB, s *Sandbox, share string) (release func()) {
	t.Helper()
	if err := s.slots.acquire(t.Context(), share); err != nil {
		t.Fatal(err)
	}
	return func() { s.slots.release(share) }
}

// Admitting returns how many compilations of uploads run.
func Admitting(s *Sandbox) int { return len(s.admitting) }

// OccupyAdmissions takes every place for the compilation of uploads.
func OccupyAdmissions(s *Sandbox) (release func()) {
	for range cap(s.admitting) {
		s.admitting <- struct{}{}
	}
	return func() {
		for range cap(s.admitting) {
			<-s.admitting
		}
	}
}
