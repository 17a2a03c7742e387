package host

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/carrelhost/carrel/host/tenant"
	"github.com/carrelhost/carrel/store"
)

// Config is everything that an operator decides about a host. Start from
// DefaultConfig and change what you need. Field tags are the paths by which
// configuration files and error messages name settings.
type Config struct {
	Listen         string   `yaml:"listen" env:"LISTEN"`                  // address:port of the listener; port 0 = any
	AdminListen    string   `yaml:"adminListen" env:"ADMIN_LISTEN"`       // if set, the administration has this listener of its own
	AllowedHosts   []string `yaml:"allowedHosts" env:"ALLOWED_HOSTS"`     // further host names that a loopback listener answers to
	AllowedOrigins []string `yaml:"allowedOrigins" env:"ALLOWED_ORIGINS"` // of web pages that may open WebSockets, such as https://app.example

	Data  string `yaml:"data" env:"DATA"`   // the data directory
	Store string `yaml:"store" env:"STORE"` // sqlite or memory

	Models    map[string]Model    `yaml:"models"`    // alias → model; empty = ChooseModel decides
	Providers map[string]Provider `yaml:"providers"` // model servers by name

	Limits Limits `yaml:"limits" envPrefix:"LIMITS_"`
	Memory Memory `yaml:"memory" envPrefix:"MEMORY_"`

	Sandbox Sandbox `yaml:"sandbox" envPrefix:"SANDBOX_"`

	// CompileCommand starts a process that compiles a module: it calls
	// sandbox.CompileChild with the arguments that are added to it. Empty:
	// modules are compiled in the host's process, without limits on time and
	// memory.
	CompileCommand []string `yaml:"-"`

	// AdminKey presets the administrator's key and OwnerKey an owner key of
	// the tenant "default": 32 to 256 printable ASCII bytes. Empty = the keys
	// are generated into the data directory. They are never in a file.
	AdminKey string `yaml:"-" env:"ADMIN_KEY"`
	OwnerKey string `yaml:"-" env:"OWNER_KEY"`
}

// Model is what an alias stands for.
type Model struct {
	Provider string        `yaml:"provider"`          // a name in Providers, or "offline"
	Model    string        `yaml:"model,omitempty"`   // the provider's own name for it
	Timeout  time.Duration `yaml:"timeout,omitempty"` // of one call; 0 = the request's
}

// Provider is a model server.
type Provider struct {
	Type    string `yaml:"type"`             // openai: every server that speaks OpenAI's protocol
	BaseURL string `yaml:"baseURL"`          // up to and with the version, such as http://127.0.0.1:11434/v1
	APIKey  string `yaml:"apiKey,omitempty"` // or env:NAME, to be read from the environment
}

