package invoke

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/imports"
	"github.com/carrelhost/carrel/host/model"
	"github.com/carrelhost/carrel/host/strictjson"
	"github.com/carrelhost/carrel/store"
)

// guest is an invocation as its guest may use it. It is used from one
// goroutine, that of the guest's call.
type guest struct {
	v *Invoker
	f *frame
}

var _ imports.Invoker = (*guest)(nil)

// Describe implements imports.Invoker.
func (g *guest) Describe() imports.Context {
	call := g.f.tree.call
	return imports.Context{
		Tenant: string(call.Caller.Tenant), Plugin: string(g.f.address.Plugin), Version: g.f.running.Version.Digest.String(),
		Service: string(g.f.address.Service), Method: string(g.f.address.Method),
		RequestID: string(call.Request), InvocationID: g.f.id, SessionID: string(g.f.tree.sessionID()),
		Subject: string(call.Caller.Subject), MemoryID: string(g.f.memory),
	}
}

// Invoke implements imports.Invoker: an invocation below this one, inside the
// same request.
func (g *guest) Invoke(ctx context.Context, r imports.Invoke) (imports.Invoked, error) {
	const op = "invoke.guest"
	if err := g.f.mayNest(); err != nil {
		return imports.Invoked{}, err
	}
	at, err := g.address(ctx, r)
	if err != nil {
		return imports.Invoked{}, err
	}
	if len(r.Args) == 0 {
		r.Args = []byte("{}")
	}
	value, err := strictjson.Value(r.Args, strictjson.DefaultDepth)
	if err != nil {
		return imports.Invoked{}, err
	}
	args, ok := value.(map[string]any)
	if !ok {
		return imports.Invoked{}, carrel.Fail(op, abi.InvalidParams, "args is the params object: a JSON object")
	}
	child := &frame{tree: g.f.tree, parent: g.f, depth: g.f.depth + 1, address: at}
	result, err := g.v.invoke(ctx, child, Args{args, r.Args})
	g.f.usage.add(result.Usage)
	if err != nil {
		return imports.Invoked{}, fmt.Errorf("invoke %s: %w", at, err)
	}
	return imports.Invoked{Output: result.Output, MemoryID: string(result.MemoryID), Usage: usageOf(result.Usage.Usage)}, nil
}

func usageOf(u carrel.Usage) imports.Usage { return imports.Usage(u) }

// address is where an inner invocation goes, if the guest may call it. What
// it may not call and what is not there look alike.
func (g *guest) address(ctx context.Context, r imports.Invoke) (a carrel.Address, err error) {
	a.Plugin = g.f.address.Plugin
	if r.Plugin == "" || r.Plugin == string(a.Plugin) {
		// A client that named a version gets that version throughout.
		a.Version = g.f.address.Version
	} else if a.Plugin, err = carrel.ParsePluginName(r.Plugin); err != nil {
		return a, err
	}
	if a.Service, err = carrel.ParseServiceName(r.Service); err != nil {
		return a, err
	}
	if a.Method, err = carrel.ParseMethodName(r.Method); err != nil {
		return a, err
	}
	if a.Plugin == g.f.address.Plugin {
		return a, nil
	}
	const op = "invoke.guest"
	if !matchAny(g.f.running.Manifest.Capabilities.Call, a) {
		return a, carrel.Fail(op, abi.Forbidden, fmt.Sprintf(
			`the plugin does not ask to call %s; add "call": ["%s"] to its manifest's capabilities`, a, a))
	}
	grant, err := g.v.cfg.Grants.Grant(ctx, g.f.tree.call.Caller.Tenant, g.f.address.Plugin)
	if err != nil {
		return a, fmt.Errorf("read grant: %w", err)
	}
	if !matchAny(grant.Call, a) {
		return a, carrel.Fail(op, abi.Forbidden, fmt.Sprintf(
			`the tenant's owner has not granted %s the call of %s: PUT /api/v1/tenant/grants/%s {"call": ["%s"]}`,
			g.f.address.Plugin, a, g.f.address.Plugin, a))
	}
	return a, nil
}

func matchAny(patterns []string, a carrel.Address) bool {
	for _, p := range patterns {
		if c, err := carrel.ParseCallPattern(p); err == nil && c.Matches(a) {
			return true
		}
	}
	return false
}

