// Package testenv runs a real host for tests, in their process (Env) or in one
// of its own (Program), with tenants as actors and a recording model server
// behind it.
package testenv

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"testing"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/host"
	"github.com/carrelhost/carrel/host/model/modeltest"
)

// AdminKey is the administrator's key of every test host.
const AdminKey = "admin-key-of-a-test-host-0123456789"

// Env is a host, in this process, on a free port of the loopback interface.
type Env struct {
	t     testing.TB
	cfg   host.Config
	Model *modeltest.Server // what the alias "default" calls

	host  *host.Host
	drain func() // begins to stop the host
	stop  func() // drains and closes the host; safe to call twice
}

// Config returns the configuration of a test host, to be changed and handed to
// New. The store is SQLite.
func Config() host.Config {
	c := host.DefaultConfig()
	c.Listen = "127.0.0.1:0"
	c.AdminKey = AdminKey
	return c
}

// New starts a host, with a data directory and a recording model server of its
// own, that the test's cleanup stops.
func New(t testing.TB, cfg host.Config) *Env {
	t.Helper()
	e := &Env{t: t, cfg: cfg, Model: modeltest.NewServer(t)}
	e.cfg.Data = t.TempDir()
	e.cfg.Providers = map[string]host.Provider{"fake": {Type: host.TypeOpenAI, BaseURL: e.Model.BaseURL, APIKey: modeltest.Key}}
	e.cfg.Models = map[string]host.Model{"default": {Provider: "fake", Model: "fake-model"}}
	e.start()
	t.Cleanup(func() { e.stop() })
	return e
}

// EachStore runs a test once per store, with the configuration of a host on
// it.
func EachStore(t *testing.T, test func(t *testing.T, cfg host.Config)) {
	t.Helper()
	for _, store := range []string{host.StoreSQLite, host.StoreMemory} {
		t.Run(store, func(t *testing.T) {
			cfg := Config()
			cfg.Store = store
			test(t, cfg)
		})
	}
}

func (e *Env) start() {
	e.t.Helper()
	h, err := host.New(context.Background(), e.cfg, client.HostVersion{Version: "test"}, slog.New(slog.DiscardHandler))
	if err != nil {
		e.t.Fatalf("start host: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- h.Run(ctx) }()
	e.host, e.drain = h, cancel
	e.stop = sync.OnceFunc(func() {
		cancel()
		if err := errors.Join(<-ended, h.Close()); err != nil {
			e.t.Errorf("stop host: %v", err)
		}
	})
}

// Drain tells the host to stop, as a signal would, and does not wait for it.
func (e *Env) Drain() { e.drain() }

// Stop drains the host and ends it.
func (e *Env) Stop() { e.stop() }

// Restart stops the host and starts it anew on the same data.
func (e *Env) Restart() {
	e.t.Helper()
	e.stop()
	e.start()
}

// Addr returns the host's base URL.
func (e *Env) Addr() string { return e.host.Info().Address }

// Stats returns the host's numbers.
func (e *Env) Stats(ctx context.Context) (host.Stats, error) { return e.host.Stats(ctx) }

// Data returns the data directory.
func (e *Env) Data() string { return e.cfg.Data }

// Admin returns a client with the administrator's key.
func (e *Env) Admin() *client.Client {
	return &client.Client{Base: e.host.Info().AdminAddress, Key: AdminKey}
}

// Tenant makes a tenant and returns its owner as an actor.
func (e *Env) Tenant(name string) *Actor {
	e.t.Helper()
	if _, err := e.Admin().CreateTenant(e.t.Context(), name); err != nil {
		e.t.Fatalf("create tenant %s: %v", name, err)
	}
	return e.Key(name, client.NewKey{Role: "owner"})
}

// Key makes an API key of a tenant and returns its holder as an actor.
func (e *Env) Key(tenant string, k client.NewKey) *Actor {
	e.t.Helper()
	made, err := e.Admin().CreateKey(e.t.Context(), tenant, k)
	if err != nil {
		e.t.Fatalf("create key of %s: %v", tenant, err)
	}
	return e.actor(tenant, made.Secret)
}

// Anyone returns an actor with a key that the host may not know, or without
// one ("").
func (e *Env) Anyone(key string) *Actor { return e.actor("", key) }

func (e *Env) actor(tenant, key string) *Actor {
	a := Remote(e.t, e.Addr, key, e.Model)
	a.Tenant = tenant
	return a
}

// Remote returns an actor with a key of a host that something else runs, on
// the model server behind that host. addr returns the host's base URL.
func Remote(t testing.TB, addr func() string, key string, m *modeltest.Server) *Actor {
	return &Actor{addr: addr, model: m, t: t, key: key}
}

// wantNoCode is the code of a call that should succeed.
const wantNoCode = abi.OK

// noRedirects is how every actor talks: what the host says is what counts.
var noRedirects = &http.Client{
	// As many clients as a test may have, each with a connection that stays.
	Transport:     &http.Transport{MaxIdleConns: 1000, MaxIdleConnsPerHost: 128},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}
