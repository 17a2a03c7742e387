package httpapi

import (
	"maps"
	"slices"

	"github.com/carrelhost/carrel"
)

// track is what a streamed request has to do with histories: when one of them
// ends, so do the events that may tell of it. Guarded by buffers.mu.
type track struct {
	request carrel.RequestID
	touched map[carrel.Handle]struct{}
	buf     *buffer // nil until there is one
	gone    bool    // a history ended; nobody may find the events
}

// follow begins to note what a request touches.
func (s *buffers) follow(id carrel.RequestID) *track {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := &track{request: id, touched: map[carrel.Handle]struct{}{}}
	s.tracks[id] = t
	return t
}

// unfollow says that a request touches nothing any more. What it touched is
// remembered for as long as its events are.
func (s *buffers) unfollow(t *track) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.tracks, t.request)
	if t.buf == nil || t.buf.dropped {
		s.untrack(t)
	}
}

// untrack forgets what a request touched. s.mu is held.
func (s *buffers) untrack(t *track) {
	for h := range t.touched {
		delete(s.touching[h], t)
		if len(s.touching[h]) == 0 {
			delete(s.touching, h)
		}
	}
	clear(t.touched)
}

// Touching implements scope.Watcher.
func (s *buffers) Touching(id carrel.RequestID, h carrel.Handle) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, ok := s.tracks[id]
	if !ok {
		return
	}
	t.touched[h] = struct{}{}
	if s.touching[h] == nil {
		s.touching[h] = map[*track]struct{}{}
	}
	s.touching[h][t] = struct{}{}
}

// touchedBy returns what the request of a buffer touched or read, so far.
func (s *buffers) touchedBy(b *buffer) []carrel.Handle {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(b.run.track.touched))
}

// Evicted implements scope.Watcher. The events of the request whose own scope
// closed stay for a while: by them its client learns the answer.
func (s *buffers) Evicted(scope carrel.ScopeID, evicted []carrel.Eviction) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range evicted {
		for t := range s.touching[e.Handle] {
			if carrel.ScopeID(t.request) == scope {
				continue
			}
			s.forget(t)
		}
	}
}

// Cut implements scope.Watcher.
func (s *buffers) Cut(h carrel.Handle) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for t := range s.touching[h] {
		s.forget(t)
	}
}

// Lost implements scope.Watcher: no events are found any more but of those
// that go on.
func (s *buffers) Lost() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, all := range s.touching {
		for t := range all {
			s.forget(t)
		}
	}
	for _, b := range s.byID {
		s.hide(b)
	}
}

// Erased implements scope.Watcher. The events of a request whose scope had
// closed before go, too.
func (s *buffers) Erased(t carrel.TenantID, who carrel.Subject) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.byID {
		if b.who.Tenant == t && b.who.Subject == who {
			s.hide(b)
		}
	}
}

// forget lets nobody find the events of a request any more. s.mu is held.
func (s *buffers) forget(t *track) {
	t.gone = true
	if t.buf != nil && !t.buf.hidden {
		s.hide(t.buf)
	}
}
