package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/tenant"
	"github.com/carrelhost/carrel/store/datadir"
)

// DefaultTenant is the tenant that every host has.
const DefaultTenant carrel.TenantID = "default"

// Files of the data directory that commands on the same machine read.
const (
	fileAdminKey = "admin.key"
	fileOwnerKey = "owner.key"
	fileAddress  = "address"
)

// setUpKeys makes sure of the default tenant, its owner key and the
// administrator's key, and remembers what is new, to be shown once.
func (h *Host) setUpKeys(ctx context.Context) error {
	_, err := h.tenants.CreateTenant(ctx, DefaultTenant)
	if err != nil && carrel.CodeOf(err) != abi.BadRequest { // it exists
		return err
	}
	owner := h.cfg.OwnerKey
	if owner == "" {
		var made bool
		if owner, made, err = h.keyFile(fileOwnerKey); err != nil {
			return err
		}
		if made {
			h.info.NewOwnerKey = owner
		}
	}
	if _, err := h.tenants.PresetOwner(ctx, DefaultTenant, owner); err != nil {
		return fmt.Errorf("owner key: %w", err)
	}
	admin := h.cfg.AdminKey
	if admin == "" {
		if admin, _, err = h.keyFile(fileAdminKey); err != nil {
			return err
		}
	}
	if h.admin, err = tenant.NewAdmin(admin); err != nil {
		return fmt.Errorf("administrator's key: %w", err)
	}
	switch k, err := h.tenants.Authenticate(ctx, admin); {
	case err == nil:
		return fmt.Errorf("administrator's key: it is an API key of tenant %s; take another, this one is good for nothing else", k.Tenant)
	case carrel.CodeOf(err) != abi.Unauthenticated:
		return fmt.Errorf("administrator's key: %w", err)
	default:
		return nil
	}
}

// keyFile returns the secret in a file of the data directory, which it makes
// if it is not there.
func (h *Host) keyFile(name string) (secret string, made bool, err error) {
	path := h.dir.Path(name)
	b, err := os.ReadFile(path) //nolint:gosec // a file of ours in the data directory
	if err == nil {
		if err := os.Chmod(path, 0o600); err != nil {
			return "", false, fmt.Errorf("keep key private: %w", err)
		}
		secret = strings.TrimSpace(string(b))
		if err := tenant.CheckSecret(secret); err != nil {
			return "", false, fmt.Errorf("%s: %w", path, err)
		}
		return secret, false, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", false, fmt.Errorf("read key: %w", err)
	}
	if secret, err = h.tenants.NewSecret(); err != nil {
		return "", false, err
	}
	return secret, true, h.writeFile(name, secret)
}

// writeFile replaces a file of the data directory, for the owner's eyes only.
func (h *Host) writeFile(name, content string) error {
	return datadir.WriteFile(h.dir.Path(name), []byte(content+"\n"))
}