// Limits are the host's bounds. Each is named in the errors of those who reach
// it.
type Limits struct {
	RequestBytes          int64         `yaml:"requestBytes" env:"REQUEST_BYTES"`                   // of a JSON body
	ModuleBytes           int64         `yaml:"moduleBytes" env:"MODULE_BYTES"`                     // of an upload
	BodyBytes             int64         `yaml:"bodyBytes" env:"BODY_BYTES"`                         // of all bodies that are being handled; one tenant has half of it at the most, or room for its largest; all uploads have half of it, and a tenant's half of that, or room for one module
	Connections           int           `yaml:"connections" env:"CONNECTIONS"`                      // open at once, on each listener
	Uploads               int           `yaml:"uploads" env:"UPLOADS"`                              // that are admitted at once
	Admissions            int           `yaml:"admissions" env:"ADMISSIONS"`                        // of modules that go on or are remembered, of one tenant
	AdmissionsTotal       int           `yaml:"admissionsTotal" env:"ADMISSIONS_TOTAL"`             // of all tenants
	AdmissionTimeout      time.Duration `yaml:"admissionTimeout" env:"ADMISSION_TIMEOUT"`           // of one, with the time that it waits for others
	BodyTimeout           time.Duration `yaml:"bodyTimeout" env:"BODY_TIMEOUT"`                     // for a body to arrive
	Timeout               time.Duration `yaml:"timeout" env:"TIMEOUT"`                              // of one request
	CommitTimeout         time.Duration `yaml:"commitTimeout" env:"COMMIT_TIMEOUT"`                 // of one write of a turn
	DrainTimeout          time.Duration `yaml:"drainTimeout" env:"DRAIN_TIMEOUT"`                   // for running requests at shutdown
	Invocations           int           `yaml:"invocations" env:"INVOCATIONS"`                      // that run at once
	ConcurrentInvocations int           `yaml:"concurrentInvocations" env:"CONCURRENT_INVOCATIONS"` // that run at once, of one tenant
	TurnWaiters           int           `yaml:"turnWaiters" env:"TURN_WAITERS"`                     // that wait for one memory id
	Plugins               int           `yaml:"plugins" env:"PLUGINS"`                              // of one tenant
	Versions              int           `yaml:"versions" env:"VERSIONS"`                            // of one plugin
	AnswerBytes           int64         `yaml:"answerBytes" env:"ANSWER_BYTES"`                     // of one model answer
	LoadedVersions        int           `yaml:"loadedVersions" env:"LOADED_VERSIONS"`               // kept ready to be called
	LoadedBytes           int64         `yaml:"loadedBytes" env:"LOADED_BYTES"`                     // of memory that these take together; what is in use stays beyond it
	LoadedIdle            time.Duration `yaml:"loadedIdle" env:"LOADED_IDLE"`                       // without a call, after which a version is not kept ready
	IdleBytes             int64         `yaml:"idleBytes" env:"IDLE_BYTES"`                         // of memory that instances of all plugins keep between calls
	PluginLogLines        int           `yaml:"pluginLogLines" env:"PLUGIN_LOG_LINES"`              // kept of one plugin's log
	Sessions              int           `yaml:"sessions" env:"SESSIONS"`                            // open at once, of one tenant
	SessionIdleTTL        time.Duration `yaml:"sessionIdleTtl" env:"SESSION_IDLE_TTL"`              // of a session that asks for none
	SessionMaxTTL         time.Duration `yaml:"sessionMaxTtl" env:"SESSION_MAX_TTL"`                // of a session that asks for none
	SessionIdleTTLMax     time.Duration `yaml:"sessionIdleTtlMax" env:"SESSION_IDLE_TTL_MAX"`       // that a session may ask for
	SessionMaxTTLMax      time.Duration `yaml:"sessionMaxTtlMax" env:"SESSION_MAX_TTL_MAX"`         // that a session may ask for
	WebSockets            int           `yaml:"webSockets" env:"WEB_SOCKETS"`                       // open at once, of one tenant
	FrameBytes            int64         `yaml:"frameBytes" env:"FRAME_BYTES"`                       // of one WebSocket frame
	FramesPerSecond       int           `yaml:"framesPerSecond" env:"FRAMES_PER_SECOND"`            // of one WebSocket, with bursts of ten times as many
	SocketInvocations     int           `yaml:"socketInvocations" env:"SOCKET_INVOCATIONS"`         // that run at once on one WebSocket
	SocketIdle            time.Duration `yaml:"socketIdle" env:"SOCKET_IDLE"`                       // without a frame or a pong from the client
	EventBytes            int64         `yaml:"eventBytes" env:"EVENT_BYTES"`                       // of one invocation's events
	EventBytesTotal       int64         `yaml:"eventBytesTotal" env:"EVENT_BYTES_TOTAL"`            // of all events that are kept at once
	EventBuffers          int           `yaml:"eventBuffers" env:"EVENT_BUFFERS"`                   // invocations whose events are kept at once
	SocketTickets         int           `yaml:"socketTickets" env:"SOCKET_TICKETS"`                 // for WebSockets, unused, of one tenant
	TicketTTL             time.Duration `yaml:"ticketTtl" env:"TICKET_TTL"`                         // of a ticket for a WebSocket
	WriteTimeout          time.Duration `yaml:"writeTimeout" env:"WRITE_TIMEOUT"`                   // for a client to take in an answer, or one event of it
	UnsentBytes           int64         `yaml:"unsentBytes" env:"UNSENT_BYTES"`                     // of all answers that are being made or sent; one tenant has half of it at the most
	EventsKept            time.Duration `yaml:"eventsKept" env:"EVENTS_KEPT"`                       // of an invocation's events without a reader
	MessagesPerHistory    int64         `yaml:"messagesPerHistory" env:"MESSAGES_PER_HISTORY"`      // past it whole turns are deleted, the oldest first
	WindowBytes           int64         `yaml:"windowBytes" env:"WINDOW_BYTES"`                     // of a history, that are sent to the model at most, whatever the window
	ImportBytes           int64         `yaml:"importBytes" env:"IMPORT_BYTES"`                     // of one imported history
	EvictionRecords       int           `yaml:"evictionRecords" env:"EVICTION_RECORDS"`             // kept of one tenant; the oldest go first
	IdempotencyKeys       int           `yaml:"idempotencyKeys" env:"IDEMPOTENCY_KEYS"`             // of one tenant's requests that are remembered
	IdempotencyBytes      int64         `yaml:"idempotencyBytes" env:"IDEMPOTENCY_BYTES"`           // of answers to them, kept of one tenant; past it no other key is accepted
}

