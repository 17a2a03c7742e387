// Package plugins keeps the plugins of all tenants: it admits what is
// uploaded, keeps versions by the digest of their bytes, and knows which one
// is active. What a plugin declares is read by plugins/manifest; plugins/pack
// makes modules of prompts.
package plugins

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/quarantine"
	"github.com/carrelhost/carrel/host/sandbox"
	"github.com/carrelhost/carrel/host/scope"
	"github.com/carrelhost/carrel/plugins/manifest"
	"github.com/carrelhost/carrel/store"
)

// Config configures a Catalog. Store, Sandbox, Admit and Scopes are required.
type Config struct {
	Store   store.Plugins
	Sandbox *sandbox.Sandbox // runs the code of versions that have some
	Admit   Admit
	// Scopes opens and closes the plugins' application scopes.
	Scopes interface {
		NewApplication(t carrel.TenantID, p carrel.PluginName) store.ScopeInstance
		CloseApplication(ctx context.Context, id carrel.ScopeID, why carrel.EvictionReason) scope.Closed
	}
	Limits store.PluginLimits
	// Admissions bounds how many modules are admitted, and for how long.
	Admissions AdmissionLimits
	Loaded     int // versions kept ready at once; 0 = 1,000
	// LoadedBytes is how much memory the versions that are kept ready take
	// together, what they share counted once. Past it those go that were not
	// used for longest; what is in use stays. 0 = 1 GiB.
	LoadedBytes int64
	LoadedIdle  time.Duration    // after which a version that nobody uses is not kept ready; 0 = 10 min
	Quarantine  *quarantine.List // what must not run; nil: nothing
	Log         *Log             // of plugins, for what is refused of them; nil: nobody is told
	Now         func() time.Time // nil = time.Now
}

// Catalog is the plugins of all tenants. It is safe for concurrent use.
type Catalog struct {
	cfg   Config
	cache *cache
	loads singleflight.Group // by build, so that a version is loaded once

	admissions *admissions
	told       *told

	abandoned sync.WaitGroup // loads whose callers left, and what judges modules
}

const (
	defaultLoaded      = 1000
	defaultLoadedBytes = 1 << 30
	defaultLoadedIdle  = 10 * time.Minute
)

