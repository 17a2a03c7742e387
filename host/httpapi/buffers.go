package httpapi

import (
	"fmt"
	"sync"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
)

// buffers are the invocations whose events can be read. It is safe for
// concurrent use.
type buffers struct {
	most amount        // of all buffers together
	each int64         // bytes of one
	kept time.Duration // after the end, or the last reader

	mu       sync.Mutex // guards what follows, and parts of buffer
	byID     map[string]*buffer
	held     map[*buffer]struct{} // what counts, hidden ones with readers among it
	all      amount
	tenants  map[carrel.TenantID]amount // of those that hold something
	closed   bool
	tracks   map[carrel.RequestID]*track // of runs that go on
	touching map[carrel.Handle]map[*track]struct{}
}

func newBuffers(most amount, each int64, kept time.Duration) *buffers {
	return &buffers{
		most: most, each: each, kept: kept, byID: map[string]*buffer{},
		held: map[*buffer]struct{}{}, tenants: map[carrel.TenantID]amount{},
		tracks: map[carrel.RequestID]*track{}, touching: map[carrel.Handle]map[*track]struct{}{},
	}
}

// open makes a buffer with one reader. Errors: quota_exceeded if the tenant
// has its share of buffers, all of them in use.
func (s *buffers) open(id string, who carrel.Caller, session carrel.SessionID, r *run) (*buffer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.room(who.Tenant, amount{count: 1}); err != nil {
		return nil, err
	}
	b := newBuffer(id, who, session, r)
	s.held[b] = struct{}{}
	s.count(who.Tenant, amount{count: 1})
	r.track.buf = b
	if s.closed || r.track.gone || r.replays { // the id is that of the first call's buffer
		b.hidden = true
	} else {
		s.byID[id] = b
	}
	return b, nil
}

// add appends an event. Errors, which leave the buffer as it was:
// limit_exceeded if there is no room for it and spare more bytes within
// limits.eventBytes, quota_exceeded if the tenant has its share of all bytes.
// The one that must is added in any case.
func (s *buffers) add(b *buffer, e event, own, spare int64, must, last bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b.dropped {
		b.pass()
		return nil
	}
	own += eventCost
	if !must {
		if b.bytes+own+spare > s.each {
			return carrel.FailLimit("httpapi.events", abi.LimitExceeded, "eventBytes", fmt.Sprintf(
				"the events of one invocation may take %d bytes, and the answer is longer; the host's operator can raise `limits.eventBytes`", s.each))
		}
		if err := s.room(b.who.Tenant, amount{bytes: own}); err != nil {
			return err
		}
	}
	b.bytes += own
	s.count(b.who.Tenant, amount{bytes: own})
	b.add(e, last)
	return nil
}

// join adds a reader to a buffer of the caller's, who calls leave once. What
// is another's is not_found.
func (s *buffers) join(who carrel.Caller, id string) (*buffer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, ok := s.byID[id]
	if !ok || b.who.Tenant != who.Tenant || b.who.Key != who.Key || b.who.Subject != who.Subject {
		return nil, carrel.FailNotFound("httpapi.events")
	}
	b.readers++
	b.keep()
	return b, nil
}

// leave ends a reader. Once the invocation is over, the last one takes the
// buffer along if it saw the end; else somebody may come back for a while.
func (s *buffers) leave(b *buffer, sawEnd bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b.readers--
	switch {
	case b.readers > 0:
	case b.hidden:
		s.drop(b, nil)
	case b.over.IsZero():
	case sawEnd:
		s.hide(b)
	default:
		s.expire(b)
	}
}

// end says that a buffer has its last event.
func (s *buffers) end(b *buffer, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b.over = at
	if b.readers == 0 {
		s.expire(b)
	}
}

// expire hides a buffer in a while. s.mu is held.
func (s *buffers) expire(b *buffer) {
	if b.hidden {
		return
	}
	var t *time.Timer
	t = time.AfterFunc(s.kept, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if b.expiry == t {
			s.hide(b)
		}
	})
	b.expiry = t
}

// keep takes back what expire said. buffers.mu is held.
func (b *buffer) keep() {
	if b.expiry != nil {
		b.expiry.Stop()
		b.expiry = nil
	}
}

// hide lets nobody find a buffer any more; who reads it reads on. s.mu is
// held.
func (s *buffers) hide(b *buffer) {
	b.hidden = true
	b.keep()
	delete(s.byID, b.id)
	if b.readers == 0 {
		s.drop(b, nil)
	}
}

// drop gives back what a hidden buffer takes. Those who still read it are
// told why. s.mu is held.
func (s *buffers) drop(b *buffer, why *event) {
	if b.dropped {
		return
	}
	b.dropped = true
	b.clear(why)
	delete(s.held, b)
	s.count(b.who.Tenant, amount{count: -1, bytes: -b.bytes})
	b.bytes = 0
	if !b.over.IsZero() {
		s.untrack(b.run.track)
	}
}

// closeSession hides the buffers of what ran in a session.
func (s *buffers) closeSession(id carrel.SessionID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.byID {
		if b.session == id {
			s.hide(b)
		}
	}
}

// close hides all buffers, and keeps none from now on.
func (s *buffers) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, b := range s.byID {
		s.hide(b)
	}
}
