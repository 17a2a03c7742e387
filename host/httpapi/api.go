// Package httpapi is the HTTP edge: it turns requests into calls of the
// packages below it, and their results and errors into answers.
package httpapi

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/host/invoke"
	"github.com/carrelhost/carrel/host/quarantine"
	"github.com/carrelhost/carrel/host/sandbox/module"
	"github.com/carrelhost/carrel/host/scope"
	"github.com/carrelhost/carrel/host/tenant"
	"github.com/carrelhost/carrel/plugins"
	"github.com/carrelhost/carrel/store"
)

// Limits bound what clients may send, and what is kept for them. All are
// required.
type Limits struct {
	RequestBytes int64         // of a JSON body
	ModuleBytes  int64         // of an upload
	ImportBytes  int64         // of an imported history
	BodyTimeout  time.Duration // for a body to arrive
	BodyBytes    int64         // of all bodies that are being handled
	Uploads      int           // that are admitted at once
	WriteTimeout time.Duration // for a client to take an answer, or one event
	UnsentBytes  int64         // of all answers that are being made or sent
	AnswerBytes  int64         // of one model answer
	Timeout      time.Duration // of one request

	EventBytes      int64         // of one invocation's events
	EventBytesTotal int64         // of all events that are kept at once
	EventBuffers    int           // invocations whose events are kept at once
	EventsKept      time.Duration // after the end, or the last reader

	WebSockets        int           // open at once, of one tenant
	FrameBytes        int64         // of one frame from a client
	FramesPerSecond   int           // of one WebSocket
	SocketInvocations int           // that run at once on one WebSocket
	SocketIdle        time.Duration // without a word from the client
	SocketTickets     int           // that nobody has used yet, of one tenant
	TicketTTL         time.Duration // of a ticket

	MessagesPerHistory int64 // of one that is imported
	WindowBytes        int64 // of a history, that are sent to the model at most
}

func (l Limits) valid() bool {
	return l.RequestBytes > 0 && l.ModuleBytes > 0 && l.BodyTimeout > 0 && l.BodyBytes >= l.ModuleBytes &&
		l.ImportBytes > 0 && l.BodyBytes >= l.ImportBytes && l.MessagesPerHistory > 0 && l.WindowBytes > 0 && l.Uploads > 0 && l.WriteTimeout > 0 &&
		l.UnsentBytes > 0 && l.AnswerBytes > 0 && l.Timeout > 0 &&
		l.EventBytes > 0 && l.EventBytesTotal >= l.EventBytes && l.EventBuffers > 0 && l.EventsKept > 0 &&
		l.WebSockets > 0 && l.FrameBytes > 0 && l.FramesPerSecond > 0 && l.SocketInvocations > 0 && l.SocketIdle > 0 &&
		l.SocketTickets > 0 && l.TicketTTL > 0
}

// Config configures an API. Fields are required where no default is named.
type Config struct {
	Invoker   *invoke.Invoker
	Catalog   *plugins.Catalog
	Scopes    *scope.Registry
	Histories store.Histories
	Evictions store.Evictions
	Grants    store.Grants
	PluginLog *plugins.Log
	Tenants   *tenant.Directory
	Admin     tenant.Admin
	Ready     func() error // nil if the host can serve
	Version   client.HostVersion
	Limits    Limits
	Module    module.Limits
	Log       *slog.Logger

	// Quarantine is what ran when the host crashed; nil: nothing.
	Quarantine *quarantine.List

	// Loopback says that the listener is on a loopback address: then requests
	// under a foreign host name are refused, but for AllowedHosts (small
	// letters).
	Loopback     bool
	AllowedHosts []string
	// AllowedOrigins are those of web pages that may open WebSockets besides
	// the host's own, such as https://app.example.
	AllowedOrigins []string

	Now   func() time.Time // nil = time.Now
	NewID func() string    // nil = random UUIDs
}

