package invoke_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/idempotency"
	"github.com/carrelhost/carrel/host/invoke"
	"github.com/carrelhost/carrel/host/model"
	"github.com/carrelhost/carrel/host/sandbox"
	"github.com/carrelhost/carrel/host/scope"
	"github.com/carrelhost/carrel/plugins"
	"github.com/carrelhost/carrel/plugins/manifest"
	"github.com/carrelhost/carrel/plugins/pack"
	"github.com/carrelhost/carrel/store"
	"github.com/carrelhost/carrel/store/memstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	acme  carrel.TenantID = "acme"
	other carrel.TenantID = "other"
)

// source has an application-scoped service with a required id, one with
// another system message, and request-scoped ones.
const source = `---
name: p
services:
  - name: App
    scope: application
    methods: [{name: chat, memoryId: id}]
  - name: Mean
    scope: application
    methods: [{name: chat, memoryId: id}, {name: short, memoryId: id, window: {max: 4}}]
  - name: Req
    methods: [{name: chat, memoryId: id, params: {id?: string, msg: string, n?: integer}}, {name: topic, userMessage: "{{topic}}"}]
---
# App
You are nice

# Mean
You are mean
`

// conversation takes its memory ids from a header.
const conversation = `---
name: conv
defaultMemoryId: {from: "header:X-Conversation"}
services:
  - name: App
    scope: application
---
`

// provider is a model server whose answers a test gives, one by one.
type provider struct {
	calls chan *modelCall
	// deaf makes it answer although the caller went away.
	deaf bool
}

// modelCall is a call that waits for its answer.
type modelCall struct {
	model.Request
	reply chan func() (model.Response, error)
}

func (p *provider) Generate(ctx context.Context, r model.Request, _ func(string) error) (model.Response, error) {
	c := &modelCall{Request: r, reply: make(chan func() (model.Response, error), 1)}
	gone := ctx.Done()
	if p.deaf {
		gone = nil
	}
	select {
	case p.calls <- c:
	case <-gone:
		return model.Response{}, fmt.Errorf("scripted: %w", ctx.Err())
	}
	select {
	case answer := <-c.reply:
		return answer()
	case <-gone:
		return model.Response{}, fmt.Errorf("scripted: %w", ctx.Err())
	}
}

func (c *modelCall) say(text string) {
	c.reply <- func() (model.Response, error) {
		return model.Response{
			Text: text, FinishReason: model.FinishStop, Model: "scripted-1", Usage: carrel.Usage{InputTokens: 3, OutputTokens: 4},
		}, nil
	}
}

func (c *modelCall) fail(err error) {
	c.reply <- func() (model.Response, error) { return model.Response{}, err }
}

// sent returns what the model received, such as "system:S user:U".
func (c *modelCall) sent() string {
	var out []string
	for _, m := range c.Messages {
		out = append(out, string(m.Role)+":"+m.Content)
	}
	return strings.Join(out, " ")
}

// asked returns the newest user message.
func (c *modelCall) asked() string { return c.Messages[len(c.Messages)-1].Content }

// disk is a memory store that a test watches.
type disk struct {
	*memstore.Store

	mu        sync.Mutex                      // guards what follows
	commit    func(ctx context.Context) error // before a commit, instead of which its error comes
	committed func(ctx context.Context) error // after one, whose outcome its error hides
	close     func() error
	answer    func() error // before an answer, instead of which its error comes
	views     int          // reads of windows
}

func (d *disk) View(ctx context.Context, k carrel.MemoryKey, limit store.ViewLimit) (store.View, error) {
	d.mu.Lock()
	d.views++
	d.mu.Unlock()
	return d.Store.View(ctx, k, limit)
}

func (d *disk) Commit(ctx context.Context, c store.Commit) (store.Committed, error) {
	d.mu.Lock()
	before, after := d.commit, d.committed
	d.mu.Unlock()
	if before != nil {
		if err := before(ctx); err != nil {
			return store.Committed{}, err
		}
	}
	done, err := d.Store.Commit(ctx, c)
	if err == nil && after != nil {
		err = after(ctx)
	}
	return done, err
}

