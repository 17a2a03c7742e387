// Package host assembles a Carrel host. It is the only place that lists the
// stores and the model providers.
package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"

	"github.com/google/uuid"

	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/host/httpapi"
	"github.com/carrelhost/carrel/host/idempotency"
	"github.com/carrelhost/carrel/host/invoke"
	"github.com/carrelhost/carrel/host/model"
	"github.com/carrelhost/carrel/host/quarantine"
	"github.com/carrelhost/carrel/host/sandbox"
	"github.com/carrelhost/carrel/host/sandbox/marker"
	"github.com/carrelhost/carrel/host/sandbox/module"
	"github.com/carrelhost/carrel/host/scope"
	"github.com/carrelhost/carrel/host/tenant"
	"github.com/carrelhost/carrel/plugins"
	"github.com/carrelhost/carrel/plugins/manifest"
	"github.com/carrelhost/carrel/store"
	"github.com/carrelhost/carrel/store/datadir"
	"github.com/carrelhost/carrel/store/memstore"
	"github.com/carrelhost/carrel/store/sqlite"
)

// Host is one Carrel host: a store, what runs on it, and its listeners. New
// makes it, Run serves until its context ends, Close releases everything.
type Host struct {
	cfg  Config
	log  *slog.Logger
	info Info

	// In the order in which New makes them; Close goes backwards, but for the
	// sandbox and the catalog. A half-made host has the first few.
	dir     *datadir.Dir
	store   store.Store
	tenants *tenant.Directory
	admin   tenant.Admin
	models  model.Set
	closers []io.Closer // of model providers
	scopes  *scope.Registry
	repeats *idempotency.Keeper
	crashes *quarantine.List // what ran at crashes
	marks   *marker.File     // what runs now; nil if that cannot be noted
	sandbox *sandbox.Sandbox
	lines   *plugins.Log // what plugins log
	catalog *plugins.Catalog
	invoker *invoke.Invoker
	edge    *httpapi.API // of the main listener
	servers []server
	health  health
}

// Info is what a host tells whoever started it.
type Info struct {
	Address      string // base URL of the listener
	AdminAddress string // base URL of the administration
	NewOwnerKey  string // the owner key of the default tenant if it was made now
	OwnerKeyFile string
	Recovered    scope.Recovered // what a process that was killed had left open
	// CrashReport is the file that the host's next start reads to find out
	// whether this process crashed. Whoever owns the process opens it after New
	// and hands it to runtime/debug.SetCrashOutput; else no crash is noticed.
	CrashReport string
}

// New makes a host that listens but does not serve yet: what a process that
// died left open is closed, and evicted, before it returns. Whoever calls it
// closes the host. ver is what /version shows.
func New(ctx context.Context, cfg Config, ver client.HostVersion, log *slog.Logger) (*Host, error) {
	h := &Host{cfg: cfg, log: log}
	if err := h.build(ctx, ver); err != nil {
		return nil, errors.Join(err, h.Close())
	}
	return h, nil
}

// Info returns what the host has to tell.
func (h *Host) Info() Info { return h.info }

func (h *Host) build(ctx context.Context, ver client.HostVersion) error {
	if err := h.cfg.Validate(); err != nil {
		return err
	}
	var err error
	if h.dir, err = datadir.Open(h.cfg.Data); err != nil {
		return err
	}
	ran := h.lookBack()
	h.store, err = openStore(ctx, h.cfg, h.dir)
	h.nameCrashed(ctx, ran)
	if err != nil {
		return err
	}
	if err := h.openModels(); err != nil {
		return err
	}
	h.tenants = tenant.New(tenant.Config{Store: h.store})
	if err := h.setUpKeys(ctx); err != nil {
		return err
	}
	if err := h.buildCore(ctx); err != nil {
		return err
	}
	return h.buildEdge(ctx, ver)
}

// openStore is the complete list of stores.
func openStore(ctx context.Context, cfg Config, dir *datadir.Dir) (store.Store, error) {
	if cfg.Store == StoreMemory {
		return memstore.New(memstore.Config{EvictionRecords: cfg.Limits.EvictionRecords}), nil
	}
	s, err := sqlite.Open(ctx, sqlite.Config{Path: dir.Path("carrel.db"), EvictionRecords: cfg.Limits.EvictionRecords})
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	return s, nil
}

