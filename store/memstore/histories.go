package memstore

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/store"
)

type handleKey struct {
	tenant carrel.TenantID
	handle carrel.Handle
}

type history struct {
	store.History
	system       string // "" is none
	systemAt     time.Time
	messages     []store.StoredMessage // without the system message; Seq is index + 1
	touchers     map[store.Toucher]struct{}
	applications map[*scope]struct{} // application scopes in which it was touched
}

func byGeneration(a, b *history) int { return cmp.Compare(a.Generation, b.Generation) }

// usedAt never sets the clock back: touches may arrive out of order.
func (h *history) usedAt(at time.Time) {
	if at = stored(at); at.After(h.LastUsedAt) {
		h.LastUsedAt = at
	}
}

func (s *Store) newHistory(t store.Touch) *history {
	s.lastGeneration++
	h := &history{
		History: store.History{
			Key:        t.Key,
			Handle:     t.Handle,
			Generation: s.lastGeneration,
			CreatedAt:  stored(t.At),
			LastUsedAt: stored(t.At),
		},
		touchers:     make(map[store.Toucher]struct{}),
		applications: make(map[*scope]struct{}),
	}
	s.histories[t.Key] = h
	s.handles[handleKey{t.Key.Tenant, t.Handle}] = h
	s.byAge[t.Key.Tenant] = append(s.byAge[t.Key.Tenant], h)
	return h
}

// evict deletes a history. Its touches in application scopes go too, or an
// application that lives for years would gather them; those in shorter scopes
// stay, so that a history made anew under the same key dies with them.
func (s *Store) evict(h *history, why carrel.EvictionReason, at time.Time) carrel.Eviction {
	delete(s.histories, h.Key)
	delete(s.handles, handleKey{h.Key.Tenant, h.Handle})
	for sc := range h.applications {
		delete(sc.touched, h.Handle)
	}
	all := s.byAge[h.Key.Tenant]
	if i, ok := slices.BinarySearchFunc(all, h, byGeneration); ok {
		s.byAge[h.Key.Tenant] = slices.Delete(all, i, i+1)
	}
	return carrel.Eviction{
		Handle:   h.Handle,
		Plugin:   h.Plugin,
		Key:      h.Key,
		Reason:   why,
		Messages: h.Messages,
		Bytes:    h.Bytes,
		At:       stored(at),
	}
}

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
	h := s.histories[k]
	if h == nil {
		return store.View{}, nil
	}
	v := store.View{Generation: h.Generation, System: h.system}
	for _, m := range h.messages[max(0, len(h.messages)-max(limit.Messages, 0)):] {
		if n := len(v.Recent); n == 0 || v.Recent[n-1].N != m.Turn {
			v.Recent = append(v.Recent, carrel.Turn{N: m.Turn})
		}
		last := &v.Recent[len(v.Recent)-1]
		last.Messages = append(last.Messages, copyMessage(m.Message))
	}
	return v, nil
}

// Commit implements store.Histories.
func (s *Store) Commit(ctx context.Context, c store.Commit) (store.Committed, error) {
	const op = "memstore.Commit"
	if err := s.begin(ctx); err != nil {
		return store.Committed{}, err
	}
	defer s.mu.Unlock()
	h := s.histories[c.Touch.Key]
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
	if c.System != nil {
		h.setSystem(*c.System, c.At)
	}
	for _, t := range c.Turns {
		h.LastTurn++
		for _, m := range t.Messages {
			h.messages = append(h.messages, store.StoredMessage{
				Message: copyMessage(m),
				Seq:     int64(len(h.messages)) + 1,
				Turn:    h.LastTurn,
				At:      stored(c.At),
			})
			h.Messages++
			h.Bytes += m.Size()
		}
	}
	h.usedAt(c.At)
	return store.Committed{Generation: h.Generation, LastTurn: h.LastTurn}, nil
}

func (h *history) setSystem(text string, at time.Time) {
	if h.system != "" {
		h.Messages--
		h.Bytes -= int64(len(h.system))
	}
	h.system, h.systemAt = text, stored(at)
	if text != "" {
		h.Messages++
		h.Bytes += int64(len(text))
	}
}

// History implements store.Histories.
func (s *Store) History(ctx context.Context, t carrel.TenantID, handle carrel.Handle, by *store.Toucher, _ store.Cutoff) (store.History, error) {
	if err := s.begin(ctx); err != nil {
		return store.History{}, err
	}
	defer s.mu.Unlock()
	h := s.handles[handleKey{t, handle}]
	if h == nil || !h.touchedBy(by) {
		return store.History{}, carrel.FailNotFound("memstore.History")
	}
	return h.History, nil
}

func (h *history) touchedBy(by *store.Toucher) bool {
	if by == nil {
		return true
	}
	_, ok := h.touchers[*by]
	return ok
}

// ListHistories implements store.Histories.
func (s *Store) ListHistories(ctx context.Context, f store.HistoryFilter) ([]store.History, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	all := s.byAge[f.Tenant]
	start, _ := slices.BinarySearchFunc(all, f.After, func(h *history, after int64) int {
		return cmp.Or(cmp.Compare(h.Generation, after), -1) // the equal one is not wanted
	})
	var list []store.History
	for _, h := range all[start:] {
		if len(list) >= f.Limit {
			break
		}
		if (f.Plugin == "" || f.Plugin == h.Plugin) && h.touchedBy(f.TouchedBy) &&
			strings.HasPrefix(string(h.Key.ID), f.Prefix) {
			list = append(list, h.History)
		}
	}
	return list, nil
}

// Messages implements store.Histories.
func (s *Store) Messages(ctx context.Context, k carrel.MemoryKey, generation, after int64, limit int) ([]store.StoredMessage, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	h := s.histories[k]
	if h == nil || h.Generation != generation {
		return nil, carrel.FailNotFound("memstore.Messages")
	}
	var list []store.StoredMessage
	if after < 0 && h.system != "" && limit > 0 {
		list = append(list, store.StoredMessage{
			Message: carrel.Message{Role: carrel.RoleSystem, Content: h.system},
			At:      h.systemAt,
		})
	}
	from := min(max(after, 0), int64(len(h.messages)))
	for _, m := range head(h.messages[from:], limit-len(list)) {
		m.Message = copyMessage(m.Message)
		list = append(list, m)
	}
	return list, nil
}

// DeleteHistory implements store.Histories.
func (s *Store) DeleteHistory(ctx context.Context, k carrel.MemoryKey, d store.Deletion) (carrel.Eviction, error) {
	if err := s.begin(ctx); err != nil {
		return carrel.Eviction{}, err
	}
	defer s.mu.Unlock()
	h := s.histories[k]
	if h == nil {
		return carrel.Eviction{}, carrel.FailNotFound("memstore.DeleteHistory")
	}
	return s.evict(h, d.Reason, d.At), nil
}