func (d *disk) Answer(ctx context.Context, a store.Answer) error {
	d.mu.Lock()
	before := d.answer
	d.mu.Unlock()
	if before != nil {
		if err := before(); err != nil {
			return err
		}
	}
	return d.Store.Answer(ctx, a)
}

func (d *disk) CloseScope(ctx context.Context, id carrel.ScopeID, why carrel.EvictionReason, at time.Time) ([]carrel.Eviction, error) {
	d.mu.Lock()
	before := d.close
	d.mu.Unlock()
	if before != nil {
		if err := before(); err != nil {
			return nil, err
		}
	}
	return d.Store.CloseScope(ctx, id, why, at)
}

type env struct {
	*invoke.Invoker
	t       *testing.T
	disk    *disk
	scopes  *scope.Registry
	catalog *plugins.Catalog
	log     *plugins.Log // of the plugins
	model   *provider

	mu       sync.Mutex // guards requests
	requests int
}

func newEnv(t *testing.T, change func(*invoke.Config)) *env {
	t.Helper()
	e := &env{t: t, disk: &disk{Store: memstore.New(memstore.Config{})}, model: &provider{calls: make(chan *modelCall)}}
	log := slog.New(slog.DiscardHandler)
	var err error
	if e.scopes, err = scope.New(scope.Config{Store: e.disk, Node: "one", Log: log, HistoryIdleTTL: 3 * time.Hour, Sessions: scope.SessionLimits{
		Sessions: 10, DefaultIdle: time.Minute, DefaultMax: time.Hour, MostIdle: time.Minute, MostMax: time.Hour,
	}}); err != nil {
		t.Fatal(err)
	}
	box, err := sandbox.New(t.Context(), sandbox.Config{OutputBytes: 4 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := box.Close(); err != nil {
			t.Error(err)
		}
	})
	if e.catalog, err = plugins.NewCatalog(plugins.Config{
		Store: e.disk, Sandbox: box, Admit: plugins.NewAdmit(manifest.Known{}, box),
		Scopes: e.scopes, Limits: store.PluginLimits{Plugins: 20, Versions: 10},
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.catalog.Close)
	if e.log, err = plugins.NewLog(100); err != nil {
		t.Fatal(err)
	}
	for _, id := range []carrel.TenantID{acme, other} {
		if err := e.disk.CreateTenant(t.Context(), store.Tenant{ID: id}); err != nil {
			t.Fatal(err)
		}
		for _, src := range []string{source, conversation} {
			wasm, _, err := pack.Prompt("p.md", []byte(src))
			if err != nil {
				t.Fatal(err)
			}
			e.upload(id, wasm)
		}
	}
	repeats, err := idempotency.New(idempotency.Config{Store: e.disk, Node: "one", Most: store.ClaimLimits{Claims: 100, Bytes: 1 << 30}, Timeout: 10 * time.Second, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	cfg := invoke.Config{
		Repeats: repeats,
		Catalog: e.catalog, Scopes: e.scopes, Histories: e.disk, Grants: e.disk, Log: log, PluginLog: e.log,
		Models: model.Set{"default": {Provider: e.model, Model: "scripted"}, "small": {Provider: e.model, Model: "small"}},
		Limits: invoke.Limits{
			Timeout: time.Minute, Invocations: 100, PerTenant: 100, TurnWaiters: 100, CommitTimeout: 10 * time.Second,
			MessagesPerHistory: 10_000, WindowBytes: 8 << 20,
		},
	}
	if change != nil {
		change(&cfg)
	}
	if e.Invoker, err = invoke.New(cfg); err != nil {
		t.Fatal(err)
	}
	return e
}

// upload makes a module the active version of its plugin.
func (e *env) upload(tenant carrel.TenantID, wasm []byte) plugins.Uploaded {
	e.t.Helper()
	up, err := e.catalog.Upload(e.t.Context(), plugins.Upload{Tenant: tenant, Module: wasm, Activate: true})
	if err != nil {
		e.t.Fatal(err)
	}
	return up
}

// call makes a call of an address with params given as key, value, key, value
// and so on, by a caller of acme.
func (e *env) call(address string, params ...string) invoke.Call {
	e.t.Helper()
	at, err := carrel.ParseAddress(address)
	if err != nil {
		e.t.Fatal(err)
	}
	args := map[string]any{}
	for i := 0; i+1 < len(params); i += 2 {
		args[params[i]] = params[i+1]
	}
	raw, err := json.Marshal(args)
	if err != nil {
		e.t.Fatal(err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.requests++
	return invoke.Call{
		Request: carrel.RequestID(fmt.Sprintf("req_%d", e.requests)), Address: at, Args: invoke.Args{Value: args, JSON: raw},
		Caller: carrel.Caller{Tenant: acme, Key: "key_1", Role: carrel.RoleCaller},
	}
}

type outcome struct {
	invoke.Result
	scope.Closed
	err error
}

// start runs a call; its outcome arrives on the channel.
func (e *env) start(ctx context.Context, c invoke.Call) <-chan outcome {
	done := make(chan outcome, 1)
	go func() {
		r, closed, err := e.Run(ctx, c)
		done <- outcome{r, closed, err}
	}()
	return done
}

// run runs a call that the model answers, and returns what the model was sent.
func (e *env) run(c invoke.Call, answer string) (sent string, o outcome) {
	e.t.Helper()
	done := e.start(e.t.Context(), c)
	select {
	case m := <-e.model.calls:
		m.say(answer)
		sent = m.sent()
		o = <-done
	case o = <-done:
	}
	if o.err != nil {
		e.t.Fatal(o.err)
	}
	return sent, o
}

// refused runs a call that must not reach the model.
func (e *env) refused(c invoke.Call, want abi.Code, limit string) outcome {
	e.t.Helper()
	done := e.start(e.t.Context(), c)
	select {
	case m := <-e.model.calls:
		e.t.Fatalf("the model was asked %q", m.asked())
		return outcome{}
	case o := <-done:
		wantError(e.t, o.err, want, limit)
		return o
	}
}

func wantError(t *testing.T, err error, want abi.Code, limit string) {
	t.Helper()
	got := ""
	if e, ok := errors.AsType[*carrel.Error](err); ok {
		got = e.Limit
	}
	if carrel.CodeOf(err) != want || got != limit {
		t.Fatalf("got %v with limit %q, want %v with limit %q", err, got, want, limit)
	}
}

// stored returns the messages of a tenant's histories by memory id, each as
// "role:content".
func (e *env) stored(tenant carrel.TenantID) map[carrel.MemoryID]string {
	e.t.Helper()
	ctx := context.WithoutCancel(e.t.Context())
	list, err := e.disk.ListHistories(ctx, store.HistoryFilter{Tenant: tenant, Limit: 1000})
	if err != nil {
		e.t.Fatal(err)
	}
	out := map[carrel.MemoryID]string{}
	for _, h := range list {
		page, err := e.disk.Messages(ctx, h.Key, h.Generation, -1, store.MessageLimit{Messages: 1000})
		if err != nil {
			e.t.Fatal(err)
		}
		var texts []string
		for _, m := range page.Messages {
			texts = append(texts, string(m.Role)+":"+m.Content)
		}
		out[h.Key.ID] = strings.Join(texts, " ")
	}
	return out
}

func (e *env) wantStored(pairs ...string) {
	e.t.Helper()
	got := e.stored(acme)
	var want, have []string
	for i := 0; i+1 < len(pairs); i += 2 {
		want = append(want, pairs[i]+" = "+pairs[i+1])
	}
	for id, text := range got {
		have = append(have, string(id)+" = "+text)
	}
	slices.Sort(want)
	slices.Sort(have)
	if !slices.Equal(have, want) {
		e.t.Errorf("stored are %q, want %q", have, want)
	}
}
