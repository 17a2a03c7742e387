package client

// The types of events. An invocation's events are, in this order: created;
// deltas; text done; evicted, if histories ended; and one of completed,
// incomplete, or error and failed.
const (
	EventCreated    = "response.created"
	EventTextDelta  = "response.output_text.delta"
	EventTextDone   = "response.output_text.done"
	EventEvicted    = "carrel.memory.evicted"
	EventCompleted  = "response.completed"
	EventIncomplete = "response.incomplete"
	EventFailed     = "response.failed"
	EventError      = "error"
)

// Types of frames that only WebSockets have.
const (
	FrameSessionCreated = "session.created"
	FramePong           = "pong"
	FrameInvoke         = "invoke"
	FrameCancel         = "cancel"
	FramePing           = "ping"
)

// The values of Response.Status.
const (
	StatusInProgress = "in_progress"
	StatusCompleted  = "completed"
	StatusIncomplete = "incomplete" // stored; the model was cut short (finishReason)
	StatusFailed     = "failed"     // nothing of it is stored
)

// Event is one event of an invocation, on every transport alike. Which of the
// last five members it has follows from its type.
type Event struct {
	Type     string    `json:"type"`
	Frame    string    `json:"id,omitempty"`    // on a WebSocket: the id that the client gave its frame
	Sequence int64     `json:"sequence_number"` // rises by one from 1; an error before response.created has 0
	Delta    string    `json:"delta,omitempty"` // a piece of the text, never empty
	Text     *string   `json:"text,omitempty"`  // the whole text
	Evicted  []Evicted `json:"evicted,omitempty"`
	Response *Response `json:"response,omitempty"`
	Error    *Problem  `json:"error,omitempty"`
}

// Last reports whether no event of the invocation follows.
func (e Event) Last() bool {
	switch e.Type {
	case EventCompleted, EventIncomplete, EventFailed:
		return true
	default:
		return e.Type == EventError && e.Sequence == 0
	}
}

// Response is an invocation as its events show it: the answer of the method,
// as far as it is known, and how far that is.
type Response struct {
	Status string `json:"status"`
	Invocation
}

// Canceled says what became of an invocation that was to be cancelled.
type Canceled struct {
	ID     string `json:"id"`
	Status string `json:"status"` // as in Response; completed if the turn was stored before
}

// Frame is what a client sends on a WebSocket.
type Frame struct {
	Type         string `json:"type"`
	ID           string `json:"id,omitempty"` // of an invoke frame; what a cancel frame names
	Method       string `json:"method,omitempty"`
	Args         any    `json:"args,omitempty"`
	OnConflict   string `json:"onConflict,omitempty"`   // wait or reject
	OnDisconnect string `json:"onDisconnect,omitempty"` // cancel or continue; the latter only where a session is attached
	Timeout      string `json:"timeout,omitempty"`
}
