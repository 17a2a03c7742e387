package httpapi

import (
	"sync"
	"time"

	"github.com/carrelhost/carrel"
)

// event is one event as it is sent: its type, and its JSON in three parts. The
// text is one JSON string without its quotes, in pieces that events share, so
// that an answer is held once although it is sent up to three times.
type event struct {
	kind       string
	head, tail []byte
	text       [][]byte
}

// eventCost is what an event takes besides its own bytes.
const eventCost = 192

// pieces returns the JSON of an event, which is never empty.
func (e event) pieces() [][]byte {
	out := make([][]byte, 0, len(e.text)+2)
	out = append(append(out, e.head), e.text...)
	if len(e.tail) > 0 {
		out = append(out, e.tail)
	}
	return out
}

// buffer holds the events of one invocation, so that every reader sees all of
// them, at its own pace. Event n has the sequence number n, counted from 1.
type buffer struct {
	id      string           // of the invocation
	who     carrel.Caller    // nobody else may read it
	session carrel.SessionID // that the invocation runs in, or ""
	run     *run

	mu     sync.Mutex // guards what follows
	events []event    // only ever appended to, until there is a cut
	next   int64      // the number of the event to come
	ended  bool
	cut    *event        // what its readers are told instead of the rest
	more   chan struct{} // closed and replaced when something changes

	// Guarded by buffers.mu.
	bytes   int64 // that count against the limits
	readers int
	over    time.Time   // when it ended; zero while it has not
	expiry  *time.Timer // hides it; nil = it does not have to go yet
	hidden  bool        // nobody finds it any more
	dropped bool        // nothing is kept of it any more
}

func newBuffer(id string, who carrel.Caller, session carrel.SessionID, r *run) *buffer {
	return &buffer{id: id, who: who, session: session, run: r, readers: 1, next: 1, more: make(chan struct{})}
}

// since returns the events after number n, and whether the last is among
// them; if not, a channel that is closed when there are more. The caller does
// not change them.
func (b *buffer) since(n int64) (events []event, ended bool, more <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cut != nil {
		return []event{*b.cut}, true, b.more
	}
	return b.events[min(n, int64(len(b.events))):], b.ended, b.more
}

// number returns the number of the event to come. Only the run appends.
func (b *buffer) number() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.next
}

func (b *buffer) add(e event, last bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.events, b.next, b.ended = append(b.events, e), b.next+1, last
	b.changed()
}

// pass counts an event that nobody will read.
func (b *buffer) pass() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.next++
}

// clear forgets the events. Readers, if there are any, are told why.
func (b *buffer) clear(why *event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.events, b.cut = nil, why
	b.changed()
}

// changed is called with b.mu held.
func (b *buffer) changed() {
	close(b.more)
	b.more = make(chan struct{})
}
