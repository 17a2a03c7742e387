package store

import (
	"context"
	"time"

	"github.com/carrelhost/carrel"
)

// Session is an HTTP session: a lifetime that a client opens and ends, and
// that outlives connections and restarts. Its scope instance has its id. A
// WebSocket's own session is a scope instance alone, of the node that holds
// the socket.
type Session struct {
	ID         carrel.SessionID
	Tenant     carrel.TenantID
	Owner      Toucher // who opened it, and nobody else may use it
	IdleTTL    time.Duration
	MaxTTL     time.Duration
	Metadata   []byte // JSON, may be nil
	CreatedAt  time.Time
	LastUsedAt time.Time // end of the last invocation in it, or its creation

	// ClosedAt is zero while the session is open. A closed one is kept for a
	// while, so that whoever closed it can be told again what ended.
	ClosedAt time.Time
	Reason   carrel.EvictionReason // why it closed
	Evicted  []carrel.Eviction     // what ended with it
}

// KeepClosed is how long a closed session is kept: an hour, or its idle TTL if
// that is longer.
func (s Session) KeepClosed() time.Duration { return max(time.Hour, s.IdleTTL) }

// Sessions keeps HTTP sessions.
type Sessions interface {
	// CreateSession adds a session and opens its scope instance, which has the
	// session's id and tenant, the kind session and no node. Whatever s says,
	// the new session is open and was last used at its creation. most bounds
	// the open sessions of one tenant: past it, quota_exceeded with Limit
	// "sessions". A tenant that does not exist is not_found; an id that a
	// session, even a closed one, or a scope instance has is ErrExists.
	CreateSession(ctx context.Context, s Session, most int) error

	// OpenSession opens the scope instance of a WebSocket's own session: kind
	// session, of no plugin, with a node, which must not be empty. An id that
	// is in use, as CreateSession has it, is ErrExists.
	OpenSession(ctx context.Context, s ScopeInstance) error

	// Session returns a session of a tenant, or not_found. With by not nil one
	// of another owner is not_found too. Whether it is closed, or its TTL has
	// passed, is the caller's to judge.
	Session(ctx context.Context, t carrel.TenantID, id carrel.SessionID, by *Toucher) (Session, error)

	// UseSession moves LastUsedAt forward, never back. A session that is not
	// there is not_found, a closed one session_closed.
	UseSession(ctx context.Context, t carrel.TenantID, id carrel.SessionID, at time.Time) error

	// ListSessions returns up to limit open sessions of a tenant with ids that
	// sort after the given one; with by not nil only of that owner.
	ListSessions(ctx context.Context, t carrel.TenantID, by *Toucher, after carrel.SessionID, limit int) ([]Session, error)

	// ExpiredSessions returns up to limit open sessions, of all tenants, whose
	// idle or max TTL has passed at the given time, the longest expired first.
	// A TTL has passed at its last instant: LastUsedAt plus IdleTTL, CreatedAt
	// plus MaxTTL.
	// The time may be to come, up to the year 9999: then these are the ones
	// that will have expired.
	ExpiredSessions(ctx context.Context, now time.Time, limit int) ([]Session, error)

	// ForgetSessions removes the closed sessions that have been kept for
	// KeepClosed, that instant included, and returns how many. Their ids are
	// free again.
	ForgetSessions(ctx context.Context, now time.Time) (int, error)
}
