package invoke

import (
	"context"
	"errors"
	"fmt"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/imports"
	"github.com/carrelhost/carrel/host/model"
	"github.com/carrelhost/carrel/host/strictjson"
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
	g.f.usage.add(child.usage)
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
			`the tenant's owner has not granted %s the call of %s: carrel grant %s --call %s, or PUT /api/v1/tenant/grants/%s {"call": ["%s"]}`,
			g.f.address.Plugin, a, g.f.address.Plugin, a, g.f.address.Plugin, a))
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
		return imports.Generated{}, modelFailed(r.Model, err)
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
	target, err := g.v.target(ctx, of)
	if err != nil {
		return imports.Memory{}, err
	}
	target.IDParam = "" // what the call would name is not the question
	key, err := g.v.resolve(ctx, of, target, nil)
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
	if g.f.tree.derived == nil {
		g.f.tree.derived = map[carrel.Handle]carrel.MemoryKey{}
	}
	g.f.tree.derived[h] = k
	return h
}

// errorFaults returns the faults of an error that has some.
func errorFaults(err error) []carrel.Fault {
	if e, ok := errors.AsType[*carrel.Error](err); ok {
		return e.Faults
	}
	return nil
}