// Memory is what the host does with chat memory beyond its scopes.
type Memory struct {
	// CloseApplicationOnShutdown closes application scopes when the host
	// stops, however it stops, instead of keeping them open.
	CloseApplicationOnShutdown bool `yaml:"closeApplicationOnShutdown" env:"CLOSE_APPLICATION_ON_SHUTDOWN"`
	// HistoryIdleTTL is how long a history that an application scope keeps
	// lives without being used; 0 = until that scope closes.
	HistoryIdleTTL time.Duration `yaml:"historyIdleTtl" env:"HISTORY_IDLE_TTL"`
	// ScrubInterval is how often what was deleted is taken off the disk, which
	// happens at shutdown as well; 0 = only then and when asked.
	ScrubInterval time.Duration `yaml:"scrubInterval" env:"SCRUB_INTERVAL"`
	// EvictionsKept is how long records of evictions are kept at most.
	EvictionsKept time.Duration `yaml:"evictionsKept" env:"EVICTIONS_KEPT"`
}

// The values of Config.Store.
const (
	StoreSQLite = "sqlite"
	StoreMemory = "memory"
)

// TypeOpenAI is the Provider.Type of servers that speak OpenAI's protocol.
const TypeOpenAI = "openai"

// ProviderOffline is the name of the built-in provider that needs no network.
const ProviderOffline = "offline"

// DefaultConfig returns the configuration of a host that nobody configured.
func DefaultConfig() Config {
	return Config{
		Listen: "127.0.0.1:8080",
		Data:   "carrel-data",
		Store:  StoreSQLite,
		Limits: Limits{
			RequestBytes: 1 << 20, ModuleBytes: 20 << 20, BodyBytes: 256 << 20, Connections: 20_000, Uploads: 4, BodyTimeout: 30 * time.Second,
			Admissions: 200, AdmissionsTotal: 2000, AdmissionTimeout: 2 * time.Minute,
			Timeout: 2 * time.Minute, CommitTimeout: 10 * time.Second, DrainTimeout: 20 * time.Second,
			Invocations: 1024, ConcurrentInvocations: 256, TurnWaiters: 256,
			Plugins: 1000, Versions: 100, AnswerBytes: 4 << 20, LoadedVersions: 256, LoadedBytes: 1 << 30, LoadedIdle: 10 * time.Minute, IdleBytes: 512 << 20, PluginLogLines: 1000,
			Sessions: 10_000, SessionIdleTTL: 30 * time.Minute, SessionMaxTTL: 24 * time.Hour,
			SessionIdleTTLMax: 24 * time.Hour, SessionMaxTTLMax: 7 * 24 * time.Hour,
			WebSockets: 10_000, FrameBytes: 1 << 20, FramesPerSecond: 50, SocketInvocations: 64, SocketIdle: 5 * time.Minute,
			EventBytes: 16 << 20, EventBytesTotal: 256 << 20, EventsKept: 30 * time.Second, EventBuffers: 2048,
			SocketTickets: 1000, TicketTTL: 30 * time.Second, WriteTimeout: 30 * time.Second, UnsentBytes: 128 << 20,
			MessagesPerHistory: 10_000, WindowBytes: 8 << 20, ImportBytes: 64 << 20, EvictionRecords: store.DefaultEvictionRecords,
			IdempotencyKeys: 100_000, IdempotencyBytes: 256 << 20,
		},
		Memory:  Memory{ScrubInterval: 24 * time.Hour, EvictionsKept: 7 * 24 * time.Hour},
		Sandbox: defaultSandbox(),
	}
}

