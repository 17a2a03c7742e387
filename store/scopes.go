package store

import (
	"context"
	"time"

	"github.com/carrelhost/carrel"
)

// ScopeInstance is one lifetime of one scope.
type ScopeInstance struct {
	ID       carrel.ScopeID // never used again: a store that still knows it may refuse it
	Tenant   carrel.TenantID
	Scope    carrel.Scope
	Plugin   carrel.PluginName // application scopes only
	Node     string            // the process run that owns it
	OpenedAt time.Time
}

// Touch says that an invocation uses a memory key in a scope instance.
type Touch struct {
	Scope  ScopeInstance
	Key    carrel.MemoryKey
	Handle carrel.Handle // of Key; the caller derives it, always alike
	Plugin carrel.PluginName
	By     Toucher
	At     time.Time
	Cutoff Cutoff
}

// Touched is what a Touch came to. It is the caller's.
type Touched struct {
	Generation int64
	// Replaced is the end of the history that had expired and made room for
	// the one of this generation; nil if none did. Nobody else reports it.
	Replaced *carrel.Eviction
}

// Scopes keeps scope instances and which memory keys were touched in them.
type Scopes interface {
	// Touch records that Key was used in Scope, creates an empty history if
	// there is none, and returns the history's generation. A history that has
	// expired ends, with a record and a report, before the new one begins. A request scope
	// instance is opened by its first touch: whoever owns it does not touch
	// after closing it. An application or session scope instance that is not
	// open is scope_closed.
	Touch(ctx context.Context, t Touch) (Touched, error)

	// CloseScope closes a scope instance and deletes every history whose key
	// was touched in it, in one change, and reports them. The HTTP session
	// whose scope instance it is becomes closed in the same change, and keeps
	// the report. A scope that is not open has none, and nothing changes.
	// Later commits to the deleted generations fail.
	CloseScope(ctx context.Context, id carrel.ScopeID, why carrel.EvictionReason, at time.Time) ([]carrel.Eviction, error)

	// OpenApplication opens the given instance as the application scope of an
	// active plugin that has none. It does nothing if the plugin has one, or
	// is not active.
	OpenApplication(ctx context.Context, s ScopeInstance) error

	// Orphans returns up to limit scope instances that nobody will close:
	// request scopes and WebSocket sessions of another node than the given
	// one, and application scopes that are no plugin's. HTTP sessions, which
	// have no node, are never among them. Oldest first.
	Orphans(ctx context.Context, node string, limit int) ([]ScopeInstance, error)

	// ListScopes returns up to limit open scope instances of a kind, of all
	// tenants, with ids that sort after the given one.
	ListScopes(ctx context.Context, kind carrel.Scope, after carrel.ScopeID, limit int) ([]ScopeInstance, error)
}