// NewCatalog returns a catalog over a store.
func NewCatalog(cfg Config) (*Catalog, error) {
	var errs []error
	if cfg.Store == nil || cfg.Sandbox == nil || cfg.Admit == nil || cfg.Scopes == nil {
		errs = append(errs, errors.New("plugins: Config needs Store, Sandbox, Admit and Scopes"))
	}
	if cfg.Limits.Plugins <= 0 || cfg.Limits.Versions <= 0 {
		errs = append(errs, errors.New("plugins: Config.Limits must be positive"))
	}
	if cfg.Loaded == 0 {
		cfg.Loaded = defaultLoaded
	}
	if cfg.LoadedBytes == 0 {
		cfg.LoadedBytes = defaultLoadedBytes
	}
	if cfg.LoadedIdle == 0 {
		cfg.LoadedIdle = defaultLoadedIdle
	}
	if cfg.LoadedBytes < 0 || cfg.LoadedIdle < 0 {
		errs = append(errs, errors.New("plugins: Config.LoadedBytes and LoadedIdle must be positive"))
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	cache, err := newCache(cfg.Loaded, cfg.LoadedBytes, cfg.LoadedIdle, cfg.Sandbox.LoadedBytes)
	errs = append(errs, err)
	return &Catalog{cfg: cfg, cache: cache, admissions: newAdmissions(cfg.Admissions, cfg.Now), told: newTold()}, errors.Join(errs...)
}

// Close lets go of every loaded version. Invocations must have ended.
func (c *Catalog) Close() {
	c.cache.close()
	c.abandoned.Wait()
}

// Upload is how a module is to be taken in.
type Upload struct {
	Tenant   carrel.TenantID
	Module   []byte
	Activate bool // make it the active version
	DryRun   bool // only say what would happen
	// Enter waits for the module's turn to be judged, until ctx ends; leave is
	// called after that. nil: there is no wait.
	Enter   func(ctx context.Context) (leave func(), err error)
	Request string // what Progress.Request is to be if it is refused
}

// Uploaded is what became of an upload.
type Uploaded struct {
	Version store.Version // its number is 0 after a dry run
	Created bool          // false: these bytes were there before
	Plugin  store.Plugin  // as it is then; zero after a dry run
}

// Upload admits a module and keeps it as a version, the same bytes as the
// same version. What is refused changes nothing. Errors are those of Submit and
// Admit, limit_exceeded if the manifest is too large once its defaults are
// written out, quota_exceeded, overloaded with the limit admissionTimeout, and
// draining.
func (c *Catalog) Upload(ctx context.Context, u Upload) (Uploaded, error) {
	s, err := c.Submit(ctx, u)
	if err != nil {
		return Uploaded{}, err
	}
	return s.Wait(ctx)
}

// finish keeps what was admitted as it is to be.
func (c *Catalog) finish(ctx context.Context, u Upload, a Admission) (Uploaded, error) {
	encoded, err := manifest.Encode(a.Manifest)
	if err != nil {
		return Uploaded{}, fmt.Errorf("encode manifest: %w", err)
	}
	if len(encoded) > abi.MaxManifestBytes { // what is stored must load again
		return Uploaded{}, carrel.FailLimit("plugins.Upload", abi.LimitExceeded, "manifestBytes", fmt.Sprintf(
			"with its defaults written out the manifest is %d bytes, at most %d are allowed (limit manifestBytes); "+
				"shorten the texts or declare fewer methods", len(encoded), abi.MaxManifestBytes))
	}
	report, err := json.Marshal(a.Report)
	if err != nil {
		return Uploaded{}, fmt.Errorf("encode report: %w", err)
	}
	v := store.Version{
		Tenant: u.Tenant, Plugin: carrel.PluginName(a.Manifest.Name), Digest: carrel.DigestOf(u.Module),
		Manifest: encoded, Report: report, Bytes: int64(len(u.Module)), CreatedAt: c.cfg.Now().UTC(),
	}
	if u.DryRun {
		return Uploaded{Version: v}, nil
	}
	var out Uploaded
	if out.Version, out.Created, err = c.cfg.Store.PutVersion(ctx, v, u.Module, c.cfg.Limits); err != nil {
		return Uploaded{}, fmt.Errorf("store version: %w", err)
	}
	if u.Activate {
		out.Plugin, err = c.activate(ctx, u.Tenant, v.Plugin, v.Digest)
	} else {
		out.Plugin, err = c.cfg.Store.Plugin(ctx, u.Tenant, v.Plugin)
	}
	return out, err
}

// Activate makes a version the active one; invocations that run finish on the
// one they began with. A plugin or version that is not there is not_found, one
// that is quarantined forbidden.
func (c *Catalog) Activate(ctx context.Context, t carrel.TenantID, p carrel.PluginName, ref carrel.VersionRef) (store.Plugin, error) {
	v, err := c.cfg.Store.Version(ctx, t, p, ref)
	if err != nil {
		return store.Plugin{}, c.explained(ctx, t, p, fmt.Errorf("find version: %w", err))
	}
	return c.activate(ctx, t, p, v.Digest)
}

func (c *Catalog) activate(ctx context.Context, t carrel.TenantID, p carrel.PluginName, d carrel.Digest) (store.Plugin, error) {
	if err := c.healthy("plugins.Activate", d); err != nil {
		return store.Plugin{}, err
	}
	ctx = context.WithoutCancel(ctx) // see change
	after, err := change(c, plugin{t, p}, func() (store.Plugin, error) {
		return c.cfg.Store.Activate(ctx, t, p, d, c.cfg.Scopes.NewApplication(t, p))
	})
	if err != nil {
		return store.Plugin{}, fmt.Errorf("activate: %w", err)
	}
	return after, nil
}

// Rollback activates the version that was active before the active one, or
// before the plugin was deactivated. Two rollbacks end where they began, unless
// a deactivation came in between: what was active before that is forgotten. If
// there is none it returns bad_request, and as Activate forbidden.
func (c *Catalog) Rollback(ctx context.Context, t carrel.TenantID, p carrel.PluginName) (store.Plugin, error) {
	now, err := c.Plugin(ctx, t, p)
	if err != nil {
		return store.Plugin{}, err
	}
	if now.Previous == (carrel.Digest{}) || now.Previous == now.Active { // deactivated and activated again
		return store.Plugin{}, carrel.Fail("plugins.Rollback", abi.BadRequest,
			"there is no version to roll back to: none was active before this one, or it was deleted")
	}
	return c.activate(ctx, t, p, now.Previous)
}

// Deactivate leaves the plugin without an active version, closes its
// application scope and says what ended with it. not_found if there is no such
// plugin; one that is not active stays so.
func (c *Catalog) Deactivate(ctx context.Context, t carrel.TenantID, p carrel.PluginName) (scope.Closed, error) {
	ctx = context.WithoutCancel(ctx) // see change
	before, err := change(c, plugin{t, p}, func() (store.Plugin, error) { return c.cfg.Store.Deactivate(ctx, t, p) })
	if err != nil {
		return scope.Closed{}, c.explained(ctx, t, p, fmt.Errorf("deactivate: %w", err))
	}
	return c.cfg.Scopes.CloseApplication(ctx, before.Scope, carrel.ReasonScopeClosed), nil
}

// Delete removes the plugin and all its versions, closes its application scope
// and says what ended with it. not_found if there is no such plugin.
func (c *Catalog) Delete(ctx context.Context, t carrel.TenantID, p carrel.PluginName) (scope.Closed, error) {
	ctx = context.WithoutCancel(ctx) // see change
	before, err := change(c, plugin{t, p}, func() (store.Plugin, error) { return c.cfg.Store.DeletePlugin(ctx, t, p) })
	if carrel.CodeOf(err) != abi.NotFound { // after another error it may be gone
		c.cache.unload(plugin{t, p}, nil)
	}
	if err != nil {
		return scope.Closed{}, c.explained(ctx, t, p, fmt.Errorf("delete plugin: %w", err))
	}
	return c.cfg.Scopes.CloseApplication(ctx, before.Scope, carrel.ReasonPluginRemoved), nil
}

// change runs a change of what is active, and forgets what was cached of it.
// Such changes run under a context that does not end: a store that stopped
// waiting for one, because the client went away, may still do it later, after
// the cache was told, and nobody would close the scope that it took away.
func change(c *Catalog, p plugin, do func() (store.Plugin, error)) (store.Plugin, error) {
	row, err := do()
	c.cache.drop(p)
	return row, err
}

// DeleteVersion removes a version. The active one is bad_request.
func (c *Catalog) DeleteVersion(ctx context.Context, t carrel.TenantID, p carrel.PluginName, ref carrel.VersionRef) error {
	v, err := c.cfg.Store.Version(ctx, t, p, ref)
	if err == nil {
		err = c.cfg.Store.DeleteVersion(ctx, t, p, v.Digest)
	}
	if errors.Is(err, store.ErrActive) {
		return carrel.Fail("plugins.DeleteVersion", abi.BadRequest,
			"this version is active; activate another or deactivate the plugin first")
	}
	if err != nil {
		return c.explained(ctx, t, p, fmt.Errorf("delete version: %w", err))
	}
	c.cache.unload(plugin{t, p}, &v.Digest)
	return nil
}

// Running returns the version of a plugin that ref picks, ready to be called,
// with the plugin's application scope. A plugin without an active version is
// not_found, whatever ref says, and a version that is quarantined forbidden.
// The caller releases it.
func (c *Catalog) Running(ctx context.Context, t carrel.TenantID, p carrel.PluginName, ref carrel.VersionRef) (Running, error) {
	key := plugin{t, p}
	row, begun := c.cache.getActive(key)
	if begun != nil {
		var err error
		if row, err = c.readActive(ctx, key, begun); err != nil {
			return Running{}, err
		}
	}
	if row.Active == (carrel.Digest{}) {
		return Running{}, carrel.FailNotFound("plugins.Running")
	}
	l, err := c.loadedVersion(ctx, key, ref, row.Active)
	if err != nil {
		return Running{}, err
	}
	return Running{l, store.ScopeInstance{
		ID: row.Scope, Tenant: t, Scope: carrel.ScopeApplication, Plugin: p,
	}}, nil
}

// readActive reads what is active, as a read of the cache that began.
func (c *Catalog) readActive(ctx context.Context, p plugin, begun *read) (row store.Plugin, err error) {
	var keep *store.Plugin
	defer func() { c.cache.endRead(p, begun, keep) }()
	if row, err = c.cfg.Store.Plugin(ctx, p.tenant, p.name); err != nil {
		return row, fmt.Errorf("find plugin: %w", err)
	}
	keep = &row
	return row, nil
}
