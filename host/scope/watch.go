package scope

import (
	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/store"
)

// Watcher is told of histories as they are used and as they end, so that
// whoever keeps copies of what they say can drop those. Its methods are called
// from many goroutines, return soon, and call no method of the registry.
type Watcher interface {
	// Touching says, before it is done, that a request uses or reads a history.
	Touching(r carrel.RequestID, h carrel.Handle)
	// Evicted says that histories ended: with the scope of that id; or, for
	// they had expired, as the request of that scope used their keys; or with
	// no scope, if it is "".
	Evicted(s carrel.ScopeID, evicted []carrel.Eviction)
	// Cut says that a turn of a history was deleted, or may have been; the
	// history goes on.
	Cut(h carrel.Handle)
	// Lost says that histories may have ended and nobody knows which: a store
	// failed while a scope closed.
	Lost()
	// Erased says that whatever a subject left behind is to be gone.
	Erased(t carrel.TenantID, s carrel.Subject)
}

// Watch adds a watcher for as long as the registry lives.
func (r *Registry) Watch(w Watcher) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watchers = append(r.watchers[:len(r.watchers):len(r.watchers)], w)
}

func (r *Registry) watching() []Watcher {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.watchers
}

// tellEvicted counts histories that ended and tells who watches.
func (r *Registry) tellEvicted(s carrel.ScopeID, evicted []carrel.Eviction) {
	if len(evicted) == 0 {
		return
	}
	r.counts.ended(evicted)
	for _, w := range r.watching() {
		w.Evicted(s, evicted)
	}
}

// tellReplaced tells of the end of a history that had expired and made room
// for what a request touched, or with request "" somebody else. That goes on,
// with the new one. When nobody knows whether the touch took place it may have
// ended one, which is not counted.
func (r *Registry) tellReplaced(request carrel.ScopeID, t store.Touch, replaced *carrel.Eviction, err error) {
	var evicted []carrel.Eviction
	switch {
	case replaced != nil:
		evicted = []carrel.Eviction{*replaced}
		r.counts.ended(evicted)
	case inDoubt(err) && !t.Cutoff.IsZero():
		evicted = []carrel.Eviction{{Handle: t.Handle, Plugin: t.Plugin, Key: t.Key, Reason: carrel.ReasonExpired, At: t.At}}
	default:
		return
	}
	for _, w := range r.watching() {
		w.Evicted(request, evicted)
	}
}

func (r *Registry) tellTouching(id carrel.RequestID, h carrel.Handle) {
	for _, w := range r.watching() {
		w.Touching(id, h)
	}
}

func (r *Registry) tellCut(h carrel.Handle) {
	for _, w := range r.watching() {
		w.Cut(h)
	}
}

func (r *Registry) tellLost() {
	for _, w := range r.watching() {
		w.Lost()
	}
}

func (r *Registry) tellErased(t carrel.TenantID, s carrel.Subject) {
	for _, w := range r.watching() {
		w.Erased(t, s)
	}
}
