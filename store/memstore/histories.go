package memstore

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/carrelhost/carrel"
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
	messages     []store.StoredMessage // without the system message, by rising Seq
	lastSeq      int64                 // never goes back
	tokenRate    int
	touchers     map[store.Toucher]struct{}
	applications map[*scope]struct{} // application scopes in which it was touched
}

// expired reports whether a cutoff has a history count as not there.
func (h *history) expired(c store.Cutoff) bool {
	return h.Application && !c.IsZero() && !h.LastUsedAt.After(stored(c))
}

// live returns the history under k, or nil if there is none or it has expired.
func (s *Store) live(k carrel.MemoryKey, c store.Cutoff) *history {
	if h := s.histories[k]; h != nil && !h.expired(c) {
		return h
	}
	return nil
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

// evict deletes a history and leaves a record. closed is the scope instance
// that closed, nil if none did. Its touches in application scopes go too, or an
// application that lives for years would gather them; those in shorter scopes
// stay, so that a history made anew under the same key dies with them.
func (s *Store) evict(h *history, closed *scope, why carrel.EvictionReason, at time.Time) carrel.Eviction {
	delete(s.histories, h.Key)
	delete(s.handles, handleKey{h.Key.Tenant, h.Handle})
	for sc := range h.applications {
		delete(sc.touched, h.Handle)
	}
	all := s.byAge[h.Key.Tenant]
	if i, ok := slices.BinarySearchFunc(all, h, byGeneration); ok {
		s.byAge[h.Key.Tenant] = slices.Delete(all, i, i+1)
	}
	e := carrel.Eviction{
		Handle:   h.Handle,
		Plugin:   h.Plugin,
		Key:      h.Key,
		Reason:   why,
		Messages: h.Messages,
		Bytes:    h.Bytes,
		At:       stored(at),
	}
	if closed != nil {
		e.Scope, e.Instance = closed.Scope, closed.ID
	}
	s.scrub.Due = true
	s.record(e)
	return e
}

// History implements store.Histories.
func (s *Store) History(ctx context.Context, t carrel.TenantID, handle carrel.Handle, by *store.Toucher, c store.Cutoff) (store.History, error) {
	if err := s.begin(ctx); err != nil {
		return store.History{}, err
	}
	defer s.mu.Unlock()
	h := s.handles[handleKey{t, handle}]
	if h == nil || h.expired(c) || !h.touchedBy(by) {
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
		if h.picked(f) {
			list = append(list, h.History)
		}
	}
	return list, nil
}

// picked leaves out what its caller has judged: tenant, After and Limit.
func (h *history) picked(f store.HistoryFilter) bool {
	return !h.expired(f.Cutoff) &&
		(f.Plugin == "" || f.Plugin == h.Plugin) &&
		(len(f.Namespaces) == 0 || slices.Contains(f.Namespaces, h.Key.Namespace)) &&
		strings.HasPrefix(string(h.Key.ID), f.Prefix) &&
		h.touchedBy(f.TouchedBy)
}

// DeleteHistory implements store.Histories.
func (s *Store) DeleteHistory(ctx context.Context, k carrel.MemoryKey, d store.Deletion) (carrel.Eviction, error) {
	if err := s.begin(ctx); err != nil {
		return carrel.Eviction{}, err
	}
	defer s.mu.Unlock()
	h := s.live(k, d.Cutoff)
	if h == nil {
		return carrel.Eviction{}, carrel.FailNotFound("memstore.DeleteHistory")
	}
	return s.evict(h, nil, d.Reason, d.At), nil
}

// ExpireHistories implements store.Histories. It looks at every history.
func (s *Store) ExpireHistories(ctx context.Context, c store.Cutoff, at time.Time, limit int) ([]carrel.Eviction, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	var expired []*history
	for _, h := range s.histories {
		if h.expired(c) {
			expired = append(expired, h)
		}
	}
	slices.SortFunc(expired, func(a, b *history) int {
		return cmp.Or(a.LastUsedAt.Compare(b.LastUsedAt), byGeneration(a, b))
	})
	var evictions []carrel.Eviction
	for _, h := range head(expired, limit) {
		evictions = append(evictions, s.evict(h, nil, carrel.ReasonExpired, at))
	}
	return evictions, nil
}
