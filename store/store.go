// Package store declares how a host persists what it must not lose. Its
// implementations are memstore (in process), sqlite (embedded, the default)
// and later postgres; storetest is this contract in executable form, and all
// of them pass it.
//
// Rules for every implementation:
//
//   - All methods are safe for concurrent use.
//   - Arguments are copied before a method returns; results are the caller's
//     to change.
//   - Keys are tuples and are compared whole. What belongs to another tenant
//     is indistinguishable from what does not exist.
//   - A method that writes either does all of what it says or nothing, and it
//     returns nil only when the change is durable.
//   - A cancelled context ends a method with an error that wraps the
//     context's; whether the write happened is then unknown to the caller.
//   - Failures with a meaning are *carrel.Error values: not_found,
//     scope_closed, idempotency_mismatch, storage_full, overloaded (the write queue is full), or
//     quota_exceeded where a method says so. ErrExists and ErrActive are
//     matched with errors.Is. Anything else is unclassified, and so internal.
//   - Times are stored in UTC with microseconds, and durations in whole ones.
package store

import (
	"context"
	"errors"
)

// ErrExists says that what was to be created is already there.
var ErrExists = errors.New("store: already exists")

// ErrActive says that a version cannot be deleted because it is active.
var ErrActive = errors.New("store: the version is active")

// Store is everything a host keeps, by topic.
type Store interface {
	Tenants
	Plugins
	Histories
	Scopes
	Sessions
	Grants
	Evictions
	Idempotency
	Upkeep

	// HostSecret returns 32 random bytes that are made once for this store and
	// never change. Handles are derived from them.
	HostSecret(ctx context.Context) ([32]byte, error)

	// Check does the smallest write that proves the store writable. Its error
	// says why the store is not ready.
	Check(ctx context.Context) error

	// Close waits for writes that were begun, then releases everything. Other
	// methods fail after it. It is safe to call twice.
	Close() error
}
