package store

import (
	"context"
	"time"

	"github.com/carrelhost/carrel"
)

// History describes one chat history. A touched key has a history, if only an
// empty one.
type History struct {
	Key        carrel.MemoryKey
	Handle     carrel.Handle
	Plugin     carrel.PluginName // whose invocation touched it last
	Generation int64             // unique among all histories there ever were, rising
	Turns      int64
	Messages   int64 // the system message counts
	Bytes      int64 // of all messages, as carrel.Message.Size counts
	CreatedAt  time.Time
	LastUsedAt time.Time // last touch or commit
}

// View is what one read of a history yields: enough to decide what the model
// is sent.
type View struct {
	Generation int64         // 0: there is no history
	System     string        // "" if it has no system message
	Recent     []carrel.Turn // the newest messages, grouped; the first turn may lack its beginning
}

// Commit is one whole turn to be appended.
type Commit struct {
	Touch Touch
	// Generation is what the turn was built upon: View.Generation or what
	// Touch returned. 0 says that there was no history; then Commit touches.
	Generation int64
	// System, if not nil, replaces the history's system message.
	System *string
	// Messages is the turn: the user's message first, the final answer last.
	Messages []carrel.Message
	At       time.Time
}

// StoredMessage is a message with its place in its history.
type StoredMessage struct {
	carrel.Message
	Seq  int64 // from 1, rising by one; 0 is the system message
	Turn int64 // from 1; 0 is the system message
	At   time.Time
}

// Toucher is who touched a history: an API key on behalf of a subject.
type Toucher struct {
	Key     carrel.KeyID
	Subject carrel.Subject
}

// HistoryFilter picks histories of one tenant.
type HistoryFilter struct {
	Tenant    carrel.TenantID
	Plugin    carrel.PluginName // "" = of every plugin
	Prefix    string            // of the memory id, byte for byte; "" = all
	TouchedBy *Toucher          // nil = by anybody
	After     int64             // only generations above this
	Limit     int
}

// Histories keeps chat histories: append-only messages in turns, and at most
// one system message, under a memory key.
type Histories interface {
	// View reads the newest messages under k, at most limit, oldest first and
	// the system message apart, as of one instant. What is older is not read,
	// however long the history is.
	View(ctx context.Context, k carrel.MemoryKey, limit int) (View, error)

	// Commit appends a turn. If the history's generation is not the one the
	// turn was built upon, it changes nothing and returns scope_closed.
	Commit(ctx context.Context, c Commit) error

	// History returns one history by its handle, or not_found. With by not nil
	// one that (key, subject) never touched is not_found too.
	History(ctx context.Context, t carrel.TenantID, h carrel.Handle, by *Toucher) (History, error)

	// ListHistories returns the histories that f picks, by rising generation.
	ListHistories(ctx context.Context, f HistoryFilter) ([]History, error)

	// Messages returns up to limit messages of the given generation of k with
	// Seq above after, by Seq; after -1 begins with the system message.
	// Another generation, or none, is not_found.
	Messages(ctx context.Context, k carrel.MemoryKey, generation, after int64, limit int) ([]StoredMessage, error)

	// DeleteHistory ends the history under k at once, whatever runs on it, and
	// reports it. Later commits to its generation fail. It returns not_found
	// if there is none.
	DeleteHistory(ctx context.Context, k carrel.MemoryKey, why carrel.EvictionReason, at time.Time) (carrel.Eviction, error)
}
