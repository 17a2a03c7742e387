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

// copySession returns a session that shares no memory with s.
func copySession(s *store.Session) store.Session {
	out := *s
	out.Metadata = bytes.Clone(s.Metadata)
	out.Evicted = slices.Clone(s.Evicted)
	return out
}

// expiresAt is the instant at which the first of a session's TTLs has passed.
func expiresAt(s *store.Session) time.Time {
	idle, longest := s.LastUsedAt.Add(s.IdleTTL), s.CreatedAt.Add(s.MaxTTL)
	if idle.Before(longest) {
		return idle
	}
	return longest
}

// CreateSession implements store.Sessions.
func (s *Store) CreateSession(ctx context.Context, n store.Session, most int) error {
	const op = "memstore.CreateSession"
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	tn := s.tenants[n.Tenant]
	if tn == nil {
		return carrel.FailNotFound(op)
	}
	si := store.ScopeInstance{ID: carrel.ScopeID(n.ID), Tenant: n.Tenant, OpenedAt: n.CreatedAt}
	if s.inUse(si.ID) {
		return fmt.Errorf("%s: %s: %w", op, n.ID, store.ErrExists)
	}
	if tn.sessions >= most {
		return carrel.FailLimit(op, abi.QuotaExceeded, "sessions",
			fmt.Sprintf("this tenant has its %d open sessions; close one, or let the operator raise the limit", most))
	}
	kept := store.Session{
		ID:         n.ID,
		Tenant:     n.Tenant,
		Owner:      n.Owner,
		IdleTTL:    n.IdleTTL.Truncate(time.Microsecond),
		MaxTTL:     n.MaxTTL.Truncate(time.Microsecond),
		CreatedAt:  stored(n.CreatedAt),
		LastUsedAt: stored(n.CreatedAt),
	}
	if len(n.Metadata) > 0 {
		kept.Metadata = bytes.Clone(n.Metadata)
	}
	s.sessions[n.ID] = &kept
	tn.sessions++
	s.openSession(si)
	return nil
}

// inUse reports whether a session or a scope instance has an id.
func (s *Store) inUse(id carrel.ScopeID) bool {
	return s.scopes[id] != nil || s.sessions[carrel.SessionID(id)] != nil
}

func (s *Store) openSession(si store.ScopeInstance) {
	si.Scope, si.Plugin = carrel.ScopeSession, ""
	s.scopes[si.ID] = newScope(si)
}

// OpenSession implements store.Sessions.
func (s *Store) OpenSession(ctx context.Context, si store.ScopeInstance) error {
	const op = "memstore.OpenSession"
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	if si.Node == "" {
		return fmt.Errorf("%s: session %s has no node: nobody would close it", op, si.ID)
	}
	if s.inUse(si.ID) {
		return fmt.Errorf("%s: %s: %w", op, si.ID, store.ErrExists)
	}
	s.openSession(si)
	return nil
}

// session returns nil if there is no such session in this tenant.
func (s *Store) session(t carrel.TenantID, id carrel.SessionID) *store.Session {
	if found := s.sessions[id]; found != nil && found.Tenant == t {
		return found
	}
	return nil
}

// Session implements store.Sessions.
func (s *Store) Session(ctx context.Context, t carrel.TenantID, id carrel.SessionID, by *store.Toucher) (store.Session, error) {
	if err := s.begin(ctx); err != nil {
		return store.Session{}, err
	}
	defer s.mu.Unlock()
	found := s.session(t, id)
	if found == nil || by != nil && found.Owner != *by {
		return store.Session{}, carrel.FailNotFound("memstore.Session")
	}
	return copySession(found), nil
}

// UseSession implements store.Sessions.
func (s *Store) UseSession(ctx context.Context, t carrel.TenantID, id carrel.SessionID, at time.Time) error {
	const op = "memstore.UseSession"
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	found := s.session(t, id)
	switch {
	case found == nil:
		return carrel.FailNotFound(op)
	case !found.ClosedAt.IsZero():
		return carrel.Fail(op, abi.SessionClosed, "the session has closed; open another")
	}
	if at = stored(at); at.After(found.LastUsedAt) {
		found.LastUsedAt = at
	}
	return nil
}

// closeSession closes an open session whose scope instance has just been
// closed with these evictions.
func (s *Store) closeSession(ses *store.Session, why carrel.EvictionReason, at time.Time, evictions []carrel.Eviction) {
	ses.ClosedAt, ses.Reason, ses.Evicted = stored(at), why, slices.Clone(evictions)
	s.tenants[ses.Tenant].sessions--
}

// ListSessions implements store.Sessions.
func (s *Store) ListSessions(ctx context.Context, t carrel.TenantID, by *store.Toucher, after carrel.SessionID, limit int) ([]store.Session, error) {
	return s.openSessions(ctx, limit,
		func(ses *store.Session) bool {
			return ses.Tenant == t && ses.ID > after && (by == nil || ses.Owner == *by)
		},
		func(a, b *store.Session) int { return cmp.Compare(a.ID, b.ID) })
}

// ExpiredSessions implements store.Sessions.
func (s *Store) ExpiredSessions(ctx context.Context, now time.Time, limit int) ([]store.Session, error) {
	now = stored(now)
	return s.openSessions(ctx, limit,
		func(ses *store.Session) bool { return !expiresAt(ses).After(now) },
		func(a, b *store.Session) int {
			return cmp.Or(expiresAt(a).Compare(expiresAt(b)), cmp.Compare(a.ID, b.ID))
		})
}

// openSessions returns up to limit of the open sessions that are wanted, in
// order.
func (s *Store) openSessions(ctx context.Context, limit int, wanted func(*store.Session) bool, order func(a, b *store.Session) int) ([]store.Session, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	var found []*store.Session
	for _, ses := range s.sessions {
		if ses.ClosedAt.IsZero() && wanted(ses) {
			found = append(found, ses)
		}
	}
	slices.SortFunc(found, order)
	var list []store.Session
	for _, ses := range head(found, limit) {
		list = append(list, copySession(ses))
	}
	return list, nil
}

// ForgetSessions implements store.Sessions.
func (s *Store) ForgetSessions(ctx context.Context, now time.Time) (int, error) {
	if err := s.begin(ctx); err != nil {
		return 0, err
	}
	defer s.mu.Unlock()
	before := len(s.sessions)
	for id, ses := range s.sessions {
		if !ses.ClosedAt.IsZero() && !ses.ClosedAt.Add(ses.KeepClosed()).After(stored(now)) {
			delete(s.sessions, id)
			s.scrub.Due = true
		}
	}
	return before - len(s.sessions), nil
}
