package memstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/store"
)

type scope struct {
	store.ScopeInstance
	owner   *plugin // whose application scope it is; nil for an orphan and for other scopes
	touched map[carrel.Handle]struct{}
}

func newScope(si store.ScopeInstance) *scope {
	si.OpenedAt = stored(si.OpenedAt)
	return &scope{ScopeInstance: si, touched: make(map[carrel.Handle]struct{})}
}

// openApplication opens si as the application scope of p, which has none.
func (s *Store) openApplication(op string, p *plugin, si store.ScopeInstance) error {
	if s.scopes[si.ID] != nil {
		return fmt.Errorf("%s: scope instance %s: %w", op, si.ID, store.ErrExists)
	}
	si.Tenant, si.Scope, si.Plugin = p.Tenant, carrel.ScopeApplication, p.Name
	sc := newScope(si)
	sc.owner = p
	s.scopes[si.ID] = sc
	p.Scope = si.ID
	return nil
}

// disown takes the plugin's application scope from it.
func (s *Store) disown(p *plugin) {
	if sc := s.scopes[p.Scope]; sc != nil {
		sc.owner = nil
	}
	p.Scope = ""
}

// Touch implements store.Scopes.
func (s *Store) Touch(ctx context.Context, t store.Touch) (store.Touched, error) {
	if err := s.begin(ctx); err != nil {
		return store.Touched{}, err
	}
	defer s.mu.Unlock()
	h, replaced, err := s.touch("memstore.Touch", t)
	if err != nil {
		return store.Touched{}, err
	}
	return store.Touched{Generation: h.Generation, Replaced: replaced}, nil
}

// touch changes nothing if it fails.
func (s *Store) touch(op string, t store.Touch) (h *history, replaced *carrel.Eviction, err error) {
	if t.Scope.Tenant != t.Key.Tenant {
		return nil, nil, fmt.Errorf("%s: a scope of tenant %s cannot touch a key of tenant %s", op, t.Scope.Tenant, t.Key.Tenant)
	}
	h = s.histories[t.Key]
	named := s.handles[handleKey{t.Key.Tenant, t.Handle}]
	if h != named {
		return nil, nil, fmt.Errorf("%s: handle %s is not this memory key's", op, t.Handle)
	}
	sc := s.scopes[t.Scope.ID]
	switch {
	case sc == nil && t.Scope.Scope == carrel.ScopeRequest:
		si := t.Scope
		si.Plugin = ""
		sc = newScope(si)
		s.scopes[si.ID] = sc
	case sc == nil, sc.Tenant != t.Scope.Tenant, sc.Scope != t.Scope.Scope:
		return nil, nil, carrel.Fail(op, abi.ScopeClosed, "the scope that this work belongs to has closed")
	}
	if h != nil && h.expired(t.Cutoff) {
		e := s.evict(h, nil, carrel.ReasonExpired, t.At)
		h, replaced = nil, &e
	}
	if h == nil {
		h = s.newHistory(t)
	}
	sc.touched[t.Handle] = struct{}{}
	if sc.Scope == carrel.ScopeApplication {
		h.Application = true
		h.applications[sc] = struct{}{}
	}
	h.touchers[t.By] = struct{}{}
	h.Plugin = t.Plugin
	h.usedAt(t.At)
	return h, replaced, nil
}

// touchedIn returns the histories whose keys were touched in a scope instance,
// in no order.
func (s *Store) touchedIn(sc *scope) []*history {
	var touched []*history
	for handle := range sc.touched {
		if h := s.handles[handleKey{sc.Tenant, handle}]; h != nil {
			touched = append(touched, h)
		}
	}
	return touched
}

// CloseScope implements store.Scopes.
func (s *Store) CloseScope(ctx context.Context, id carrel.ScopeID, why carrel.EvictionReason, at time.Time) ([]carrel.Eviction, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	sc := s.scopes[id]
	if sc == nil {
		return nil, nil
	}
	delete(s.scopes, id)
	if sc.owner != nil {
		sc.owner.Scope = ""
	}
	touched := s.touchedIn(sc)
	slices.SortFunc(touched, byGeneration)
	var evictions []carrel.Eviction
	for _, h := range touched {
		evictions = append(evictions, s.evict(h, sc, why, at))
	}
	if ses := s.sessions[carrel.SessionID(id)]; ses != nil && ses.ClosedAt.IsZero() {
		s.closeSession(ses, why, at, evictions)
	}
	return evictions, nil
}

// OpenApplication implements store.Scopes.
func (s *Store) OpenApplication(ctx context.Context, si store.ScopeInstance) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	p := s.plugin(si.Tenant, si.Plugin)
	if p == nil || p.Active == (carrel.Digest{}) || p.Scope != "" {
		return nil
	}
	return s.openApplication("memstore.OpenApplication", p, si)
}

// orphaned reports whether nobody will close a scope, as seen by a node.
func (sc *scope) orphaned(node string) bool {
	switch sc.Scope {
	case carrel.ScopeApplication:
		return sc.owner == nil
	case carrel.ScopeSession:
		return sc.Node != "" && sc.Node != node
	default:
		return sc.Node != node
	}
}

// Orphans implements store.Scopes.
func (s *Store) Orphans(ctx context.Context, node string, limit int) ([]store.ScopeInstance, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	var list []store.ScopeInstance
	for _, sc := range s.scopes {
		if sc.orphaned(node) {
			list = append(list, sc.ScopeInstance)
		}
	}
	slices.SortFunc(list, func(a, b store.ScopeInstance) int {
		return cmp.Or(a.OpenedAt.Compare(b.OpenedAt), cmp.Compare(a.ID, b.ID))
	})
	return head(list, limit), nil
}

// ListScopes implements store.Scopes.
func (s *Store) ListScopes(ctx context.Context, kind carrel.Scope, after carrel.ScopeID, limit int) ([]store.ScopeInstance, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	var list []store.ScopeInstance
	for id, sc := range s.scopes {
		if sc.Scope == kind && id > after {
			list = append(list, sc.ScopeInstance)
		}
	}
	slices.SortFunc(list, func(a, b store.ScopeInstance) int { return cmp.Compare(a.ID, b.ID) })
	return head(list, limit), nil
}