// buildCore makes what runs invocations, and recovers.
func (h *Host) buildCore(ctx context.Context) error {
	secret, err := h.store.HostSecret(ctx)
	if err != nil {
		return fmt.Errorf("host secret: %w", err)
	}
	l, node := h.cfg.Limits, uuid.NewString()
	h.scopes, err = scope.New(scope.Config{
		Store: h.store, Node: node, Secret: secret, Log: h.log,
		CloseApplications: h.cfg.Memory.CloseApplicationOnShutdown,
		HistoryIdleTTL:    h.cfg.Memory.HistoryIdleTTL, ScrubEvery: h.cfg.Memory.ScrubInterval, EvictionsKept: h.cfg.Memory.EvictionsKept,
		Sessions: scope.SessionLimits{
			Sessions: l.Sessions, DefaultIdle: l.SessionIdleTTL, DefaultMax: l.SessionMaxTTL,
			MostIdle: l.SessionIdleTTLMax, MostMax: l.SessionMaxTTLMax,
		},
	})
	if err != nil {
		return err
	}
	if h.info.Recovered, err = h.scopes.Recover(ctx); err != nil {
		return fmt.Errorf("recover: %w", err)
	}
	h.logUnclean()
	if err = h.warnOfScrubs(ctx); err != nil {
		return err
	}
	h.repeats, err = idempotency.New(idempotency.Config{
		Store: h.store, Secret: secret, Node: node, Timeout: l.CommitTimeout, Log: h.log, Pass: h.scopes.Pass,
		Most: store.ClaimLimits{Claims: l.IdempotencyKeys, Bytes: l.IdempotencyBytes},
	})
	if err != nil {
		return err
	}
	if err = h.repeats.Recover(ctx); err != nil {
		return fmt.Errorf("recover: %w", err)
	}
	if h.sandbox, err = sandbox.New(ctx, h.sandboxConfig()); err != nil {
		return fmt.Errorf("sandbox: %w", err)
	}
	h.logGuestMemory()
	if h.lines, err = plugins.NewLog(l.PluginLogLines); err != nil {
		return err
	}
	known := manifest.Known{Models: h.models.Aliases(), Timeout: l.Timeout, WindowBytes: l.WindowBytes}
	h.catalog, err = plugins.NewCatalog(plugins.Config{
		Store: h.store, Sandbox: h.sandbox, Admit: plugins.NewAdmit(known, h.sandbox),
		Scopes: h.scopes, Loaded: l.LoadedVersions, LoadedBytes: l.LoadedBytes, LoadedIdle: l.LoadedIdle,
		Limits:     store.PluginLimits{Plugins: l.Plugins, Versions: l.Versions},
		Admissions: plugins.AdmissionLimits{PerTenant: l.Admissions, Total: l.AdmissionsTotal, Timeout: l.AdmissionTimeout},
		Quarantine: h.crashes, Log: h.lines,
	})
	if err != nil {
		return err
	}
	h.invoker, err = invoke.New(invoke.Config{
		Catalog: h.catalog, Scopes: h.scopes, Histories: h.scopes.Histories(), Grants: h.store, Models: h.models, Repeats: h.repeats,
		Log: h.log, PluginLog: h.lines,
		Limits: invoke.Limits{
			Timeout: l.Timeout, Invocations: l.Invocations, PerTenant: l.ConcurrentInvocations,
			TurnWaiters: l.TurnWaiters, CommitTimeout: l.CommitTimeout,
			MessagesPerHistory: l.MessagesPerHistory, WindowBytes: l.WindowBytes,
		},
	})
	return err
}

// What the data directory has of compiled code, and of the states that calls
// begin with. Both are made anew when they are lost.
var (
	dirCode      = filepath.Join("cache", "code")
	dirSnapshots = filepath.Join("cache", "snapshots")
)

func (h *Host) sandboxConfig() sandbox.Config {
	cfg := h.cfg.Sandbox.config()
	cfg.Module, cfg.CompileCommand = h.moduleLimits(), h.cfg.CompileCommand
	cfg.CacheDir, cfg.SnapshotDir = h.dir.Path(dirCode), h.dir.Path(dirSnapshots)
	cfg.Log, cfg.Marks, cfg.IdleBytes = h.log, h.marks, h.cfg.Limits.IdleBytes
	return cfg
}

func (h *Host) moduleLimits() module.Limits {
	l := module.DefaultLimits()
	l.Bytes = int(h.cfg.Limits.ModuleBytes)
	return l
}

