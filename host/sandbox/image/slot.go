package image

import (
	"errors"
	"fmt"
)

// Slot is the linear memory of one instance. It has one user at a time, which
// is the guest too while it runs: Reset, Trim and Close are for when it has
// stopped. Different slots of one image need no care for each other.
type Slot struct {
	im    *Image
	mem   memory // nil when closed
	max   int
	dirty int
	lack  error // of room to grow, the last one
}

// Bytes returns the first n bytes of the memory, with no capacity beyond
// them. Growing is asking for more than before: what comes new is zero.
//
// It is nil when n is negative or beyond the image's maximum, when the slot
// is closed, and when the system has no room to grow, which Lack tells; a
// guest's memory.grow then fails. The bytes belong to the slot: nobody uses them after Close, and
// with Copy nobody uses those from before a growth. Reset and Trim change
// them and leave them where they are.
//
// What was never asked for cannot be reached: with the mapped methods a
// stray access beyond it faults. So a reset knows all that can be written
// and need not be told.
func (s *Slot) Bytes(n int) []byte {
	if s.mem == nil || n < 0 || n > s.max {
		return nil
	}
	b, err := s.mem.bytes(n)
	if err != nil {
		if !errors.Is(err, ErrNoRoom) {
			err = fmt.Errorf("%w: %w", ErrNoRoom, err)
		}
		s.lack = err
		return nil
	}
	return b
}

// Lack returns why Bytes last was nil although the image's maximum allows as
// much: ErrNoRoom with what the system said. It is nil if that never happened.
func (s *Slot) Lack() error { return s.lack }

// Reset makes the memory the image again, and zero beyond it: every byte that
// Bytes ever returned, however large the slot once was. The error is ErrClosed.
//
// A slot that was grown remains as large: its resets look at all of it.
func (s *Slot) Reset() error {
	if s.mem == nil {
		return ErrClosed
	}
	s.dirty = s.mem.reset()
	return nil
}

// Trim is Reset, and gives the slot's private pages back to the system, for
// an instance that will idle; its next call pays a page fault for each page
// that it writes. With Copy there is nothing to give back. The error is
// ErrClosed.
func (s *Slot) Trim() error {
	if s.mem == nil {
		return ErrClosed
	}
	s.mem.trim()
	return nil
}

// Dirty returns how many of the system's pages the last Reset took to be
// changed: with PageScan those that are private, which are the ones that
// this call or earlier ones wrote, and otherwise all that the slot may reach.
// Before the first Reset it is 0.
func (s *Slot) Dirty() int { return s.dirty }

// Private returns how many bytes of memory the slot alone has since the last
// Reset or Trim: the pages that a reset leaves private although they show the
// image, and what the system needs to map it. An image's own are not among
// them, nor are pages that were written since, so that before the first Reset
// it is no more than after a Trim. With Copy it is always all of the slot's
// memory, which is at least what Bytes was ever asked for. After Close it is 0.
func (s *Slot) Private() int {
	if s.mem == nil {
		return 0
	}
	return s.mem.kept()
}

// Close gives the memory back to the system: whoever uses its bytes after
// that ends the process or worse. Nothing else ever gives it back, the garbage
// collector included, so a slot that is forgotten is lost. Closing again is
// no error. After an error the slot is as before.
func (s *Slot) Close() error {
	if s.mem == nil {
		return nil
	}
	if err := s.mem.close(); err != nil {
		return err
	}
	s.mem = nil
	s.im.gone()
	return nil
}
