package memstore

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"sort"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/store"
)

// copyMessage returns a message that shares no memory with m.
func copyMessage(m carrel.Message) carrel.Message {
	if len(m.ToolCalls) == 0 {
		m.ToolCalls = nil
		return m
	}
	m.ToolCalls = slices.Clone(m.ToolCalls)
	for i := range m.ToolCalls {
		m.ToolCalls[i].Args = bytes.Clone(m.ToolCalls[i].Args)
	}
	return m
}

// View implements store.Histories.
func (s *Store) View(ctx context.Context, k carrel.MemoryKey, limit store.ViewLimit) (store.View, error) {
	if err := s.begin(ctx); err != nil {
		return store.View{}, err
	}
	defer s.mu.Unlock()
	h := s.live(k, limit.Cutoff)
	if h == nil {
		return store.View{}, nil
	}
	v := store.View{
		Generation: h.Generation,
		System:     h.system,
		LastTurn:   h.LastTurn,
		Stored:     int64(len(h.messages)),
		TokenRate:  h.tokenRate,
	}
	for _, m := range h.newest(limit) {
		if n := len(v.Recent); n == 0 || v.Recent[n-1].N != m.Turn {
			v.Recent = append(v.Recent, carrel.Turn{N: m.Turn})
		}
		last := &v.Recent[len(v.Recent)-1]
		last.Messages = append(last.Messages, copyMessage(m.Message))
	}
	return v, nil
}

// newest returns the newest messages within limit. They are the history's own.
func (h *history) newest(limit store.ViewLimit) []store.StoredMessage {
	from, size := len(h.messages), int64(0)
	for from > 0 && len(h.messages)-from < limit.Messages && (limit.Bytes <= 0 || size <= limit.Bytes) {
		from--
		size += h.messages[from].Size()
	}
	return h.messages[from:]
}

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
	if h == nil {
		var err error
		if h, err = s.touch(op, c.Touch); err != nil {
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
	return store.Committed{Generation: h.Generation, LastTurn: h.LastTurn, Trimmed: int64(trimmed)}, nil
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

// turnsUpTo returns how many messages the turns up to and with a number have.
func (h *history) turnsUpTo(turn int64) int {
	return sort.Search(len(h.messages), func(i int) bool { return h.messages[i].Turn > turn })
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

// forget takes messages that are about to be deleted out of the counts.
func (h *history) forget(gone []store.StoredMessage) {
	for _, m := range gone {
		h.Messages--
		h.Bytes -= m.Size()
	}
}

// generation returns the history of the given generation, whatever its age, or
// not_found.
func (s *Store) generation(op string, k carrel.MemoryKey, generation int64) (*history, error) {
	if h := s.histories[k]; h != nil && h.Generation == generation {
		return h, nil
	}
	return nil, carrel.FailNotFound(op)
}

// Messages implements store.Histories.
func (s *Store) Messages(ctx context.Context, k carrel.MemoryKey, generation, after int64, limit int) ([]store.StoredMessage, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	h, err := s.generation("memstore.Messages", k, generation)
	if err != nil {
		return nil, err
	}
	var list []store.StoredMessage
	if after < 0 && h.system != "" && limit > 0 {
		list = append(list, store.StoredMessage{
			Message: carrel.Message{Role: carrel.RoleSystem, Content: h.system},
			At:      h.systemAt,
		})
	}
	from := sort.Search(len(h.messages), func(i int) bool { return h.messages[i].Seq > after })
	for _, m := range head(h.messages[from:], limit-len(list)) {
		m.Message = copyMessage(m.Message)
		list = append(list, m)
	}
	return list, nil
}

// DeleteTurn implements store.Histories.
func (s *Store) DeleteTurn(ctx context.Context, k carrel.MemoryKey, generation, turn int64) error {
	const op = "memstore.DeleteTurn"
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	h, err := s.generation(op, k, generation)
	if err != nil {
		return err
	}
	from, to := h.turnsUpTo(turn-1), h.turnsUpTo(turn)
	if from == to {
		return carrel.FailNotFound(op)
	}
	h.forget(h.messages[from:to])
	h.messages = slices.Delete(h.messages, from, to)
	s.scrub.Due = true
	return nil
}
