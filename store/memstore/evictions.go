package memstore

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/store"
)

// evictions are the records of one tenant.
type evictions struct {
	records []store.EvictionRecord // by rising number
	last    int64                  // the highest number ever given
}

// record keeps what remains of a history that ended.
func (s *Store) record(e carrel.Eviction) {
	kept := s.evictions[e.Key.Tenant]
	if kept == nil {
		kept = &evictions{}
		s.evictions[e.Key.Tenant] = kept
	}
	kept.last++
	r := store.EvictionRecord{
		N:        kept.last,
		Handle:   e.Handle,
		Plugin:   e.Plugin,
		MemoryID: e.Key.ID,
		Scope:    e.Scope,
		Instance: e.Instance,
		Reason:   e.Reason,
		Messages: e.Messages,
		Bytes:    e.Bytes,
		At:       e.At,
	}
	if r.Reason == carrel.ReasonErased {
		r.MemoryID = ""
	}
	kept.records = append(kept.records, r)
	if n := len(kept.records) - s.mostRecords; n > 0 {
		clear(kept.records[:n]) // append makes a new array without them in time
		kept.records = kept.records[n:]
	}
}

// ListEvictions implements store.Evictions.
func (s *Store) ListEvictions(ctx context.Context, f store.EvictionFilter) ([]store.EvictionRecord, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	kept := s.evictions[f.Tenant]
	if kept == nil {
		return nil, nil
	}
	start, _ := slices.BinarySearchFunc(kept.records, f.After, func(r store.EvictionRecord, after int64) int {
		return cmp.Or(cmp.Compare(r.N, after), -1) // the equal one is not wanted
	})
	var list []store.EvictionRecord
	for _, r := range kept.records[start:] {
		if len(list) >= f.Limit {
			break
		}
		if f.Since.IsZero() || !r.At.Before(stored(f.Since)) {
			list = append(list, r)
		}
	}
	return list, nil
}

// ForgetEvictions implements store.Evictions. The oldest go first. It looks at
// every record.
func (s *Store) ForgetEvictions(ctx context.Context, before time.Time, limit int) (int, error) {
	if err := s.begin(ctx); err != nil {
		return 0, err
	}
	defer s.mu.Unlock()
	type place struct {
		tenant carrel.TenantID
		n      int64
		at     time.Time
	}
	var old []place
	for t, kept := range s.evictions {
		for _, r := range kept.records {
			if r.At.Before(stored(before)) {
				old = append(old, place{t, r.N, r.At})
			}
		}
	}
	slices.SortFunc(old, func(a, b place) int {
		return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.tenant, b.tenant), cmp.Compare(a.n, b.n))
	})
	gone := make(map[carrel.TenantID]map[int64]bool)
	for _, p := range head(old, limit) {
		if gone[p.tenant] == nil {
			gone[p.tenant] = make(map[int64]bool)
		}
		gone[p.tenant][p.n] = true
	}
	for t, numbers := range gone {
		kept := s.evictions[t]
		kept.records = slices.DeleteFunc(kept.records, func(r store.EvictionRecord) bool { return numbers[r.N] })
		s.scrub.Due = true
	}
	return len(head(old, limit)), nil
}
