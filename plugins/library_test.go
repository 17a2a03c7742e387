package plugins_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox"
	"github.com/carrelhost/carrel/host/sandbox/module"
	"github.com/carrelhost/carrel/host/scope"
	"github.com/carrelhost/carrel/plugins"
	"github.com/carrelhost/carrel/plugins/manifest"
	"github.com/carrelhost/carrel/store"
	"github.com/carrelhost/carrel/store/memstore"
)

const (
	acme  carrel.TenantID = "acme"
	other carrel.TenantID = "other"
)

var active carrel.VersionRef

// chatModule is the module of a plugin with one service of one method, the
// same bytes for the same arguments.
func chatModule(name, version string) []byte {
	return module.Prompt([]byte(fmt.Sprintf(
		`{"abi":"carrel/v1","name":%q,"version":%q,"services":[{"name":"S","methods":[{"name":"chat","kind":"chat"%s}]}]}`,
		name, version, msgParams)))
}

// library is a catalog over a memory store.
type library struct {
	*plugins.Catalog
	t      *testing.T
	store  *memstore.Store
	scopes *scopes
}

// scopes opens application scopes with numbered ids, and records which closed.
type scopes struct {
	mu     sync.Mutex // guards what follows
	opened int
	closed []carrel.ScopeID
}

func (s *scopes) NewApplication(id carrel.TenantID, p carrel.PluginName) store.ScopeInstance {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opened++
	return store.ScopeInstance{ID: carrel.ScopeID(fmt.Sprintf("app_%d", s.opened)), Tenant: id, Plugin: p, Node: "one"}
}

func (s *scopes) CloseApplication(_ context.Context, id carrel.ScopeID, _ carrel.EvictionReason) scope.Closed {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = append(s.closed, id)
	return scope.Closed{}
}

// last returns the scope that closed last.
func (s *scopes) last() carrel.ScopeID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed[len(s.closed)-1]
}

func newLibrary(t *testing.T, change func(*plugins.Config)) *library {
	t.Helper()
	s := memstore.New(memstore.Config{})
	for _, id := range []carrel.TenantID{acme, other} {
		if err := s.CreateTenant(t.Context(), store.Tenant{ID: id}); err != nil {
			t.Fatal(err)
		}
	}
	instances := &scopes{}
	box := newBox(t)
	cfg := plugins.Config{
		Store: s, Sandbox: box, Admit: plugins.NewAdmit(manifest.Known{}, box),
		Scopes: instances,
		Limits: store.PluginLimits{Plugins: 10, Versions: 10},
		Now:    func() time.Time { return time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC) },
	}
	if change != nil {
		change(&cfg)
	}
	c, err := plugins.NewCatalog(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return &library{c, t, s, instances}
}

// newBox returns a sandbox that the test closes.
func newBox(t *testing.T) *sandbox.Sandbox {
	t.Helper()
	return newBoxOf(t, sandbox.Config{})
}

func newBoxOf(t *testing.T, cfg sandbox.Config) *sandbox.Sandbox {
	t.Helper()
	box, err := sandbox.New(context.WithoutCancel(t.Context()), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := box.Close(); err != nil {
			t.Error(err)
		}
	})
	return box
}

// upload uploads version by version and returns the last one's outcome.
func (l *library) upload(activate bool, versions ...string) plugins.Uploaded {
	l.t.Helper()
	var out plugins.Uploaded
	for _, v := range versions {
		var err error
		out, err = l.Upload(l.t.Context(), plugins.Upload{Tenant: acme, Module: chatModule("p", v), Activate: activate})
		if err != nil {
			l.t.Fatal(err)
		}
	}
	return out
}

// wantRunning wants a version to run by its manifest's version text; "" wants
// not_found.
func (l *library) wantRunning(ref carrel.VersionRef, version string) plugins.Running {
	l.t.Helper()
	r, err := l.Running(l.t.Context(), acme, "p", ref)
	if version == "" {
		wantCode(l.t, err, abi.NotFound)
		return r
	}
	if err != nil {
		l.t.Fatal(err)
	}
	defer r.Release()
	if r.Manifest.Version != version {
		l.t.Fatalf("version %s runs, want %s", r.Manifest.Version, version)
	}
	return r
}

func wantCode(t *testing.T, err error, want abi.Code) {
	t.Helper()
	if carrel.CodeOf(err) != want {
		t.Fatalf("got %v, want %v", err, want)
	}
}

func n(i int) carrel.VersionRef { return carrel.VersionRef{N: i} }

func digest(version string) carrel.VersionRef {
	return carrel.VersionRef{Digest: carrel.DigestOf(chatModule("p", version))}
}
