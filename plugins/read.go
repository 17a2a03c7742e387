package plugins

import (
	"context"
	"fmt"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/plugins/manifest"
	"github.com/carrelhost/carrel/store"
)

// Plugin returns one plugin, or not_found.
func (c *Catalog) Plugin(ctx context.Context, t carrel.TenantID, p carrel.PluginName) (store.Plugin, error) {
	row, err := c.cfg.Store.Plugin(ctx, t, p)
	if err != nil {
		return store.Plugin{}, c.explained(ctx, t, p, fmt.Errorf("find plugin: %w", err))
	}
	return row, nil
}

// List returns up to limit plugins whose names sort after the given one.
func (c *Catalog) List(ctx context.Context, t carrel.TenantID, after carrel.PluginName, limit int) ([]store.Plugin, error) {
	rows, err := c.cfg.Store.ListPlugins(ctx, t, after, limit)
	if err != nil {
		return nil, fmt.Errorf("list plugins: %w", err)
	}
	return rows, nil
}

// Version returns the version that ref picks, or not_found. Its manifest is
// one that manifest.Parse reads, whatever host stored it.
func (c *Catalog) Version(ctx context.Context, t carrel.TenantID, p carrel.PluginName, ref carrel.VersionRef) (store.Version, error) {
	v, err := c.version(ctx, t, p, ref)
	return v, c.explained(ctx, t, p, err)
}

func (c *Catalog) version(ctx context.Context, t carrel.TenantID, p carrel.PluginName, ref carrel.VersionRef) (store.Version, error) {
	v, err := c.cfg.Store.Version(ctx, t, p, ref)
	if err != nil {
		return store.Version{}, fmt.Errorf("find version: %w", err)
	}
	if v.Manifest, err = manifest.Current(v.Manifest); err != nil {
		return store.Version{}, fmt.Errorf("version %d of %s: %w", v.N, p, err)
	}
	return v, nil
}

// ListVersions returns up to limit versions with numbers below before (0 = no
// bound), newest first, without their manifests and reports. A plugin that
// does not exist is not_found.
func (c *Catalog) ListVersions(ctx context.Context, t carrel.TenantID, p carrel.PluginName, before, limit int) ([]store.Version, error) {
	rows, err := c.cfg.Store.ListVersions(ctx, t, p, before, limit)
	if err != nil {
		return nil, c.explained(ctx, t, p, fmt.Errorf("list versions: %w", err))
	}
	return rows, nil
}

// Module returns a version's module, or not_found.
func (c *Catalog) Module(ctx context.Context, t carrel.TenantID, p carrel.PluginName, d carrel.Digest) ([]byte, error) {
	b, err := c.cfg.Store.Module(ctx, t, p, d)
	if err != nil {
		return nil, c.explained(ctx, t, p, fmt.Errorf("read module: %w", err))
	}
	return b, nil
}
