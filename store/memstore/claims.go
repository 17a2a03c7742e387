package memstore

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
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

// worked reports whether a node still works on a claim.
func (c *claim) worked(node string) bool { return !c.answered && !c.interrupted && c.Node == node }

func (c *claim) gone(cutoff time.Time) bool {
	return !cutoff.IsZero() && !c.At.After(stored(cutoff))
}

// Claim implements store.Idempotency. What counts as gone does not count
// towards most.
func (s *Store) Claim(ctx context.Context, c store.Claim, most int) (store.Claimed, error) {
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
	if s.full(c.Tenant, c.Cutoff, most) {
		return store.Claimed{}, carrel.FailLimit(op, abi.QuotaExceeded, "idempotencyKeys",
			fmt.Sprintf("this tenant has its %d idempotency keys; wait until some are forgotten, or let the operator raise the limit", most))
	}
	if old != nil {
		s.removeClaim(c.ID)
	}
	s.claims[c.ID] = &claim{Claim: c}
	s.claimed[c.Tenant]++
	return store.Claimed{State: store.ClaimTaken}, nil
}

func (s *Store) removeClaim(id [32]byte) {
	c := s.claims[id]
	delete(s.claims, id)
	if s.claimed[c.Tenant]--; s.claimed[c.Tenant] == 0 {
		delete(s.claimed, c.Tenant)
	}
	s.scrub.Due = true // even without an answer it names a subject
}

// full reports whether a tenant has its number of claims. Those that count as
// gone, and that nobody has forgotten yet, are not among them.
func (s *Store) full(t carrel.TenantID, cutoff time.Time, most int) bool {
	if s.claimed[t] < most {
		return false
	}
	n := 0
	for _, c := range s.claims {
		if c.Tenant == t && !c.gone(cutoff) {
			n++
		}
	}
	return n >= most
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
}

// ReleaseClaim implements store.Idempotency.
func (s *Store) ReleaseClaim(ctx context.Context, id [32]byte) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	if c := s.claims[id]; c != nil && !c.answered {
		s.removeClaim(id)
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
