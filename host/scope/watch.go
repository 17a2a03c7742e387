package scope

import "github.com/carrelhost/carrel"

// Watcher is told of histories as they are used and as they end, so that
// whoever keeps copies of what they say can drop those. Its methods are called
// from many goroutines, return soon, and call no method of the registry.
type Watcher interface {
	// Touching says, before it is done, that a request uses or reads a history.
	Touching(r carrel.RequestID, h carrel.Handle)
	// Evicted says that histories ended, with the scope of that id, or without
	// one if it is "".
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
