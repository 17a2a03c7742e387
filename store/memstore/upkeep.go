package memstore

import (
	"context"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/store"
)

// Scrub implements store.Upkeep. There is no disk that anything could be left
// on, so that it only keeps when it was.
func (s *Store) Scrub(ctx context.Context, at time.Time) (store.Scrub, error) {
	if err := s.begin(ctx); err != nil {
		return store.Scrub{}, err
	}
	defer s.mu.Unlock()
	s.scrub = store.Scrub{At: stored(at)}
	return s.scrub, nil
}

// LastScrub implements store.Upkeep.
func (s *Store) LastScrub(ctx context.Context) (store.Scrub, error) {
	if err := s.begin(ctx); err != nil {
		return store.Scrub{}, err
	}
	defer s.mu.Unlock()
	return s.scrub, nil
}

// Counts implements store.Upkeep.
func (s *Store) Counts(ctx context.Context) (store.Counts, error) {
	if err := s.begin(ctx); err != nil {
		return store.Counts{}, err
	}
	defer s.mu.Unlock()
	n := store.Counts{Scopes: make(map[carrel.Scope]int64), Histories: int64(len(s.histories))}
	for _, sc := range s.scopes {
		n.Scopes[sc.Scope]++
		n.Touches += int64(len(sc.touched))
	}
	for _, h := range s.histories {
		if h.Application && (h.Key.Kind == carrel.KindRequest || h.Key.Kind == carrel.KindSession) {
			n.Leaking++
		}
	}
	return n, nil
}
