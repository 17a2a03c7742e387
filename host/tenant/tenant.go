// Package tenant knows who may use a host: tenants, their API keys, and the
// key of the host's administrator.
package tenant

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/google/uuid"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/store"
)

// Bounds of what is kept with a key.
const (
	MinSecretBytes  = 32
	MaxSecretBytes  = 256
	MaxKeyNameBytes = 128
)

// Config configures a Directory. Store is required.
type Config struct {
	Store store.Tenants
	Now   func() time.Time // nil = time.Now
	NewID func() string    // nil = random UUIDs
	Rand  io.Reader        // nil = crypto/rand
}

// Directory makes and checks tenants and API keys. It is safe for concurrent
// use.
type Directory struct {
	cfg  Config
	keys *keys
}

// New returns a directory over a store.
func New(cfg Config) *Directory {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.NewID == nil {
		cfg.NewID = uuid.NewString
	}
	if cfg.Rand == nil {
		cfg.Rand = rand.Reader
	}
	return &Directory{cfg: cfg, keys: newKeys()}
}

// NewSecret returns a fresh secret: 256 random bits as text.
func (d *Directory) NewSecret() (string, error) {
	var b [32]byte
	if _, err := io.ReadFull(d.cfg.Rand, b[:]); err != nil {
		return "", fmt.Errorf("make a secret: %w", err)
	}
	return "carrel_" + base64.RawURLEncoding.EncodeToString(b[:]), nil
}

// CheckSecret refuses, with bad_request, what is no preset secret: 32 to 256
// printable ASCII bytes.
func CheckSecret(s string) error {
	ok := len(s) >= MinSecretBytes && len(s) <= MaxSecretBytes
	for i := range len(s) {
		ok = ok && s[i] > ' ' && s[i] <= '~'
	}
	if !ok {
		return carrel.Fail("tenant.CheckSecret", abi.BadRequest, fmt.Sprintf(
			"a key is %d to %d printable ASCII characters without spaces", MinSecretBytes, MaxSecretBytes))
	}
	return nil
}

// Authenticate returns the API key with this secret, or unauthenticated.
func (d *Directory) Authenticate(ctx context.Context, secret string) (store.APIKey, error) {
	const op = "tenant.Authenticate"
	if len(secret) == 0 || len(secret) > MaxSecretBytes {
		return store.APIKey{}, carrel.Fail(op, abi.Unauthenticated, badKey)
	}
	if err := ctx.Err(); err != nil {
		return store.APIKey{}, fmt.Errorf("find API key: %w", err)
	}
	hash := sha256.Sum256([]byte(secret))
	if k, ok := d.keys.get(hash); ok {
		return k, nil
	}
	k, err := d.cfg.Store.KeyByHash(ctx, hash)
	if carrel.CodeOf(err) == abi.NotFound {
		return store.APIKey{}, carrel.Fail(op, abi.Unauthenticated, badKey)
	}
	if err != nil {
		return store.APIKey{}, fmt.Errorf("find API key: %w", err)
	}
	d.keys.put(k)
	return k, nil
}

const badKey = "this host does not know the API key; send one as `Authorization: Bearer KEY`"

// Caller returns who a request with this key is from. asserted is what the
// request says its subject is, or nil: only a key with AssertSubject may say
// so (forbidden), and never against the key's own (forbidden).
func Caller(k store.APIKey, asserted *string) (carrel.Caller, error) {
	const op = "tenant.Caller"
	c := carrel.Caller{Tenant: k.Tenant, Key: k.ID, Role: k.Role, Subject: k.Subject}
	if asserted == nil {
		return c, nil
	}
	if !k.AssertSubject {
		return c, carrel.Fail(op, abi.Forbidden,
			"this API key may not say who its subject is; make one with `assertSubject: true` for your backend")
	}
	s, err := carrel.ParseSubject(*asserted)
	if err != nil {
		return c, err
	}
	if k.Subject != "" && k.Subject != s {
		return c, carrel.Fail(op, abi.Forbidden, "this API key has a fixed subject, and it is another one")
	}
	c.Subject = s
	return c, nil
}

