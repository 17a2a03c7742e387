// Package memstore is a store that keeps everything in this process's memory:
// for tests, and for hosts that need not outlive a restart. It is a full
// implementation of the contract in package store.
package memstore

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/store"
)

// errClosed answers every method after Close.
var errClosed = errors.New("memstore: the store is closed")

// Store implements store.Store. Make one with New. It starts no goroutines.
type Store struct {
	secret      [32]byte // never changes
	mostRecords int      // of evictions, of one tenant

	// mu guards everything below, and whatever can be reached from it.
	mu     sync.Mutex
	closed bool

	tenants   map[carrel.TenantID]*tenant
	keys      map[[32]byte]store.APIKey // by hash
	keyIDs    map[carrel.KeyID]struct{}
	scopes    map[carrel.ScopeID]*scope
	sessions  map[carrel.SessionID]*store.Session // HTTP sessions, closed ones too
	histories map[carrel.MemoryKey]*history
	handles   map[handleKey]*history
	byAge     map[carrel.TenantID][]*history // by rising generation

	evictions map[carrel.TenantID]*evictions
	claims    map[[32]byte]*claim
	claimed   map[carrel.TenantID]claimed
	scrub     store.Scrub

	lastGeneration int64 // never goes back, so that no generation is ever used twice
}

var _ store.Store = (*Store)(nil)

// Config says how a Store is to be.
type Config struct {
	// EvictionRecords is how many records of evictions are kept of one tenant.
	// 0 is store.DefaultEvictionRecords.
	EvictionRecords int
}

// New returns an empty store.
func New(cfg Config) *Store {
	s := &Store{
		mostRecords: cmp.Or(cfg.EvictionRecords, store.DefaultEvictionRecords),

		tenants:   make(map[carrel.TenantID]*tenant),
		keys:      make(map[[32]byte]store.APIKey),
		keyIDs:    make(map[carrel.KeyID]struct{}),
		scopes:    make(map[carrel.ScopeID]*scope),
		sessions:  make(map[carrel.SessionID]*store.Session),
		histories: make(map[carrel.MemoryKey]*history),
		handles:   make(map[handleKey]*history),
		byAge:     make(map[carrel.TenantID][]*history),
		evictions: make(map[carrel.TenantID]*evictions),
		claims:    make(map[[32]byte]*claim),
		claimed:   make(map[carrel.TenantID]claimed),
	}
	_, _ = rand.Read(s.secret[:]) // never fails: crypto/rand ends the process instead
	return s
}

// begin takes the lock for one method. The caller unlocks if it returns nil.
func (s *Store) begin(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return errClosed
	}
	return nil
}

// HostSecret implements store.Store.
func (s *Store) HostSecret(ctx context.Context) ([32]byte, error) {
	if err := s.begin(ctx); err != nil {
		return [32]byte{}, err
	}
	defer s.mu.Unlock()
	return s.secret, nil
}

// Check implements store.Store. Memory is always writable until Close.
func (s *Store) Check(ctx context.Context) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	return nil
}

// Close implements store.Store. What was stored is gone.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.tenants, s.keys, s.keyIDs = nil, nil, nil
	s.scopes, s.sessions, s.histories, s.handles, s.byAge = nil, nil, nil, nil, nil
	s.evictions, s.claims, s.claimed = nil, nil, nil
	return nil
}

// stored returns t as it would come back from a disk.
func stored(t time.Time) time.Time { return time.UnixMicro(t.UnixMicro()).UTC() }

// sortedAfter returns up to limit keys of m above after, in order.
func sortedAfter[K ~string, V any](m map[K]V, after K, limit int) []K {
	var above []K
	for k := range maps.Keys(m) {
		if k > after {
			above = append(above, k)
		}
	}
	slices.Sort(above)
	return head(above, limit)
}

// head returns the first limit elements, or none if limit is negative.
func head[E any](all []E, limit int) []E { return all[:min(max(limit, 0), len(all))] }
