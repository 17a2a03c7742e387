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

// Erasure is what one change of EraseSubject did. It is the caller's.
type Erasure struct {
	Evicted []carrel.Eviction // by rising generation
	// More says that something may be left, so that it is to be called again.
	More bool
}

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
	// touched in its open HTTP sessions; then it closes those sessions and
	// removes them and its closed ones, and its idempotent answers. One call is
	// one change, of up to limit (at least 1) of each: what was erased stays
	// erased, and whoever wants all of it calls until no more is left. Neither
	// the reports nor the records name a scope. A subject that nobody heard of
	// has none, and the empty one is nobody.
	EraseSubject(ctx context.Context, t carrel.TenantID, s carrel.Subject, at time.Time, limit int) (Erasure, error)
}