// API is the HTTP edge of one host.
type API struct {
	cfg     Config
	bodies  *budget // bytes of bodies that are being handled
	modules *budget // those of uploads among them
	unsent  *budget // bytes of answers that are being made or sent
	imports *budget // imports: a tenant has one at a time
	uploads *budget // places of modules that are being admitted
	buffers *buffers
	tickets *tickets

	arrivals *arrivals
	sockets  *sockets

	// background counts the invocations that are streamed, and the admissions
	// that nobody waits for. They may outlive their requests.
	background sync.WaitGroup
}

// New returns the edge of a host.
func New(cfg Config) (*API, error) {
	var errs []error
	if cfg.Invoker == nil || cfg.Catalog == nil || cfg.Scopes == nil || cfg.Histories == nil || cfg.Evictions == nil ||
		cfg.Grants == nil || cfg.PluginLog == nil || cfg.Tenants == nil || cfg.Ready == nil || cfg.Log == nil {
		errs = append(errs, errors.New("httpapi: Config lacks a required field"))
	}
	if !cfg.Limits.valid() {
		errs = append(errs, errors.New("httpapi: Config.Limits must be positive"))
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.NewID == nil {
		cfg.NewID = uuid.NewString
	}
	for i, h := range cfg.AllowedHosts {
		cfg.AllowedHosts[i] = strings.ToLower(h)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	l := cfg.Limits
	a := &API{
		cfg: cfg, bodies: newBodies(l), modules: newModules(l), unsent: newUnsent(l), imports: newBudget(math.MaxInt64, 1), uploads: newUploads(l),
		buffers: newBuffers(amount{int64(l.EventBuffers), l.EventBytesTotal}, l.EventBytes, l.EventsKept),
		tickets: newTickets(l.SocketTickets, l.TicketTTL, cfg.Now),
		sockets: newSockets(l.WebSockets), arrivals: newArrivals(),
	}
	cfg.Scopes.Watch(a.buffers)
	return a, nil
}

// StopAccepting refuses new WebSockets from now on (draining).
func (a *API) StopAccepting() { a.sockets.refuse() }

// CloseSockets closes every WebSocket, 1012, once nothing runs on it and its
// events are sent; when ctx ends, at once. It returns when they are gone and
// their sessions closed. The invoker has been drained.
func (a *API) CloseSockets(ctx context.Context) { a.sockets.drain(ctx) }

// Close waits for what requests left running, and forgets all events. No
// request is served any more.
func (a *API) Close() {
	a.background.Wait()
	a.buffers.close()
}

// Route is one address of the API, with parameters as in /plugins/:plugin.
type Route struct{ Method, Path string }

// Routes returns every route of a host's API, the administration's among
// them, sorted. The caller owns the result.
func Routes() []Route {
	var out []Route
	for _, r := range new(API).router(true).Routes() {
		if r.Method != http.MethodHead { // GET without the body
			out = append(out, Route{r.Method, r.Path})
		}
	}
	slices.SortFunc(out, func(a, b Route) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Method, b.Method))
	})
	return out
}

// Handler serves what tenants use and, if admin is set, the administration as
// well.
func (a *API) Handler(admin bool) http.Handler { return a.router(admin) }

// routeMethod is where a service method is described and called.
const routeMethod = "/api/v1/plugins/:plugin/services/:service/:method"

const routeSocket = "/api/v1/ws"