// Generate implements imports.Invoker: a model call without memory.
func (g *guest) Generate(ctx context.Context, r imports.Generate) (imports.Generated, error) {
	if r.Model == "" {
		r.Model = "default"
	}
	if !asksForModel(g.f.running.Manifest, r.Model) {
		return imports.Generated{}, carrel.Fail("invoke.guest", abi.Forbidden, fmt.Sprintf(
			`the plugin does not ask for the model %q; add "models": ["%s"] to its manifest's capabilities`, r.Model, r.Model))
	}
	req := model.Request{Options: r.Generation}
	for _, m := range r.Messages {
		req.Messages = append(req.Messages, carrel.Message{Role: carrel.Role(m.Role), Content: m.Content})
	}
	answer, err := g.v.cfg.Models.Generate(ctx, r.Model, req, nil)
	if err != nil {
		return imports.Generated{}, fmt.Errorf("call model: %w", err)
	}
	g.f.usage.add(Usage{Usage: answer.Usage})
	return imports.Generated{
		Text: answer.Text, FinishReason: string(answer.FinishReason), Model: answer.Model, Usage: usageOf(answer.Usage),
	}, nil
}

// asksForModel reports whether a manifest names a model alias: as a
// capability, or as a chat method's model.
func asksForModel(m abi.Manifest, alias string) bool {
	for _, a := range m.Capabilities.Models {
		if a == alias {
			return true
		}
	}
	for _, s := range m.Services {
		for _, method := range s.Methods {
			if method.Kind == abi.KindChat && method.Model == alias {
				return true
			}
		}
	}
	return false
}

// DefaultMemoryID implements imports.Invoker.
func (g *guest) DefaultMemoryID(ctx context.Context, s carrel.ServiceName, name carrel.MethodName) (imports.Memory, error) {
	const op = "invoke.guest"
	m, ok := g.f.running.Method(s, name)
	if !ok || m.Spec.Kind != abi.KindChat {
		return imports.Memory{}, carrel.FailNotFound(op)
	}
	if m.Scope == carrel.ScopeSession && g.f.tree.session == nil {
		return imports.Memory{}, noSession()
	}
	// The plugin's own provider may ask the same again: it nests like an
	// invocation.
	if err := g.f.mayNest(); err != nil {
		return imports.Memory{}, err
	}
	of := &frame{tree: g.f.tree, parent: g.f, depth: g.f.depth + 1, id: g.f.id, running: g.f.running, method: m, address: g.f.address}
	of.address.Service, of.address.Method = s, name
	target := *m
	target.Spec.MemoryID = "" // what the call would name is not the question
	of.method = &target
	key, err := g.v.resolve(ctx, of, nil)
	g.f.usage.add(of.usage)
	if err != nil {
		return imports.Memory{}, err
	}
	return imports.Memory{MemoryID: string(key.ID), Key: g.remember(key).String()}, nil
}

// remember keeps a key for the rest of the request: it can be named by its
// handle before it has a history.
func (g *guest) remember(k carrel.MemoryKey) carrel.Handle {
	h := g.v.cfg.Scopes.Handle(k)
	g.f.tree.mu.Lock()
	defer g.f.tree.mu.Unlock()
	g.f.tree.derived[h] = k
	return h
}

// key returns the memory key that a guest names. Only its own namespace's
// exist.
func (g *guest) key(ctx context.Context, m imports.Memory) (carrel.MemoryKey, error) {
	own := carrel.Namespace(g.f.address.Plugin)
	tenant := g.f.tree.call.Caller.Tenant
	if m.Key == "" {
		id, err := carrel.ParseMemoryID(m.MemoryID)
		return carrel.MemoryKey{Tenant: tenant, Namespace: own, Kind: carrel.KindExplicit, ID: id}, err
	}
	h, err := carrel.ParseHandle(m.Key)
	if err != nil {
		return carrel.MemoryKey{}, err
	}
	g.f.tree.mu.Lock()
	k, known := g.f.tree.derived[h]
	g.f.tree.mu.Unlock()
	if !known {
		found, err := g.v.cfg.Histories.History(ctx, tenant, h, nil)
		if err != nil {
			return carrel.MemoryKey{}, err
		}
		k = found.Key
	}
	if k.Namespace != own {
		return carrel.MemoryKey{}, carrel.FailNotFound("invoke.guest")
	}
	return k, nil
}

// What one page of messages may hold: read takes so many at a time, so that a
// history of large messages is never in memory as a whole.
const (
	readMessages = 32
	pageBytes    = 2 << 20
)

