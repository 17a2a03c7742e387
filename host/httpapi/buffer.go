package httpapi

import (
	"fmt"
	"sync"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
)

// event is one event as it is sent: its type, and its JSON.
type event struct {
	kind string
	data []byte
}

// buffer holds the events of one invocation, so that every reader sees all of
// them, at its own pace. Event n has the sequence number n, counted from 1.
type buffer struct {
	id      string           // of the invocation
	who     carrel.Caller    // nobody else may read it
	session carrel.SessionID // that the invocation runs in, or ""
	run     *run

	mu     sync.Mutex // guards what follows
	events []event    // only ever appended to
	bytes  int64
	ended  bool
	more   chan struct{} // closed and replaced when events grow or end

	// Guarded by buffers.mu.
	readers int
	over    time.Time   // when it ended; zero while it has not
	expiry  *time.Timer // removes it; nil = it does not have to go yet
}

// since returns the events after number n, and whether the last is among
// them; if not, a channel that is closed when there are more. The caller does
// not change them.
func (b *buffer) since(n int64) (events []event, ended bool, more <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.events[min(n, int64(len(b.events))):], b.ended, b.more
}

// size returns how many bytes of events there are, and next the number of the
// event to come. Only the run appends.
func (b *buffer) size() (bytes, next int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.bytes, int64(len(b.events)) + 1
}

func (b *buffer) add(e event, last bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.events, b.ended = append(b.events, e), last
	b.bytes += int64(len(e.data))
	close(b.more)
	b.more = make(chan struct{})
}

// buffers are the invocations whose events can be read. It is safe for
// concurrent use.
type buffers struct {
	most int           // at once
	kept time.Duration // after the end, or the last reader

	mu     sync.Mutex // guards what follows, and parts of buffer
	byID   map[string]*buffer
	closed bool
}

func newBuffers(most int, kept time.Duration) *buffers {
	return &buffers{most: most, kept: kept, byID: map[string]*buffer{}}
}

// open makes a buffer with one reader. Errors: overloaded if there are too
// many that are in use.
func (s *buffers) open(id string, who carrel.Caller, session carrel.SessionID, r *run) (*buffer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.byID) >= s.most && !s.makeRoom() {
		return nil, carrel.FailLimit("httpapi.events", abi.Overloaded, "eventBuffers", fmt.Sprintf(
			"%d invocations are being streamed already; the host's operator can raise `limits.eventBuffers`", s.most))
	}
	b := &buffer{id: id, who: who, session: session, run: r, readers: 1, more: make(chan struct{})}
	if !s.closed {
		s.byID[id] = b
	}
	return b, nil
}

// makeRoom removes the buffer that has been over for longest and that nobody
// reads. It is false if there is none.
func (s *buffers) makeRoom() bool {
	var oldest *buffer
	for _, b := range s.byID {
		if b.readers == 0 && !b.over.IsZero() && (oldest == nil || b.over.Before(oldest.over)) {
			oldest = b
		}
	}
	if oldest == nil {
		return false
	}
	s.remove(oldest)
	return true
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
	if b.expiry != nil {
		b.expiry.Stop()
		b.expiry = nil
	}
	return b, nil
}

// leave ends a reader. Once the invocation is over, the last one takes the
// buffer along if it saw the end; else somebody may come back for a while.
func (s *buffers) leave(b *buffer, sawEnd bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b.readers--
	switch {
	case b.readers > 0 || b.over.IsZero():
	case sawEnd:
		s.remove(b)
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

// expire removes a buffer in a while. s.mu is held.
func (s *buffers) expire(b *buffer) {
	if s.byID[b.id] != b {
		return
	}
	var t *time.Timer
	t = time.AfterFunc(s.kept, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if b.expiry == t {
			s.remove(b)
		}
	})
	b.expiry = t
}

// remove lets nobody find a buffer any more; who reads it reads on. s.mu is
// held.
func (s *buffers) remove(b *buffer) {
	delete(s.byID, b.id)
	if b.expiry != nil {
		b.expiry.Stop()
		b.expiry = nil
	}
}

// closeSession removes the buffers of what ran in a session.
func (s *buffers) closeSession(id carrel.SessionID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.byID {
		if b.session == id {
			s.remove(b)
		}
	}
}

// close removes all buffers, and keeps none from now on.
func (s *buffers) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, b := range s.byID {
		s.remove(b)
	}
}
