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
	LastTurn   int64             // number of the newest turn there ever was; 0 = none was
	Messages   int64             // the system message counts
	Bytes      int64             // of all messages, as carrel.Message.Size counts
	CreatedAt  time.Time
	LastUsedAt time.Time // last touch or commit
	// Application says that an application scope has touched it: then it
	// expires when it is not used for long, see Cutoff.
	Application bool
}

// Cutoff judges which histories have expired: those that an application scope
// has touched and that were last used at or before this time. Such a history
// is not there any more, for whatever method is given the cutoff, whether or
// not ExpireHistories has deleted it. The zero Cutoff expires none.
type Cutoff = time.Time

// ViewLimit bounds what View reads.
type ViewLimit struct {
	Messages int   // 0 = none
	Bytes    int64 // of the messages, as carrel.Message.Size counts; 0 = no bound
	Cutoff   Cutoff
}

// MessageLimit bounds what Messages reads.
type MessageLimit struct {
	Messages int   // 0 = none
	Bytes    int64 // of the messages, as carrel.Message.Size counts; 0 = no bound
	Cutoff   Cutoff
}

// MessagePage is a part of a history.
type MessagePage struct {
	Messages []StoredMessage // by Seq
	More     bool            // there are messages after these
}

// View is what one read of a history yields: enough to decide what the model
// is sent.
type View struct {
	Generation int64         // 0: there is no history
	System     string        // "" if it has no system message
	Recent     []carrel.Turn // the newest messages, grouped; the first turn may lack its beginning
	LastTurn   int64         // as in History
	Stored     int64         // messages in the history, without the system message
	TokenRate  int           // tokens per 1,000 bytes in the last model call on it; 0 = not known
}

// NewTurn is a whole turn to be appended: the user's message first, the final
// answer last.
type NewTurn struct {
	Messages []carrel.Message
	Origin   carrel.Origin
	At       time.Time // zero = the commit's
}

// Commit is a change of one history, whole or not at all. The steps are done
// in the order of the fields.
type Commit struct {
	Touch Touch
	// Generation is what the change was built upon: View.Generation or what
	// Touch returned. 0 says that there was no history; then Commit touches.
	Generation int64
	// System, if not nil, replaces the history's system message.
	System *string
	// Seeds are appended if the history has no turns as of the commit.
	Seeds []NewTurn
	// Turns are appended.
	Turns []NewTurn
	// DropTo deletes the turns up to and with this number, but none that this
	// commit appends; 0 = none.
	DropTo int64
	// Most bounds the messages that the history keeps, the system message
	// among them: whole turns are deleted, the oldest first, until it fits or
	// only the newest is left. 0 = no bound.
	Most int64
	// TokenRate, if not 0, replaces View.TokenRate.
	TokenRate int
	// Answer, if not nil, answers an idempotency claim in the same change. A
	// claim that is not there any more gets no answer.
	Answer *Answer
	At     time.Time
}

// Committed is what a Commit came to.
type Committed struct {
	Generation int64
	LastTurn   int64 // the number of the last turn
	Trimmed    int64 // messages that were deleted for the sake of Most
	// Replaced is as in Touched: of a commit that touches.
	Replaced *carrel.Eviction
}

// StoredMessage is a message with its place in its history.
type StoredMessage struct {
	carrel.Message
	Seq  int64 // from 1, rising, never used again; 0 is the system message
	Turn int64 // from 1, numbers are not used again; 0 is the system message
	At   time.Time
	// Origin is that of its turn.
	Origin carrel.Origin
}

// Toucher is who touched a history: an API key on behalf of a subject.
type Toucher struct {
	Key     carrel.KeyID
	Subject carrel.Subject
}

// HistoryFilter picks histories of one tenant.
type HistoryFilter struct {
	Tenant     carrel.TenantID
	Plugin     carrel.PluginName  // that touched it last; "" = any
	Namespaces []carrel.Namespace // empty = all
	Prefix     string             // of the memory id, byte for byte; "" = all
	TouchedBy  *Toucher           // nil = by anybody
	Cutoff     Cutoff
	After      int64 // only generations above this
	Limit      int
}

// Deletion is how a history ends by hand.
type Deletion struct {
	Reason carrel.EvictionReason
	At     time.Time
	Cutoff Cutoff
}

// Histories keeps chat histories: append-only messages in turns, and at most
// one system message, under a memory key. Every history that ends, by whatever
// method, leaves an EvictionRecord in the same change.
type Histories interface {
	// View reads the newest messages under k, within limit, oldest first and
	// the system message apart, as of one instant. What is older is not read,
	// however long the history is: reading ends before the message with which
	// they would exceed limit, and none is read whose content alone does.
	View(ctx context.Context, k carrel.MemoryKey, limit ViewLimit) (View, error)

	// Commit changes a history. If its generation is not the one that the
	// change was built upon, it changes nothing and returns scope_closed. The
	// cutoff is that of Touch.
	Commit(ctx context.Context, c Commit) (Committed, error)

	// History returns one history by its handle, or not_found. With by not nil
	// one that (key, subject) never touched is not_found too.
	History(ctx context.Context, t carrel.TenantID, h carrel.Handle, by *Toucher, c Cutoff) (History, error)

	// ListHistories returns the histories that f picks, by rising generation.
	ListHistories(ctx context.Context, f HistoryFilter) ([]History, error)

	// Messages returns messages of the given generation of k with Seq above
	// after, within limit; after -1 begins with the system message. The first
	// is returned however many bytes it has; no other is read whose content
	// alone exceeds limit.Bytes. Another generation, or none, is not_found.
	Messages(ctx context.Context, k carrel.MemoryKey, generation, after int64, limit MessageLimit) (MessagePage, error)

	// DeleteTurn deletes one turn of the given generation of k, whatever runs
	// on it; not_found if the generation or the turn is not there. The history
	// stays, even if nothing is left in it.
	DeleteTurn(ctx context.Context, k carrel.MemoryKey, generation, turn int64) error

	// DeleteHistory ends the history under k at once, whatever runs on it, and
	// reports it. Later commits to its generation fail. It returns not_found
	// if there is none.
	DeleteHistory(ctx context.Context, k carrel.MemoryKey, d Deletion) (carrel.Eviction, error)

	// ExpireHistories ends up to limit histories, of all tenants, that have
	// expired by the cutoff, the longest unused first, and reports them with
	// the reason expired. Fewer than limit are the last. What it deletes within
	// the change is bounded, whatever they hold: the records of long histories
	// may follow by some seconds.
	ExpireHistories(ctx context.Context, c Cutoff, at time.Time, limit int) ([]carrel.Eviction, error)
}
