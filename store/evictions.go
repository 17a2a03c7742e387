package store

import (
	"context"
	"time"

	"github.com/carrelhost/carrel"
)

// EvictionRecord is what remains of a history that ended: that it was, and
// nothing of what it said.
type EvictionRecord struct {
	N        int64 // rising within a tenant, never used again
	Handle   carrel.Handle
	Plugin   carrel.PluginName
	MemoryID carrel.MemoryID // "" if Reason is erased
	Scope    carrel.Scope    // of the scope instance that closed; "" if none did
	Instance carrel.ScopeID  // likewise
	Reason   carrel.EvictionReason
	Messages int64 // the system message counts
	Bytes    int64
	At       time.Time
}

// EvictionFilter picks eviction records of one tenant.
type EvictionFilter struct {
	Tenant carrel.TenantID
	Since  time.Time // of evictions at or after it; zero = all
	After  int64     // only numbers above this
	Limit  int
}

// DefaultEvictionRecords is how many records of a tenant a store keeps unless
// it is configured otherwise. Where one more comes the oldest goes.
const DefaultEvictionRecords = 10_000

// Evictions keeps records of histories that ended.
type Evictions interface {
	// ListEvictions returns the records that f picks, by rising number. Those
	// of a scope that closed with very many histories may follow its close by
	// some seconds.
	ListEvictions(ctx context.Context, f EvictionFilter) ([]EvictionRecord, error)

	// ForgetEvictions removes up to limit records of evictions before the
	// given time, of all tenants, and returns how many.
	ForgetEvictions(ctx context.Context, before time.Time, limit int) (int, error)

	// EraseSubject ends, with the reason erased, every history that a subject
	// of the tenant ever touched, under whichever key, and every one that was
	// touched in its open HTTP sessions; it closes those sessions and removes
	// them and its closed ones, and its idempotent answers. All of it is one
	// change. It reports the histories by rising generation, and neither the
	// reports nor the records name a scope. A subject that nobody heard of has
	// none, and the empty one is nobody.
	EraseSubject(ctx context.Context, t carrel.TenantID, s carrel.Subject, at time.Time) ([]carrel.Eviction, error)
}
