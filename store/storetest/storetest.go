// Package storetest is the contract of package store in executable form. Every
// implementation passes Run; what only some can promise, such as durability,
// is tested where they are.
package storetest

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/store"
)

// Run tests that the stores that open returns keep the contract. open is
// called once for every subtest and returns an empty store, which Run closes.
func Run(t *testing.T, open func(t *testing.T) store.Store) {
	for _, topic := range []struct {
		name  string
		cases []testCase
	}{
		{"tenants", tenantCases},
		{"plugins", pluginCases},
		{"activation", activationCases},
		{"histories", historyCases},
		{"turns", turnCases},
		{"commits", commitCases},
		{"views", viewCases},
		{"expiry", expiryCases},
		{"counts", countCases},
		{"scopes", scopeCases},
		{"evictions", evictionCases},
		{"records", recordCases},
		{"erasures", erasureCases},
		{"claims", claimCases},
		{"scrubs", scrubCases},
		{"sessions", sessionCases},
		{"closings", closingCases},
		{"grants", grantCases},
		{"concurrency", concurrencyCases},
		{"life", lifeCases},
	} {
		t.Run(topic.name, func(t *testing.T) {
			for _, c := range topic.cases {
				t.Run(c.name, func(t *testing.T) {
					s := open(t)
					t.Cleanup(func() { noError(t, s.Close()) })
					c.run(t, s)
				})
			}
		})
	}
}

type testCase struct {
	name string
	run  func(t *testing.T, s store.Store)
}

// noon has a zone and nanoseconds, neither of which a store keeps;
// storedNoon is what comes back.
var (
	noon       = time.Date(2026, 3, 4, 12, 0, 0, 123456789, time.FixedZone("", 3600))
	storedNoon = time.Date(2026, 3, 4, 11, 0, 0, 123456000, time.UTC)
)

const (
	acme   carrel.TenantID   = "acme"
	globex carrel.TenantID   = "globex"
	chat   carrel.PluginName = "chat"
	node                     = "run-1"
)

var roomy = store.PluginLimits{Plugins: 100, Versions: 100}

func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("unexpected error: %v", err)
	}
}

func wantCode(t *testing.T, err error, want abi.Code) {
	t.Helper()
	if got := carrel.CodeOf(err); got != want {
		t.Errorf("code is %v, want %v (error: %v)", got, want, err)
	}
}

func wantIs(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("error is %v, want %v", err, want)
	}
}

func wantSame(t *testing.T, what string, got, want any) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s differs (-want +got):\n%s", what, d)
	}
}

// must returns v, or ends the test if err is not nil.
func must[T any](v T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		noError(t, err)
		return v
	}
}

func keyOf(t carrel.TenantID, id carrel.MemoryID) carrel.MemoryKey {
	return carrel.MemoryKey{Tenant: t, Namespace: "chat", Kind: carrel.KindExplicit, ID: id}
}

// handleOf stands in for the host's HMAC: another handle for every key.
func handleOf(k carrel.MemoryKey) carrel.Handle {
	hash := sha256.New()
	for _, part := range []string{string(k.Tenant), string(k.Namespace), string(k.Kind), string(k.Owner), string(k.ID)} {
		_ = binary.Write(hash, binary.BigEndian, uint64(len(part))) // a hash takes everything
		hash.Write([]byte(part))
	}
	return carrel.Handle(hash.Sum(nil))
}

func requestScope(t carrel.TenantID, id carrel.ScopeID) store.ScopeInstance {
	return store.ScopeInstance{ID: id, Tenant: t, Scope: carrel.ScopeRequest, Node: node, OpenedAt: noon}
}

func applicationScope(t carrel.TenantID, p carrel.PluginName, id carrel.ScopeID) store.ScopeInstance {
	return store.ScopeInstance{ID: id, Tenant: t, Scope: carrel.ScopeApplication, Plugin: p, Node: node, OpenedAt: noon}
}

func touchOf(si store.ScopeInstance, k carrel.MemoryKey) store.Touch {
	return store.Touch{
		Scope:  si,
		Key:    k,
		Handle: handleOf(k),
		Plugin: chat,
		By:     store.Toucher{Key: "key-1", Subject: "ada"},
		At:     noon,
	}
}

func touch(t *testing.T, s store.Store, si store.ScopeInstance, k carrel.MemoryKey) int64 {
	t.Helper()
	return must(s.Touch(context.Background(), touchOf(si, k)))(t).Generation
}

func turnOf(texts ...string) []carrel.Message {
	var turn []carrel.Message
	for i, text := range texts {
		role := carrel.RoleUser
		if i%2 == 1 {
			role = carrel.RoleAssistant
		}
		turn = append(turn, carrel.Message{Role: role, Content: text})
	}
	return turn
}

