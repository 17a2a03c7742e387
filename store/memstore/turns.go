package memstore

import (
	"bytes"
	"context"
	"slices"
	"sort"

	"github.com/carrelhost/carrel"
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
	for from > 0 && len(h.messages)-from < limit.Messages {
		if size += h.messages[from-1].Size(); limit.Bytes > 0 && size > limit.Bytes {
			break
		}
		from--
	}
	return h.messages[from:]
}

// turnsUpTo returns how many messages the turns up to and with a number have.
func (h *history) turnsUpTo(turn int64) int {
	return sort.Search(len(h.messages), func(i int) bool { return h.messages[i].Turn > turn })
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
func (s *Store) Messages(ctx context.Context, k carrel.MemoryKey, generation, after int64, limit store.MessageLimit) (store.MessagePage, error) {
	if err := s.begin(ctx); err != nil {
		return store.MessagePage{}, err
	}
	defer s.mu.Unlock()
	const op = "memstore.Messages"
	h, err := s.generation(op, k, generation)
	if err == nil && h.expired(limit.Cutoff) {
		err = carrel.FailNotFound(op)
	}
	if err != nil {
		return store.MessagePage{}, err
	}
	var page store.MessagePage
	size := int64(0)
	add := func(m store.StoredMessage) (more bool) {
		size += m.Size()
		if n := len(page.Messages); n >= limit.Messages || n > 0 && limit.Bytes > 0 && size > limit.Bytes {
			page.More = true
			return false
		}
		m.Message = copyMessage(m.Message)
		page.Messages = append(page.Messages, m)
		return true
	}
	if after < 0 && h.system != "" && !add(store.StoredMessage{
		Message: carrel.Message{Role: carrel.RoleSystem, Content: h.system},
		At:      h.systemAt,
	}) {
		return page, nil
	}
	from := sort.Search(len(h.messages), func(i int) bool { return h.messages[i].Seq > after })
	for _, m := range h.messages[from:] {
		if !add(m) {
			break
		}
	}
	return page, nil
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
