package memstore

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/store"
)

type claim struct {
	store.Claim // At becomes the answer's
	answered    bool
	interrupted bool
	sealed      []byte
	trimmed     int64
}

// claimed is what a tenant has of claims.
type claimed struct {
	claims int   // answered or not
	bytes  int64 // of sealed answers
}

// worked reports whether a node still works on a claim.
func (c *claim) worked(node string) bool { return !c.answered && !c.interrupted && c.Node == node }

func (c *claim) gone(cutoff time.Time) bool {
	return !cutoff.IsZero() && !c.At.After(stored(cutoff))
}

// Claim implements store.Idempotency.
func (s *Store) Claim(ctx context.Context, c store.Claim, most store.ClaimLimits) (store.Claimed, error) {
	const op = "memstore.Claim"
	if err := s.begin(ctx); err != nil {
		return store.Claimed{}, err
	}
	defer s.mu.Unlock()
	old := s.claims[c.ID]
	c.At = stored(c.At)
	switch {
	case old == nil, old.gone(c.Cutoff):
	case old.Fingerprint != c.Fingerprint:
		return store.Claimed{}, carrel.Fail(op, abi.IdempotencyMismatch,
			"this idempotency key was used for another request; use a new one")
	case old.answered:
		return store.Claimed{State: store.ClaimAnswered, Sealed: bytes.Clone(old.sealed), Trimmed: old.trimmed}, nil
	case old.interrupted:
		return store.Claimed{State: store.ClaimInterrupted}, nil
	case old.Node != c.Node:
		return store.Claimed{State: store.ClaimElsewhere}, nil
	case old.Handler:
		old.interrupted = true // nobody works on it, and so it may be forgotten
		return store.Claimed{State: store.ClaimInterrupted}, nil
	default:
		old.Claim = c
		return store.Claimed{State: store.ClaimTaken}, nil
	}
	if err := s.full(op, c.Tenant, c.Cutoff, most); err != nil {
		return store.Claimed{}, err
	}
	if old != nil {
		s.removeClaim(c.ID)
	}
	s.claims[c.ID] = &claim{Claim: c}
	s.countClaims(c.Tenant, 1, 0)
	return store.Claimed{State: store.ClaimTaken}, nil
}

func (s *Store) removeClaim(id [32]byte) {
	c := s.claims[id]
	delete(s.claims, id)
	s.countClaims(c.Tenant, -1, -int64(len(c.sealed)))
	s.scrub.Due = true // even without an answer it names a subject
}

// countClaims changes what a tenant has of claims.
func (s *Store) countClaims(t carrel.TenantID, claims int, bytes int64) {
	has := s.claimed[t]
	if has = (claimed{has.claims + claims, has.bytes + bytes}); has == (claimed{}) {
		delete(s.claimed, t)
		return
	}
	s.claimed[t] = has
}

// full returns quota_exceeded if a tenant has its claims. Those that count as
// gone, and that nobody has forgotten yet, are not among them.
func (s *Store) full(op string, t carrel.TenantID, cutoff time.Time, most store.ClaimLimits) error {
	has := s.claimed[t]
	if most.Check(op, has.claims, has.bytes) == nil {
		return nil
	}
	for _, c := range s.claims {
		if c.Tenant == t && c.gone(cutoff) {
			has.claims, has.bytes = has.claims-1, has.bytes-int64(len(c.sealed))
		}
	}
	return most.Check(op, has.claims, has.bytes)
}

// Answer implements store.Idempotency.
func (s *Store) Answer(ctx context.Context, a store.Answer) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	s.answer(a, 0)
	return nil
}

func (s *Store) answer(a store.Answer, trimmed int64) {
	c := s.claims[a.Claim]
	if c == nil || c.answered || c.interrupted {
		return
	}
	c.answered, c.sealed, c.trimmed, c.At = true, bytes.Clone(a.Sealed), trimmed, stored(a.At)
	s.countClaims(c.Tenant, 0, int64(len(c.sealed)))
}

// ReleaseClaim implements store.Idempotency.
func (s *Store) ReleaseClaim(ctx context.Context, c store.Claim) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	if old := s.claims[c.ID]; old != nil && old.worked(c.Node) && old.At.Equal(stored(c.At)) {
		s.removeClaim(c.ID)
	}
	return nil
}

// ReleaseClaims implements store.Idempotency.
func (s *Store) ReleaseClaims(ctx context.Context, node string) (int, error) {
	if err := s.begin(ctx); err != nil {
		return 0, err
	}
	defer s.mu.Unlock()
	n := 0
	for id, c := range s.claims {
		if c.answered || c.interrupted || c.Node == node {
			continue
		}
		n++
		if c.Handler {
			c.interrupted = true
		} else {
			s.removeClaim(id)
		}
	}
	return n, nil
}

// ForgetClaims implements store.Idempotency. The oldest go first. It looks at
// every claim.
func (s *Store) ForgetClaims(ctx context.Context, node string, before time.Time, limit int) (int, error) {
	if err := s.begin(ctx); err != nil {
		return 0, err
	}
	defer s.mu.Unlock()
	var old []*claim
	for _, c := range s.claims {
		if c.gone(before) && !c.worked(node) {
			old = append(old, c)
		}
	}
	slices.SortFunc(old, func(a, b *claim) int {
		return cmp.Or(a.At.Compare(b.At), bytes.Compare(a.ID[:], b.ID[:]))
	})
	old = head(old, limit)
	for _, c := range old {
		s.removeClaim(c.ID)
	}
	return len(old), nil
}
