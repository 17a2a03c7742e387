package scope

import "github.com/carrelhost/carrel"

// Watcher is told of histories as they are used and as they end, so that
// whoever keeps copies of what they say can drop those. Its methods are called
// from many goroutines, return soon, and call no method of the registry.
type Watcher interface {
	// Touching says, before it is done, that a request uses or reads a history.
	Touching(r carrel.RequestID, h carrel.Handle)
	// Evicted says that histories ended, with the scope of that id, or by hand
	// if it is "".
	Evicted(s carrel.ScopeID, evicted []carrel.Eviction)
}

// Watch adds a watcher for as long as the registry lives. What Recover and
// Shutdown evict, while nothing is served, it is not told.
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

func (r *Registry) tellEvicted(s carrel.ScopeID, evicted []carrel.Eviction) {
	if len(evicted) == 0 {
		return
	}
	for _, w := range r.watching() {
		w.Evicted(s, evicted)
	}
}

func (r *Registry) tellTouching(id carrel.RequestID, h carrel.Handle) {
	for _, w := range r.watching() {
		w.Touching(id, h)
	}
}
