package store

import (
	"context"
	"time"

	"github.com/carrelhost/carrel"
)

// Plugin is a name in a tenant under which versions are kept.
type Plugin struct {
	Tenant    carrel.TenantID
	Name      carrel.PluginName
	Active    carrel.Digest  // the zero digest: none is active
	ActiveN   int            // the number of the active version; 0 if none is active
	Previous  carrel.Digest  // what was active before, for a rollback; may be zero
	Scope     carrel.ScopeID // its open application scope; "" if none is active
	Versions  int            // how many are kept
	CreatedAt time.Time
}

// Version is one uploaded module of a plugin.
type Version struct {
	Tenant    carrel.TenantID
	Plugin    carrel.PluginName
	Digest    carrel.Digest
	N         int    // 1 is a plugin's first; numbers are never reused while the plugin exists
	Manifest  []byte // the complete manifest as JSON
	Report    []byte // the admission report as JSON
	Bytes     int64  // of the module
	CreatedAt time.Time
}

// PluginLimits bounds what PutVersion adds.
type PluginLimits struct {
	Plugins  int // in one tenant
	Versions int // of one plugin
}

// Plugins keeps plugins, their versions and which version is active.
type Plugins interface {
	// PutVersion stores a version and its module, creating the plugin if it is
	// the first, and returns it with its number. If the plugin has a version
	// with this digest, that one is returned and created is false. Past a
	// limit it returns quota_exceeded with Limit "plugins" or "versions". A
	// tenant that does not exist is not_found.
	PutVersion(ctx context.Context, v Version, module []byte, most PluginLimits) (stored Version, created bool, err error)

	// Version returns the version that ref picks, or not_found. A zero ref
	// picks the active one.
	Version(ctx context.Context, t carrel.TenantID, p carrel.PluginName, ref carrel.VersionRef) (Version, error)

	// FindVersion returns the version with the digest, whichever plugin of the
	// tenant has it, or not_found. It leaves out Manifest and Report, as
	// ListVersions does. Its cost grows with the tenant's plugins, not with
	// their versions.
	FindVersion(ctx context.Context, t carrel.TenantID, d carrel.Digest) (Version, error)

	// ListVersions returns up to limit versions with numbers below before (0 =
	// no bound), newest first. It leaves out Manifest and Report, which are
	// large; Version has them. A plugin that does not exist is not_found.
	ListVersions(ctx context.Context, t carrel.TenantID, p carrel.PluginName, before, limit int) ([]Version, error)

	// Module returns a version's module bytes, or not_found.
	Module(ctx context.Context, t carrel.TenantID, p carrel.PluginName, d carrel.Digest) ([]byte, error)

	// Plugin returns one plugin, or not_found.
	Plugin(ctx context.Context, t carrel.TenantID, p carrel.PluginName) (Plugin, error)

	// ListPlugins returns up to limit plugins whose names sort after the given
	// one, in order of name.
	ListPlugins(ctx context.Context, t carrel.TenantID, after carrel.PluginName, limit int) ([]Plugin, error)

	// Activate makes a version the active one. The version that was active, if
	// any and another, becomes the previous one. If the plugin has no open
	// application scope, the given instance is opened as it; else it is left
	// alone. Returns the plugin as it is then, or not_found.
	Activate(ctx context.Context, t carrel.TenantID, p carrel.PluginName, d carrel.Digest, open ScopeInstance) (Plugin, error)

	// Deactivate leaves the plugin without an active version and takes its
	// application scope from it; the scope instance itself stays open until
	// CloseScope, and is an orphan until then. What was active becomes the
	// previous version. Returns the plugin as it was before, or not_found.
	Deactivate(ctx context.Context, t carrel.TenantID, p carrel.PluginName) (Plugin, error)

	// DeleteVersion removes a version that is not active (ErrActive if it is),
	// or returns not_found. If it was the previous one, there is none after.
	DeleteVersion(ctx context.Context, t carrel.TenantID, p carrel.PluginName, d carrel.Digest) error

	// DeletePlugin removes a plugin with all its versions. Its application
	// scope instance is left as Deactivate leaves it. Returns the plugin as it
	// was before, or not_found.
	DeletePlugin(ctx context.Context, t carrel.TenantID, p carrel.PluginName) (Plugin, error)

	// ActivePlugins returns up to limit plugins of all tenants that have an
	// active version, in order of (tenant, name), starting after the given
	// pair. Hosts call it at start.
	ActivePlugins(ctx context.Context, afterTenant carrel.TenantID, after carrel.PluginName, limit int) ([]Plugin, error)
}