// CreateTenant adds a tenant, or returns bad_request if the name is taken.
func (d *Directory) CreateTenant(ctx context.Context, id carrel.TenantID) (store.Tenant, error) {
	t := store.Tenant{ID: id, CreatedAt: d.cfg.Now().UTC()}
	err := d.cfg.Store.CreateTenant(ctx, t)
	if errors.Is(err, store.ErrExists) {
		return store.Tenant{}, carrel.Fail("tenant.CreateTenant", abi.BadRequest,
			fmt.Sprintf("there is a tenant %q already", id))
	}
	if err != nil {
		return store.Tenant{}, fmt.Errorf("create tenant: %w", err)
	}
	return t, nil
}

// Mint is what a new API key shall be.
type Mint struct {
	Tenant        carrel.TenantID
	Role          carrel.KeyRole
	Name          string // for people
	Subject       carrel.Subject
	AssertSubject bool
}

// MintAsAdmin makes an API key on behalf of the host's administrator and
// returns it with its secret, which is kept nowhere. An administrator gives a
// tenant its first owner and no other: forbidden. A tenant that does not exist
// is not_found.
func (d *Directory) MintAsAdmin(ctx context.Context, m Mint) (store.APIKey, string, error) {
	const op = "tenant.MintAsAdmin"
	if len(m.Name) > MaxKeyNameBytes {
		return store.APIKey{}, "", carrel.FailLimit(op, abi.BadRequest, "keyName",
			fmt.Sprintf("a key's name has at most %d bytes", MaxKeyNameBytes))
	}
	secret, err := d.NewSecret()
	if err != nil {
		return store.APIKey{}, "", err
	}
	k := d.key(m, secret)
	if m.Role == carrel.RoleOwner {
		err = d.cfg.Store.CreateFirstOwner(ctx, k)
	} else {
		err = d.cfg.Store.CreateKey(ctx, k)
	}
	if errors.Is(err, store.ErrExists) {
		return store.APIKey{}, "", carrel.Fail(op, abi.Forbidden,
			"the tenant has an owner key; an administrator gives it no other, and its owner cannot make more of them yet")
	}
	if err != nil {
		return store.APIKey{}, "", fmt.Errorf("create API key: %w", err)
	}
	return k, secret, nil
}

// PresetOwner makes sure that the secret is an owner key of the tenant and
// reports whether it is new. A secret that is another tenant's key is
// bad_request.
func (d *Directory) PresetOwner(ctx context.Context, t carrel.TenantID, secret string) (created bool, err error) {
	const op = "tenant.PresetOwner"
	if err := CheckSecret(secret); err != nil {
		return false, err
	}
	k := d.key(Mint{Tenant: t, Role: carrel.RoleOwner, Name: "preset"}, secret)
	err = d.cfg.Store.CreateKey(ctx, k)
	if !errors.Is(err, store.ErrExists) {
		if err != nil {
			return false, fmt.Errorf("preset owner key: %w", err)
		}
		return true, nil
	}
	old, err := d.cfg.Store.KeyByHash(ctx, k.Hash)
	if err != nil {
		return false, fmt.Errorf("find preset owner key: %w", err)
	}
	if old.Tenant != t || old.Role != carrel.RoleOwner {
		return false, carrel.Fail(op, abi.BadRequest, "the preset owner key is in use as another key")
	}
	return false, nil
}

func (d *Directory) key(m Mint, secret string) store.APIKey {
	return store.APIKey{
		ID: carrel.KeyID("key_" + d.cfg.NewID()), Tenant: m.Tenant, Role: m.Role, Name: m.Name,
		Subject: m.Subject, AssertSubject: m.AssertSubject,
		Hash: sha256.Sum256([]byte(secret)), CreatedAt: d.cfg.Now().UTC(),
	}
}

// Admin is the key of the host's administrator.
type Admin struct{ hash [32]byte }

// NewAdmin returns the administrator's key with this secret; CheckSecret's
// errors.
func NewAdmin(secret string) (Admin, error) {
	if err := CheckSecret(secret); err != nil {
		return Admin{}, err
	}
	return Admin{sha256.Sum256([]byte(secret))}, nil
}

// Is reports, in constant time, whether the secret is the administrator's.
func (a Admin) Is(secret string) bool {
	h := sha256.Sum256([]byte(secret))
	return subtle.ConstantTimeCompare(h[:], a.hash[:]) == 1
}

// List returns up to limit tenants whose names sort after the given one.
func (d *Directory) List(ctx context.Context, after carrel.TenantID, limit int) ([]store.Tenant, error) {
	ts, err := d.cfg.Store.ListTenants(ctx, after, limit)
	if err != nil {
		return nil, fmt.Errorf("list tenants: %w", err)
	}
	return ts, nil
}