// router has no middleware on groups: Echo would answer their methods that are
// not there with not_found instead of method_not_allowed.
func (a *API) router(admin bool) *echo.Echo {
	e := a.echo()
	for _, method := range []string{http.MethodGet, http.MethodHead} { // probes use either
		e.Add(method, "/livez", a.live)
		e.Add(method, "/readyz", a.ready)
	}
	e.GET("/version", a.version)
	e.GET("/api/v1/openapi.json", a.openAPI, refuseHeaders)

	v1 := e.Group("/api/v1")
	using := []echo.MiddlewareFunc{refuseHeaders, a.authenticated}
	changing := slices.Concat(using, []echo.MiddlewareFunc{publishing("change plugins")})
	logging := slices.Concat(using, []echo.MiddlewareFunc{publishing("read the logs of plugins")})
	following := slices.Concat(using, []echo.MiddlewareFunc{publishing("follow uploads")})
	reading := slices.Concat(using, []echo.MiddlewareFunc{inspecting})
	calling := slices.Concat(using, []echo.MiddlewareFunc{invoking})
	owned := slices.Concat(using, []echo.MiddlewareFunc{owning})
	e.GET(routeMethod, a.describe, using...)
	e.POST(routeMethod, a.invoke, calling...) // before the body is read

	v1.POST("/plugins", a.upload, changing...)
	v1.GET("/plugins", a.listPlugins, using...)
	v1.GET("/plugins/:plugin", a.getPlugin, using...)
	v1.DELETE("/plugins/:plugin", a.deletePlugin, changing...)
	v1.PUT("/plugins/:plugin/active", a.activate, changing...)
	v1.DELETE("/plugins/:plugin/active", a.deactivate, changing...)
	v1.POST("/plugins/:plugin/rollback", a.rollback, changing...)
	v1.GET("/plugins/:plugin/versions", a.listVersions, reading...)
	v1.GET("/plugins/:plugin/versions/:version", a.getVersion, reading...)
	v1.DELETE("/plugins/:plugin/versions/:version", a.deleteVersion, changing...)
	v1.GET("/plugins/:plugin/versions/:version/manifest", a.getManifest, reading...)
	v1.GET("/plugins/:plugin/versions/:version/report", a.getReport, reading...)
	v1.GET("/plugins/:plugin/versions/:version/module", a.getModule, reading...)

	v1.GET("/versions/:digest", a.getAdmission, following...)

	v1.GET("/plugins/:plugin/log", a.pluginLog, logging...)

	v1.GET("/invocations/:invocation/events", a.readEvents, calling...)
	v1.POST("/invocations/:invocation/cancel", a.cancelInvocation, calling...)
	v1.POST("/sessions", a.openSession, calling...)
	v1.GET("/sessions", a.listSessions, calling...)
	v1.GET("/sessions/:session", a.getSession, calling...)
	v1.DELETE("/sessions/:session", a.closeSession, calling...)
	v1.POST("/ws-tickets", a.issueTicket, calling...)
	e.GET(routeSocket, a.openSocket, refuseHeaders, a.admitted, invoking)

	v1.GET("/tenant/grants/:plugin", a.getGrant, owned...)
	v1.PUT("/tenant/grants/:plugin", a.putGrant, owned...)

	v1.GET("/memories", a.listMemories, using...)
	v1.GET("/memories/:key/messages", a.listMessages, using...)
	v1.DELETE("/memories/:key", a.deleteMemory, using...)
	v1.DELETE("/memories/:key/turns/:turn", a.deleteTurn, using...)
	v1.GET("/memories/:key/export", a.exportMemory, using...)
	v1.POST("/memories/import", a.importMemory, owned...)
	v1.POST("/subjects/erase", a.eraseSubject, owned...)
	v1.GET("/evictions", a.listEvictions, using...)
	if admin {
		a.routeAdmin(e)
	}
	return e
}

// AdminHandler serves the administration alone, for a listener of its own.
func (a *API) AdminHandler() http.Handler {
	e := a.echo()
	a.routeAdmin(e)
	return e
}

func (a *API) routeAdmin(e *echo.Echo) {
	v1 := e.Group("/admin/v1")
	administering := []echo.MiddlewareFunc{refuseHeaders, a.asAdmin}
	v1.POST("/tenants", a.createTenant, administering...)
	v1.GET("/tenants", a.listTenants, administering...)
	v1.POST("/tenants/:tenant/keys", a.createKey, administering...)
	v1.POST("/scrub", a.scrub, administering...)
	v1.GET("/scrub", a.lastScrub, administering...)
	v1.GET("/quarantine", a.listQuarantine, administering...)
	v1.DELETE("/quarantine/:digest", a.liftQuarantine, administering...)
}

func (a *API) echo() *echo.Echo {
	e := echo.New()
	e.HideBanner, e.HidePort = true, true
	e.HTTPErrorHandler = a.handleError
	e.Use(a.observe)
	if a.cfg.Loopback {
		e.Use(a.onlyOurHost)
	}
	return e
}
