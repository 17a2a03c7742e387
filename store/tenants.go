package store

import (
	"context"
	"time"

	"github.com/carrelhost/carrel"
)

// Tenant is one of the mutually distrusting users of a host.
type Tenant struct {
	ID        carrel.TenantID
	CreatedAt time.Time
}

// APIKey is a credential of a tenant. The secret itself is never stored.
type APIKey struct {
	ID            carrel.KeyID
	Tenant        carrel.TenantID
	Role          carrel.KeyRole
	Name          string         // for people; may be empty
	Subject       carrel.Subject // fixed subject of every call, or empty
	AssertSubject bool           // calls may name their subject themselves
	Hash          [32]byte       // SHA-256 of the secret
	CreatedAt     time.Time
}

// Tenants keeps tenants and their API keys. A key never changes and never goes
// once it was made, nor does its tenant, and callers rely on it: what
// KeyByHash returned stays true, in this process and in every other one. A
// method that would change or delete a key or a tenant ends that, and needs a
// way to tell those who keep keys, such as host/tenant, before it may be here.
type Tenants interface {
	// CreateTenant adds a tenant, or returns ErrExists.
	CreateTenant(ctx context.Context, t Tenant) error

	// Tenant returns one tenant, or not_found.
	Tenant(ctx context.Context, id carrel.TenantID) (Tenant, error)

	// ListTenants returns up to limit tenants whose ids sort after the given
	// one, in order of id.
	ListTenants(ctx context.Context, after carrel.TenantID, limit int) ([]Tenant, error)

	// CreateKey adds a key. It returns not_found if the tenant does not exist
	// and ErrExists if a key with this id or hash does, in any tenant.
	CreateKey(ctx context.Context, k APIKey) error

	// CreateFirstOwner is CreateKey for a key of role owner, and returns
	// ErrExists as well if the tenant has an owner key.
	CreateFirstOwner(ctx context.Context, k APIKey) error

	// KeyByHash returns the key with this hash, of whatever tenant, or
	// not_found.
	KeyByHash(ctx context.Context, hash [32]byte) (APIKey, error)
}
