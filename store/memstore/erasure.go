package memstore

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/store"
)

// EraseSubject implements store.Evictions. It looks at every history of the
// tenant, every session and every claim.
func (s *Store) EraseSubject(ctx context.Context, t carrel.TenantID, subject carrel.Subject, at time.Time, limit int) (store.Erasure, error) {
	if err := s.begin(ctx); err != nil {
		return store.Erasure{}, err
	}
	defer s.mu.Unlock()
	if subject == "" { // is no subject: what was done on nobody's behalf stays
		return store.Erasure{}, nil
	}
	limit = max(limit, 1)
	sessions := s.sessionsOf(t, subject)
	ended := s.touchedFor(t, subject, sessions, limit)
	slices.SortFunc(ended, byGeneration)
	var done store.Erasure
	for _, h := range ended {
		done.Evicted = append(done.Evicted, s.evict(h, nil, carrel.ReasonErased, at))
	}
	// A session goes only after all that was touched in it has.
	if done.More = len(ended) == limit; done.More {
		return done, nil
	}
	for _, ses := range head(sessions, limit) {
		if ses.ClosedAt.IsZero() {
			delete(s.scopes, carrel.ScopeID(ses.ID))
			s.tenants[t].sessions--
		}
		delete(s.sessions, ses.ID)
		s.scrub.Due = true
	}
	claims := s.claimsOf(t, subject)
	for _, c := range head(claims, limit) {
		s.removeClaim(c.ID)
	}
	done.More = len(sessions) >= limit || len(claims) >= limit
	return done, nil
}

// touchedFor returns up to limit histories that were touched for a subject, the
// oldest first, and after them those that others touched in its open sessions.
func (s *Store) touchedFor(t carrel.TenantID, subject carrel.Subject, sessions []*store.Session, limit int) []*history {
	var ended, inSessions []*history
	for _, h := range s.byAge[t] {
		if h.touchedOnBehalfOf(subject) {
			ended = append(ended, h)
		}
	}
	for _, ses := range sessions {
		if sc := s.scopes[carrel.ScopeID(ses.ID)]; sc != nil && ses.ClosedAt.IsZero() {
			inSessions = append(inSessions, s.touchedIn(sc)...)
		}
	}
	slices.SortFunc(inSessions, byGeneration)
	for _, h := range slices.Compact(inSessions) {
		if !h.touchedOnBehalfOf(subject) {
			ended = append(ended, h)
		}
	}
	return head(ended, limit)
}

func (h *history) touchedOnBehalfOf(subject carrel.Subject) bool {
	for by := range h.touchers {
		if by.Subject == subject {
			return true
		}
	}
	return false
}

// sessionsOf returns a subject's sessions, open and closed, by id.
func (s *Store) sessionsOf(t carrel.TenantID, subject carrel.Subject) []*store.Session {
	var list []*store.Session
	for _, ses := range s.sessions {
		if ses.Tenant == t && ses.Owner.Subject == subject {
			list = append(list, ses)
		}
	}
	slices.SortFunc(list, func(a, b *store.Session) int { return cmp.Compare(a.ID, b.ID) })
	return list
}

// claimsOf returns a subject's claims, by id.
func (s *Store) claimsOf(t carrel.TenantID, subject carrel.Subject) []*claim {
	var list []*claim
	for _, c := range s.claims {
		if c.Tenant == t && c.Subject == subject {
			list = append(list, c)
		}
	}
	slices.SortFunc(list, func(a, b *claim) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	return list
}
