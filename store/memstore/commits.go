package memstore

import (
	"cmp"
	"context"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/store"
)

// Commit implements store.Histories.
func (s *Store) Commit(ctx context.Context, c store.Commit) (store.Committed, error) {
	const op = "memstore.Commit"
	if err := s.begin(ctx); err != nil {
		return store.Committed{}, err
	}
	defer s.mu.Unlock()
	h := s.live(c.Touch.Key, c.Touch.Cutoff)
	generation := int64(0)
	if h != nil {
		generation = h.Generation
	}
	if generation != c.Generation {
		return store.Committed{}, carrel.Fail(op, abi.ScopeClosed, "the history that this turn was built upon has ended")
	}
	var replaced *carrel.Eviction
	if h == nil {
		var err error
		if h, replaced, err = s.touch(op, c.Touch); err != nil {
			return store.Committed{}, err
		}
	}
	// Nothing from here on fails.
	if c.System != nil {
		s.setSystem(h, *c.System, c.At)
	}
	before := h.LastTurn
	if len(h.messages) == 0 {
		h.appendTurns(c.Seeds, c.At)
	}
	h.appendTurns(c.Turns, c.At)
	s.drop(h, h.turnsUpTo(min(c.DropTo, before)))
	trimmed := h.excess(c.Most)
	s.drop(h, trimmed)
	h.tokenRate = cmp.Or(c.TokenRate, h.tokenRate)
	if c.Answer != nil {
		s.answer(*c.Answer, int64(trimmed))
	}
	h.usedAt(c.At)
	return store.Committed{Generation: h.Generation, LastTurn: h.LastTurn, Trimmed: int64(trimmed), Replaced: replaced}, nil
}

func (s *Store) setSystem(h *history, text string, at time.Time) {
	if h.system != "" {
		h.Messages--
		h.Bytes -= int64(len(h.system))
		s.scrub.Due = true
	}
	h.system, h.systemAt = text, stored(at)
	if text != "" {
		h.Messages++
		h.Bytes += int64(len(text))
	}
}

// appendTurns gives a turn of no messages no number.
func (h *history) appendTurns(turns []store.NewTurn, at time.Time) {
	for _, t := range turns {
		if len(t.Messages) == 0 {
			continue
		}
		h.LastTurn++
		when := stored(at)
		if !t.At.IsZero() {
			when = stored(t.At)
		}
		for _, m := range t.Messages {
			h.lastSeq++
			h.messages = append(h.messages, store.StoredMessage{
				Message: copyMessage(m),
				Seq:     h.lastSeq,
				Turn:    h.LastTurn,
				At:      when,
				Origin:  t.Origin,
			})
			h.Messages++
			h.Bytes += m.Size()
		}
	}
}

// excess returns how many of the oldest messages, in whole turns, have to go
// so that the history has at most so many, the system message among them, or
// only the newest turn is left.
func (h *history) excess(most int64) int {
	over := h.Messages - most
	if most <= 0 || over <= 0 || len(h.messages) == 0 {
		return 0
	}
	last := int64(len(h.messages)) - 1
	cut := h.turnsUpTo(h.messages[min(over-1, last)].Turn)
	return min(cut, h.turnsUpTo(h.messages[last].Turn-1))
}

// drop deletes the oldest n messages.
func (s *Store) drop(h *history, n int) {
	if n == 0 {
		return
	}
	h.forget(h.messages[:n])
	clear(h.messages[:n]) // append makes a new array without them in time
	h.messages = h.messages[n:]
	s.scrub.Due = true
}
