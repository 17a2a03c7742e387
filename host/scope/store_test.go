package scope_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/scope"
	"github.com/carrelhost/carrel/store"
	"github.com/carrelhost/carrel/store/memstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	acme carrel.TenantID   = "acme"
	chat carrel.PluginName = "chat"
)

var (
	errDisk = errors.New("the disk is on fire")
	noon    = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	someone = store.Toucher{Key: "key_1", Subject: "ann"}
)

// disk is a memory store whose writes a test watches and makes fail.
type disk struct {
	*memstore.Store

	mu     sync.Mutex // guards what follows
	writes []string   // "op subject", in the order in which they began
	fail   func(n int, write string) (failure error, done bool)
	before func(ctx context.Context, write string) // runs unlocked
}

func newDisk(t *testing.T) *disk {
	t.Helper()
	d := &disk{Store: memstore.New(memstore.Config{})}
	if err := d.CreateTenant(t.Context(), store.Tenant{ID: acme, CreatedAt: noon}); err != nil {
		t.Fatal(err)
	}
	return d
}

// failNth makes the n-th write from now fail. With done it takes place all the
// same, as one does whose acknowledgement was lost.
func (d *disk) failNth(n int, done bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n += len(d.writes)
	d.fail = func(i int, _ string) (error, bool) {
		if i == n {
			return errDisk, done
		}
		return nil, true
	}
}

func (d *disk) failAll(broken bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fail = nil
	if broken {
		d.fail = func(int, string) (error, bool) { return errDisk, false }
	}
}

func (d *disk) watch(before func(ctx context.Context, write string)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.before = before
}

func (d *disk) written() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]string(nil), d.writes...)
}

func (d *disk) write(ctx context.Context, what string, do func() error) error {
	d.mu.Lock()
	d.writes = append(d.writes, what)
	failure, done := error(nil), true
	if d.fail != nil {
		failure, done = d.fail(len(d.writes), what)
	}
	before := d.before
	d.mu.Unlock()
	if before != nil {
		before(ctx, what)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if done {
		if err := do(); err != nil {
			return err
		}
	}
	return failure
}

func (d *disk) Touch(ctx context.Context, t store.Touch) (done store.Touched, err error) {
	err = d.write(ctx, "touch "+string(t.Key.ID), func() (err error) {
		done, err = d.Store.Touch(ctx, t)
		return err
	})
	if err != nil {
		return store.Touched{}, err
	}
	return done, nil
}

func (d *disk) Commit(ctx context.Context, c store.Commit) (done store.Committed, err error) {
	err = d.write(ctx, "commit "+string(c.Touch.Key.ID), func() error {
		done, err = d.Store.Commit(ctx, c)
		return err
	})
	return done, err
}

func (d *disk) CloseScope(ctx context.Context, id carrel.ScopeID, why carrel.EvictionReason, at time.Time) (evicted []carrel.Eviction, err error) {
	err = d.write(ctx, fmt.Sprintf("close %s %s", id, why), func() (err error) {
		evicted, err = d.Store.CloseScope(ctx, id, why, at)
		return err
	})
	if err != nil {
		return nil, err
	}
	return evicted, nil
}

func (d *disk) OpenApplication(ctx context.Context, s store.ScopeInstance) error {
	return d.write(ctx, "open "+string(s.Plugin), func() error { return d.Store.OpenApplication(ctx, s) })
}

// registry returns a registry of a process run. Its ids are its node's name
// and a number.
func registry(t *testing.T, d *disk, node string, change func(*scope.Config)) *scope.Registry {
	t.Helper()
	var mu sync.Mutex
	ids := 0
	cfg := scope.Config{
		Store: d, Node: node, Secret: [32]byte{1}, Log: slog.New(slog.DiscardHandler),
		Now: func() time.Time { return noon },
		NewID: func() string {
			mu.Lock()
			defer mu.Unlock()
			ids++
			return fmt.Sprintf("%s-%d", node, ids)
		},
	}
	if change != nil {
		change(&cfg)
	}
	r, err := scope.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// activate makes a version of a plugin active and returns its application
// scope.
func activate(t *testing.T, d *disk, r *scope.Registry, p carrel.PluginName) store.ScopeInstance {
	t.Helper()
	v := store.Version{Tenant: acme, Plugin: p, Digest: sha256.Sum256([]byte(p)), CreatedAt: noon}
	if _, _, err := d.PutVersion(t.Context(), v, []byte(p), store.PluginLimits{Plugins: 10_000, Versions: 10}); err != nil {
		t.Fatal(err)
	}
	now, err := d.Activate(t.Context(), acme, p, v.Digest, r.NewApplication(acme, p))
	if err != nil {
		t.Fatal(err)
	}
	return store.ScopeInstance{ID: now.Scope, Tenant: acme, Scope: carrel.ScopeApplication, Plugin: p}
}

func key(id carrel.MemoryID) carrel.MemoryKey {
	return carrel.MemoryKey{Tenant: acme, Namespace: carrel.Namespace(chat), Kind: carrel.KindExplicit, ID: id}
}

// request is the use of an explicit id by a request-scoped service.
func request(id carrel.MemoryID) scope.Use {
	return scope.Use{Key: key(id), Plugin: chat, Service: carrel.ScopeRequest, By: someone}
}

// application is the use of an explicit id by an application-scoped service.
func application(app store.ScopeInstance, id carrel.MemoryID) scope.Use {
	return scope.Use{Key: key(id), Plugin: chat, Service: carrel.ScopeApplication, Application: app, By: someone}
}

func turn(n int) []carrel.Message {
	return []carrel.Message{
		{Role: carrel.RoleUser, Content: fmt.Sprintf("U%d", n)}, {Role: carrel.RoleAssistant, Content: fmt.Sprintf("A%d", n)},
	}
}

// chatOnce runs one turn: touch, read, commit.
func chatOnce(t *testing.T, d *disk, q *scope.Request, u scope.Use, n int) {
	t.Helper()
	if err := q.Touch(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	v, err := d.View(t.Context(), u.Key, store.ViewLimit{Messages: 100})
	if err != nil {
		t.Fatal(err)
	}
	if err := commitTo(t.Context(), q, u, v.Generation, n); err != nil {
		t.Fatal(err)
	}
}

// histories returns the ids of all histories with their numbers of messages.
func histories(t *testing.T, d *disk) map[carrel.MemoryID]int64 {
	t.Helper()
	list, err := d.ListHistories(t.Context(), store.HistoryFilter{Tenant: acme, Limit: 100_000})
	if err != nil {
		t.Fatal(err)
	}
	out := map[carrel.MemoryID]int64{}
	for _, h := range list {
		out[h.Key.ID] = h.Messages
	}
	return out
}

// open returns how many scope instances of a kind are open.
func open(t *testing.T, d *disk, kind carrel.Scope) int {
	t.Helper()
	list, err := d.ListScopes(t.Context(), kind, "", 100_000)
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

func wantCode(t *testing.T, err error, want abi.Code) {
	t.Helper()
	if carrel.CodeOf(err) != want {
		t.Fatalf("got %v, want %v", err, want)
	}
}

func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// commitTo commits turn n to a generation.
func commitTo(ctx context.Context, q *scope.Request, u scope.Use, generation int64, n int) error {
	_, err := q.Commit(ctx, u, store.Commit{Generation: generation, Turns: []store.NewTurn{{Messages: turn(n)}}})
	return err
}