var providerName = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,62}$`)

// Validate reports every fault of the configuration at once, each with the
// path of the setting.
func (c Config) Validate() error {
	var errs []error
	fault := func(path, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: %s", path, fmt.Sprintf(format, args...)))
	}
	if _, _, err := net.SplitHostPort(c.Listen); err != nil {
		fault("listen", "%q is not address:port", c.Listen)
	}
	if c.AdminListen != "" {
		if _, _, err := net.SplitHostPort(c.AdminListen); err != nil {
			fault("adminListen", "%q is not address:port", c.AdminListen)
		}
	}
	if c.Data == "" {
		fault("data", "it must name a directory")
	}
	if c.Store != StoreSQLite && c.Store != StoreMemory {
		fault("store", "it is %q and must be sqlite or memory; others are not supported by this host yet", redact(c.Store))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Providers)) {
		errs = append(errs, c.Providers[name].validate("providers."+name, name)...)
	}
	for _, alias := range slices.Sorted(maps.Keys(c.Models)) {
		errs = append(errs, c.Models[alias].validate("models."+alias, alias, c.Providers)...)
	}
	if len(c.Models) > 0 {
		if _, ok := c.Models["default"]; !ok {
			fault("models.default", "it is missing; plugins that name no model use it")
		}
	}
	for _, o := range c.AllowedOrigins {
		if u, err := url.Parse(o); err != nil || u.Host == "" || o != u.Scheme+"://"+u.Host {
			fault("allowedOrigins", "%q is not an origin, such as https://app.example", o)
		}
	}
	if c.Limits.BodyBytes < c.Limits.ModuleBytes {
		fault("limits.bodyBytes", "it must be at least limits.moduleBytes (%d), or no upload fits", c.Limits.ModuleBytes)
	}
	if c.Limits.BodyBytes < c.Limits.ImportBytes {
		fault("limits.bodyBytes", "it must be at least limits.importBytes (%d), or no import fits", c.Limits.ImportBytes)
	}
	if c.Limits.EventBytesTotal < c.Limits.EventBytes {
		fault("limits.eventBytesTotal", "it must be at least limits.eventBytes (%d), or that cannot be had", c.Limits.EventBytes)
	}
	if c.AdminKey != "" && c.AdminKey == c.OwnerKey {
		fault("CARREL_ADMIN_KEY", "it must differ from CARREL_OWNER_KEY: the administrator's key is good for nothing else")
	}
	errs = append(errs, c.Memory.validate(c.Limits)...)
	errs = append(errs, c.Sandbox.validate()...)
	limits := c.Limits.all()
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		if limits[name] <= 0 {
			fault("limits."+name, "it must be positive")
		}
	}
	for _, preset := range []struct{ variable, key string }{
		{"CARREL_ADMIN_KEY", c.AdminKey}, {"CARREL_OWNER_KEY", c.OwnerKey},
	} {
		if preset.key != "" && tenant.CheckSecret(preset.key) != nil {
			fault(preset.variable, "a key is %d to %d printable ASCII characters without spaces", tenant.MinSecretBytes, tenant.MaxSecretBytes)
		}
	}
	return errors.Join(errs...)
}

func (l Limits) all() map[string]int64 {
	return map[string]int64{
		"requestBytes": l.RequestBytes, "moduleBytes": l.ModuleBytes, "bodyTimeout": int64(l.BodyTimeout),
		"admissions": int64(l.Admissions), "admissionsTotal": int64(l.AdmissionsTotal), "admissionTimeout": int64(l.AdmissionTimeout),
		"uploads": int64(l.Uploads), "bodyBytes": l.BodyBytes, "connections": int64(l.Connections),
		"timeout": int64(l.Timeout), "commitTimeout": int64(l.CommitTimeout), "drainTimeout": int64(l.DrainTimeout),
		"invocations": int64(l.Invocations), "concurrentInvocations": int64(l.ConcurrentInvocations),
		"turnWaiters": int64(l.TurnWaiters), "plugins": int64(l.Plugins), "versions": int64(l.Versions),
		"answerBytes": l.AnswerBytes, "loadedVersions": int64(l.LoadedVersions),
		"loadedBytes": l.LoadedBytes, "loadedIdle": int64(l.LoadedIdle), "idleBytes": l.IdleBytes, "pluginLogLines": int64(l.PluginLogLines),
		"sessions": int64(l.Sessions), "sessionIdleTtl": int64(l.SessionIdleTTL), "sessionMaxTtl": int64(l.SessionMaxTTL),
		"sessionIdleTtlMax": int64(l.SessionIdleTTLMax), "sessionMaxTtlMax": int64(l.SessionMaxTTLMax),
		"webSockets": int64(l.WebSockets), "frameBytes": l.FrameBytes, "framesPerSecond": int64(l.FramesPerSecond),
		"socketInvocations": int64(l.SocketInvocations), "socketIdle": int64(l.SocketIdle),
		"eventBytes": l.EventBytes, "eventBytesTotal": l.EventBytesTotal, "eventsKept": int64(l.EventsKept), "eventBuffers": int64(l.EventBuffers),
		"messagesPerHistory": l.MessagesPerHistory, "windowBytes": l.WindowBytes, "importBytes": l.ImportBytes,
		"evictionRecords": int64(l.EvictionRecords), "idempotencyKeys": int64(l.IdempotencyKeys), "idempotencyBytes": l.IdempotencyBytes,
		"socketTickets": int64(l.SocketTickets), "ticketTtl": int64(l.TicketTTL), "writeTimeout": int64(l.WriteTimeout), "unsentBytes": l.UnsentBytes,
	}
}

func (m Memory) validate(l Limits) []error {
	var errs []error
	if m.HistoryIdleTTL < 0 || m.HistoryIdleTTL > 0 && m.HistoryIdleTTL <= l.Timeout {
		errs = append(errs, fmt.Errorf("memory.historyIdleTtl: it must be 0 (never) or more than limits.timeout (%v): a history must not expire under a turn", l.Timeout))
	}
	if m.ScrubInterval < 0 || m.ScrubInterval > 0 && m.ScrubInterval < minScrubInterval {
		errs = append(errs, fmt.Errorf("memory.scrubInterval: it must be 0 (at shutdown only) or at least %v", minScrubInterval))
	}
	if m.EvictionsKept <= 0 {
		errs = append(errs, errors.New("memory.evictionsKept: it must be positive"))
	}
	return errs
}

// minScrubInterval keeps a host from doing little but scrubbing.
const minScrubInterval = time.Minute

func (p Provider) validate(path, name string) []error {
	var errs []error
	if !providerName.MatchString(name) || name == ProviderOffline {
		errs = append(errs, fmt.Errorf("%s: a provider's name is a small letter, then small letters, digits, _ or -, and not %q", path, ProviderOffline))
	}
	if p.Type != TypeOpenAI {
		errs = append(errs, fmt.Errorf("%s.type: it is %q and must be openai; others are not supported by this host yet", path, p.Type))
	}
	u, err := url.Parse(p.BaseURL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		errs = append(errs, fmt.Errorf("%s.baseURL: it must be an http or https URL, such as http://127.0.0.1:11434/v1", path))
	}
	return errs
}

func (m Model) validate(path, alias string, providers map[string]Provider) []error {
	var errs []error
	if !providerName.MatchString(alias) {
		errs = append(errs, fmt.Errorf("%s: an alias is a small letter, then small letters, digits, _ or -", path))
	}
	if m.Provider != ProviderOffline {
		if _, ok := providers[m.Provider]; !ok {
			errs = append(errs, fmt.Errorf("%s.provider: there is no provider %q under `providers`", path, m.Provider))
		}
		if m.Model == "" {
			errs = append(errs, fmt.Errorf("%s.model: it is missing", path))
		}
	}
	if m.Timeout < 0 {
		errs = append(errs, fmt.Errorf("%s.timeout: it must not be negative", path))
	}
	return errs
}

// redact hides what may be a password in a store's address.
func redact(s string) string {
	if scheme, _, ok := strings.Cut(s, "://"); ok {
		return scheme + "://…"
	}
	return s
}
