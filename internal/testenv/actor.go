package testenv

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/host/model/modeltest"
	"github.com/carrelhost/carrel/plugins/pack"
)

// Actor is somebody with an API key. Its methods fail the test unless what
// they do ends as expected: well, or with the code that WantCode named for
// the next one.
type Actor struct {
	addr    func() string     // of the host that runs now
	model   *modeltest.Server // behind that host
	t       testing.TB
	Tenant  string
	key     string
	subject string
	header  http.Header
	want    abi.Code
}

// As returns the actor on behalf of an end user (Carrel-Subject).
func (a Actor) As(subject string) *Actor {
	a.subject = subject
	return &a
}

// With returns the actor sending one more header with its calls.
func (a Actor) With(name, value string) *Actor {
	h := a.header.Clone()
	if h == nil {
		h = http.Header{}
	}
	h.Set(name, value)
	a.header = h
	return &a
}

// In returns the actor failing another test, such as a subtest.
func (a Actor) In(t testing.TB) *Actor {
	a.t = t
	return &a
}

// WantCode returns the actor whose every call must be refused with the code.
func (a Actor) WantCode(c abi.Code) *Actor {
	a.want = c
	return &a
}

// Key returns the secret of the actor's API key.
func (a *Actor) Key() string { return a.key }

// Client returns a client for the actor, for the host that runs now.
func (a *Actor) Client() *client.Client {
	return &client.Client{Base: a.addr(), Key: a.key, Subject: a.subject, HTTP: noRedirects}
}

// check holds a call's outcome against what the actor wants.
func (a *Actor) check(what string, err error) {
	a.t.Helper()
	if got := CodeOf(err); got != a.want || err != nil && a.want == wantNoCode {
		a.t.Fatalf("%s: got %v, want code %v", what, err, a.want)
	}
}

// CodeOf returns the code of a client's error; Internal for one that is no
// problem of a host.
func CodeOf(err error) abi.Code {
	if err == nil {
		return abi.OK
	}
	if p, ok := errors.AsType[*client.Problem](err); ok {
		c, _ := abi.ParseCode(p.Code)
		return c
	}
	return abi.Internal
}

// Install packs a prompt source (Markdown with front matter) and uploads it.
func (a *Actor) Install(source string) client.Uploaded {
	a.t.Helper()
	return a.Upload(Pack(a.t, source))
}

// Upload uploads a module and activates it.
func (a *Actor) Upload(wasm []byte) client.Uploaded {
	a.t.Helper()
	up, err := a.Client().Upload(a.t.Context(), wasm, client.UploadOptions{})
	a.check("upload", err)
	return up
}

// Pack packs a prompt source. Leaks are the host's to refuse.
func Pack(t testing.TB, source string) []byte {
	t.Helper()
	wasm, _, err := pack.Prompt("plugin.md", []byte(source))
	if err != nil && carrel.CodeOf(err) != abi.DefaultIDLeak {
		t.Fatalf("pack: %v", err)
	}
	return wasm
}

// Chat calls a method with params given as key, value, key, value and so on.
func (a *Actor) Chat(address string, params ...string) client.Invocation {
	a.t.Helper()
	out, err := a.Call(a.t.Context(), address, params...)
	a.check("chat "+address, err)
	return out
}

// Call is Chat that returns the error, whatever it is.
func (a *Actor) Call(ctx context.Context, address string, params ...string) (client.Invocation, error) {
	a.t.Helper()
	at, version, args := a.call(address, params)
	return a.Client().Invoke(ctx, at, version, args, client.CallOptions{Header: a.header})
}

// Plugins lists all plugins of the actor's tenant.
func (a *Actor) Plugins() []client.Plugin {
	a.t.Helper()
	all, err := client.All(1000, func(o client.ListOptions) (client.Page[client.Plugin], error) {
		return a.Client().Plugins(a.t.Context(), o)
	})
	a.check("list plugins", err)
	return all
}

// Versions lists all versions of a plugin, newest first.
func (a *Actor) Versions(plugin string) []client.Version {
	a.t.Helper()
	all, err := client.All(1000, func(o client.ListOptions) (client.Page[client.Version], error) {
		return a.Client().Versions(a.t.Context(), plugin, o)
	})
	a.check("list versions", err)
	return all
}

// Report returns the report on a plugin's active version.
func (a *Actor) Report(plugin string) client.Report {
	a.t.Helper()
	p, err := a.Client().Plugin(a.t.Context(), plugin)
	a.check("read plugin "+plugin, err)
	if p.Active == nil {
		a.t.Fatalf("%s is not active", plugin)
	}
	r, err := a.Client().Report(a.t.Context(), plugin, p.Active.Digest)
	a.check("read the report on "+plugin, err)
	return r
}

// Memories lists all histories that the actor may see, of one plugin or of
// all ("").
func (a *Actor) Memories(plugin string) []client.Memory {
	a.t.Helper()
	all, err := client.All(100_000, func(o client.ListOptions) (client.Page[client.Memory], error) {
		return a.Client().Memories(a.t.Context(), client.MemoryFilter{Plugin: plugin}, o)
	})
	a.check("list memories", err)
	return all
}

// MemoryIDs lists the memory ids that the actor may see, of one plugin.
func (a *Actor) MemoryIDs(plugin string) []string {
	a.t.Helper()
	ids := []string{}
	for _, m := range a.Memories(plugin) {
		ids = append(ids, m.MemoryID)
	}
	return ids
}

// Stored returns what is stored under a memory id, each message as
// "role:content"; nil if there is no such history. There must not be two.
func (a *Actor) Stored(plugin, id string) []string {
	a.t.Helper()
	var out []string
	for _, m := range a.Memories(plugin) {
		if m.MemoryID != id {
			continue
		}
		if out != nil {
			a.t.Fatalf("two histories %q of %s", id, plugin)
		}
		messages, err := client.All(100_000, func(o client.ListOptions) (client.Page[client.Message], error) {
			return a.Client().Messages(a.t.Context(), m.Key, o)
		})
		a.check("read memory", err)
		out = []string{}
		for _, msg := range messages {
			out = append(out, msg.Role+":"+msg.Content)
		}
	}
	return out
}

// End deletes the one history with a memory id.
func (a *Actor) End(plugin, id string) client.Ended {
	a.t.Helper()
	for _, m := range a.Memories(plugin) {
		if m.MemoryID == id {
			done, err := a.Client().DeleteMemory(a.t.Context(), m.Key)
			a.check("delete memory", err)
			return done
		}
	}
	a.t.Fatalf("%s has no history %q", plugin, id)
	return client.Ended{}
}