func commitOf(si store.ScopeInstance, k carrel.MemoryKey, generation int64, texts ...string) store.Commit {
	c := store.Commit{Touch: touchOf(si, k), Generation: generation, At: noon}
	if len(texts) > 0 {
		c.Turns = []store.NewTurn{{Messages: turnOf(texts...)}}
	}
	return c
}

func commit(ctx context.Context, s store.Store, c store.Commit) error {
	_, err := s.Commit(ctx, c)
	return err
}

// say commits a turn to whatever generation k has.
func say(t *testing.T, s store.Store, si store.ScopeInstance, k carrel.MemoryKey, texts ...string) {
	t.Helper()
	v := must(s.View(context.Background(), k, store.ViewLimit{Messages: 0}))(t)
	noError(t, commit(context.Background(), s, commitOf(si, k, v.Generation, texts...)))
}

// contents returns every message of k, the system message too; nil if there
// is no history.
func contents(t *testing.T, s store.Store, k carrel.MemoryKey) []string {
	t.Helper()
	v := must(s.View(context.Background(), k, store.ViewLimit{Messages: 0}))(t)
	if v.Generation == 0 {
		return nil
	}
	list := []string{}
	for _, m := range must(s.Messages(context.Background(), k, v.Generation, -1, store.MessageLimit{Messages: 1_000_000}))(t).Messages {
		list = append(list, m.Content)
	}
	return list
}

func wantContents(t *testing.T, s store.Store, k carrel.MemoryKey, want ...string) {
	t.Helper()
	if want == nil {
		want = []string{} // an empty history, unlike none
	}
	wantSame(t, fmt.Sprintf("history %+v", k), contents(t, s, k), want)
}

func wantGone(t *testing.T, s store.Store, k carrel.MemoryKey) {
	t.Helper()
	if got := contents(t, s, k); got != nil {
		t.Errorf("history %+v is there, with %d messages", k, len(got))
	}
	_, err := s.History(context.Background(), k.Tenant, handleOf(k), nil, store.Cutoff{})
	wantCode(t, err, abi.NotFound)
}

func history(t *testing.T, s store.Store, k carrel.MemoryKey) store.History {
	t.Helper()
	return must(s.History(context.Background(), k.Tenant, handleOf(k), nil, store.Cutoff{}))(t)
}

func createTenants(t *testing.T, s store.Store, ids ...carrel.TenantID) {
	t.Helper()
	for _, id := range ids {
		noError(t, s.CreateTenant(context.Background(), store.Tenant{ID: id, CreatedAt: noon}))
	}
}

func versionOf(t carrel.TenantID, p carrel.PluginName, module string) store.Version {
	return store.Version{
		Tenant:    t,
		Plugin:    p,
		Digest:    carrel.DigestOf([]byte(module)),
		Manifest:  []byte(`{"name":"` + module + `"}`),
		Report:    []byte(`{"ok":true}`),
		CreatedAt: noon,
	}
}

func put(t *testing.T, s store.Store, tenant carrel.TenantID, p carrel.PluginName, module string) store.Version {
	t.Helper()
	v, created, err := s.PutVersion(context.Background(), versionOf(tenant, p, module), []byte(module), roomy)
	noError(t, err)
	if !created {
		t.Fatalf("%s was there already", module)
	}
	return v
}

// install uploads a module and activates it with an application scope.
func install(t *testing.T, s store.Store, tenant carrel.TenantID, p carrel.PluginName, id carrel.ScopeID) store.ScopeInstance {
	t.Helper()
	v := put(t, s, tenant, p, "module of "+string(id))
	open := applicationScope(tenant, p, id)
	must(s.Activate(context.Background(), tenant, p, v.Digest, open))(t)
	return open
}

func closeScope(t *testing.T, s store.Store, id carrel.ScopeID) []carrel.Eviction {
	t.Helper()
	return must(s.CloseScope(context.Background(), id, carrel.ReasonScopeClosed, noon))(t)
}

// walk collects pages of at most limit until one is empty, and fails on a
// page that is too long.
func walk[T any](t *testing.T, limit int, page func(last *T) ([]T, error)) []T {
	t.Helper()
	var all []T
	var last *T
	for {
		list, err := page(last)
		noError(t, err)
		if len(list) == 0 {
			return all
		}
		if len(list) > limit {
			t.Fatalf("a page of at most %d has %d", limit, len(list))
		}
		all = append(all, list...)
		last = &all[len(all)-1]
	}
}

// orElse returns what f makes of *v, or none if v is nil.
func orElse[T, R any](v *T, none R, f func(T) R) R {
	if v == nil {
		return none
	}
	return f(*v)
}
