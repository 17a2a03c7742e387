package plugins

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/quarantine"
	"github.com/carrelhost/carrel/store"
)

// CrashedVersions returns the versions of a module that ran at a crash, in the
// tenants that are known to have run it, by tenant. Those that are deleted are
// left out. Manifest and Report are missing.
func CrashedVersions(ctx context.Context, s store.Plugins, r quarantine.Record) ([]store.Version, error) {
	var out []store.Version
	for _, t := range r.Tenants {
		v, err := s.FindVersion(ctx, t, r.Digest)
		switch {
		case carrel.CodeOf(err) == abi.NotFound:
		case err != nil:
			return nil, fmt.Errorf("find version: %w", err)
		default:
			out = append(out, v)
		}
	}
	return out, nil
}

// Crashed is CrashedVersions in the catalog's store.
func (c *Catalog) Crashed(ctx context.Context, r quarantine.Record) ([]store.Version, error) {
	return CrashedVersions(ctx, c.cfg.Store, r)
}

// Lift lets a module run again, as quarantine.List.Lift does, whose errors it
// has. The logs of the plugins that were told of the quarantine, or ran the
// module at a crash, say so. If those are not found in the store for an error,
// nothing changes.
func (c *Catalog) Lift(ctx context.Context, d carrel.Digest) error {
	r, quarantined := c.cfg.Quarantine.Of(d)
	ran, err := c.Crashed(ctx, r)
	if err != nil {
		return err
	}
	if err := c.cfg.Quarantine.Lift(d); err != nil || !quarantined || c.cfg.Log == nil {
		return err
	}
	lifted := c.told.forget(d)
	for _, v := range ran {
		lifted = append(lifted, build{plugin{v.Tenant, v.Plugin}, d})
	}
	slices.SortFunc(lifted, func(a, b build) int { return cmp.Or(cmp.Compare(a.tenant, b.tenant), cmp.Compare(a.name, b.name)) })
	const levelInfo = 1
	for _, b := range slices.Compact(lifted) {
		c.cfg.Log.Add(b.tenant, b.name, Entry{
			At: c.cfg.Now().UTC(), Level: levelInfo,
			Text: fmt.Sprintf("the version %s is quarantined no longer: the host's operator lifted it", d),
		})
	}
	return nil
}

// forget returns, and forgets, of which builds of a module the log says that
// they are quarantined.
func (t *told) forget(d carrel.Digest) []build {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []build
	for _, b := range t.since.Keys() {
		if b.digest == d {
			t.since.Remove(b)
			out = append(out, b)
		}
	}
	return out
}