// buildEdge opens the listeners and says where they are.
func (h *Host) buildEdge(ctx context.Context, ver client.HostVersion) error {
	main, err := listen(ctx, h.cfg.Listen, h.cfg.Limits.Connections)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	h.servers = append(h.servers, server{listener: main})
	h.info.Address = baseURL(main)
	h.info.AdminAddress = h.info.Address
	h.info.OwnerKeyFile = h.dir.Path(fileOwnerKey)
	h.info.CrashReport = h.dir.Path(fileCrash)
	h.health = health{check: h.check}

	if h.edge, err = h.api(ver, main); err != nil {
		return err
	}
	h.servers[0].edge, h.servers[0].http = h.edge, h.httpServer(h.edge, h.edge.Handler(h.cfg.AdminListen == ""))
	if h.cfg.AdminListen != "" {
		admin, err := listen(ctx, h.cfg.AdminListen, h.cfg.Limits.Connections)
		if err != nil {
			return fmt.Errorf("adminListen: %w", err)
		}
		h.servers = append(h.servers, server{listener: admin})
		h.info.AdminAddress = baseURL(admin)
		adminAPI, err := h.api(ver, admin)
		if err != nil {
			return err
		}
		h.servers[1].edge, h.servers[1].http = adminAPI, h.httpServer(adminAPI, adminAPI.AdminHandler())
	}
	return h.announce()
}

// announce leaves the address where commands on this machine look for it. A
// host whose disk is full starts without: what is stored can still be read.
func (h *Host) announce() error {
	failed := h.writeFile(fileAddress, h.info.Address)
	if failed == nil {
		return nil
	}
	// That of a host that was killed may be another one's by now.
	if err := os.Remove(h.dir.Path(fileAddress)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(failed, err)
	}
	h.log.Warn("the address cannot be written into the data directory: commands on this machine need --host", "address", h.info.Address, "err", failed)
	return nil
}

func (h *Host) api(ver client.HostVersion, on net.Listener) (*httpapi.API, error) {
	l := h.cfg.Limits
	return httpapi.New(httpapi.Config{
		Invoker: h.invoker, Catalog: h.catalog, Scopes: h.scopes, Histories: h.scopes.Histories(), Evictions: h.store, Grants: h.store, PluginLog: h.lines, Quarantine: h.crashes,
		Tenants: h.tenants, Admin: h.admin, Ready: h.health.ready, Version: ver, Log: h.log,
		Limits: httpapi.Limits{
			RequestBytes: l.RequestBytes, ModuleBytes: l.ModuleBytes, BodyTimeout: l.BodyTimeout,
			BodyBytes: l.BodyBytes, Uploads: l.Uploads,
			WriteTimeout: l.WriteTimeout, UnsentBytes: l.UnsentBytes, AnswerBytes: l.AnswerBytes, Timeout: l.Timeout,
			EventBytes: l.EventBytes, EventBytesTotal: l.EventBytesTotal, EventBuffers: l.EventBuffers, EventsKept: l.EventsKept,
			WebSockets: l.WebSockets, FrameBytes: l.FrameBytes, FramesPerSecond: l.FramesPerSecond,
			SocketInvocations: l.SocketInvocations, SocketIdle: l.SocketIdle,
			SocketTickets: l.SocketTickets, TicketTTL: l.TicketTTL,
			ImportBytes: l.ImportBytes, MessagesPerHistory: l.MessagesPerHistory, WindowBytes: l.WindowBytes,
		},
		Module: h.moduleLimits(), Loopback: isLoopback(on), AllowedHosts: h.cfg.AllowedHosts, AllowedOrigins: h.cfg.AllowedOrigins,
	})
}

// Close releases what New acquired. It is safe after a failed New and safe to
// call twice; it returns every error. Run must have returned.
func (h *Host) Close() error {
	var errs []error
	for _, s := range h.servers {
		if err := s.listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			errs = append(errs, fmt.Errorf("close listener: %w", err))
		}
	}
	if len(h.servers) > 0 { // else the address there is another host's
		if err := os.Remove(h.dir.Path(fileAddress)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("remove address: %w", err))
		}
	}
	h.servers = nil
	for _, c := range h.closers {
		errs = append(errs, c.Close())
	}
	h.closers = nil
	if h.sandbox != nil { // before the catalog, which waits for versions that load
		errs = append(errs, h.sandbox.Close())
	}
	if h.catalog != nil {
		h.catalog.Close()
	}
	errs = append(errs, h.marks.Close())
	if h.store != nil {
		errs = append(errs, h.store.Close())
	}
	if h.dir != nil {
		errs = append(errs, h.dir.Close())
	}
	return errors.Join(errs...)
}