// Messages implements imports.Invoker. Reading touches nothing; a history
// that is not there has no messages.
func (g *guest) Messages(ctx context.Context, of imports.Memory, after int64, limit int) (page []imports.Message, more bool, err error) {
	page = []imports.Message{}
	k, err := g.key(ctx, of)
	if err != nil {
		return nil, false, err
	}
	view, err := g.v.cfg.Histories.View(ctx, k, 0)
	if err != nil || view.Generation == 0 {
		return page, false, err
	}
	size := int64(0)
	for {
		ask := min(readMessages, limit+1-len(page))
		rows, err := g.v.cfg.Histories.Messages(ctx, k, view.Generation, after, ask)
		if carrel.CodeOf(err) == abi.NotFound { // it ended in between
			return page, false, nil
		}
		if err != nil {
			return nil, false, fmt.Errorf("read messages: %w", err)
		}
		for _, m := range rows {
			if m.Seq > 0 { // the system message never fills a page by itself
				size += m.Size()
			}
			if len(page) == limit || after > 0 && len(page) > 0 && size > pageBytes {
				return page, true, nil
			}
			page, after = append(page, messageOf(m)), m.Seq
		}
		if len(rows) < ask {
			return page, false, nil
		}
	}
}

func messageOf(m store.StoredMessage) imports.Message {
	return imports.Message{
		Seq: m.Seq, Turn: m.Turn, Role: string(m.Role), Content: m.Content,
		ToolCalls: m.ToolCalls, ToolCallID: m.ToolCallID, At: m.At,
	}
}

// Append implements imports.Invoker: it takes the turn's lock, and touches for
// the scope of the service that the guest runs in.
func (g *guest) Append(ctx context.Context, to imports.Memory, turn []carrel.Message) (imports.Memory, error) {
	k, err := g.key(ctx, to)
	if err != nil {
		return imports.Memory{}, err
	}
	if g.f.method.Scope == carrel.ScopeApplication && !g.f.running.Manifest.AllowDefaultIDLeak &&
		(k.Kind == carrel.KindRequest || k.Kind == carrel.KindSession) {
		return imports.Memory{}, carrel.Fail("invoke.guest", abi.DefaultIDLeak, fmt.Sprintf(
			"the memory id is the %s's, and the service %s is application-scoped: what it appends there would outlive the id and never end. "+
				`Append from a service of a shorter scope, or accept the leak with "allowDefaultIdLeak": true in the manifest`,
			k.Kind, g.f.address.Service))
	}
	release, err := g.v.turns.acquire(ctx, k, g.f, false, nil)
	if err != nil {
		return imports.Memory{}, err
	}
	defer release()
	if err := g.f.tree.scope.Touch(ctx, g.f.use(k)); err != nil {
		return imports.Memory{}, fmt.Errorf("touch: %w", err)
	}
	view, err := g.v.cfg.Histories.View(ctx, k, 0)
	if err != nil {
		return imports.Memory{}, fmt.Errorf("read history: %w", err)
	}
	if err := g.v.commit(ctx, g.f, k, view.Generation, nil, turn); err != nil {
		return imports.Memory{}, err
	}
	return imports.Memory{MemoryID: string(k.ID), Key: g.remember(k).String()}, nil
}

// Delete implements imports.Invoker: it takes the turn's lock, so that a guest
// does not end a turn that runs.
func (g *guest) Delete(ctx context.Context, m imports.Memory) (bool, error) {
	k, err := g.key(ctx, m)
	if err != nil {
		return false, err
	}
	release, err := g.v.turns.acquire(ctx, k, g.f, false, nil)
	if err != nil {
		return false, err
	}
	defer release()
	_, err = g.v.cfg.Scopes.Delete(ctx, k)
	if carrel.CodeOf(err) == abi.NotFound {
		return false, nil
	}
	return err == nil, err
}

// List implements imports.Invoker.
func (g *guest) List(ctx context.Context, prefix, after string, limit int) ([]imports.Listed, string, error) {
	f := store.HistoryFilter{
		Tenant: g.f.tree.call.Caller.Tenant, Plugin: g.f.address.Plugin, Prefix: prefix, Limit: limit + 1,
	}
	if after != "" {
		n, err := strconv.ParseInt(after, 10, 64)
		if err != nil {
			return nil, "", carrel.Fail("invoke.guest", abi.InvalidParams, "after is not what a list returned as next")
		}
		f.After = n
	}
	rows, err := g.v.cfg.Histories.ListHistories(ctx, f)
	if err != nil {
		return nil, "", fmt.Errorf("list histories: %w", err)
	}
	out := make([]imports.Listed, 0, len(rows))
	for i, h := range rows {
		if i == limit {
			return out, strconv.FormatInt(rows[i-1].Generation, 10), nil
		}
		out = append(out, imports.Listed{
			MemoryID: string(h.Key.ID), Key: h.Handle.String(), Kind: string(h.Key.Kind), Messages: h.Messages, Bytes: h.Bytes,
		})
	}
	return out, "", nil
}

// errorFaults returns the faults of an error that has some.
func errorFaults(err error) []carrel.Fault {
	if e, ok := errors.AsType[*carrel.Error](err); ok {
		return e.Faults
	}
	return nil
}
