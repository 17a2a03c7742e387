package httpapi

import (
	"context"
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/host/invoke"
	"github.com/carrelhost/carrel/host/memory"
	"github.com/carrelhost/carrel/host/scope"
	"github.com/carrelhost/carrel/host/strictjson"
	"github.com/carrelhost/carrel/plugins"
)

// address reads the address of a method from a route's params.
func address(c echo.Context) (carrel.Address, error) {
	var a carrel.Address
	var err error
	if a.Plugin, a.Version, err = carrel.ParsePluginRef(param(c, "plugin")); err != nil {
		return a, err
	}
	if a.Service, err = carrel.ParseServiceName(param(c, "service")); err != nil {
		return a, err
	}
	a.Method, err = carrel.ParseMethodName(param(c, "method"))
	return a, err
}

// describe tells how a method is called.
func (a *API) describe(c echo.Context) error {
	if _, err := query(c); err != nil {
		return err
	}
	at, err := address(c)
	if err != nil {
		return err
	}
	running, err := a.cfg.Catalog.Running(c.Request().Context(), caller(c).Tenant, at.Plugin, at.Version)
	if carrel.CodeOf(err) == abi.NotFound {
		return a.cfg.Catalog.Missing(c.Request().Context(), caller(c).Tenant, at.Plugin)
	}
	if err != nil {
		return err
	}
	defer running.Release()
	m, ok := running.Method(at.Service, at.Method)
	if !ok {
		return running.NoMethod(at.Service, at.Method)
	}
	return c.JSON(http.StatusOK, client.Method{
		Address: at.String(), Description: m.Spec.Description, Kind: m.Spec.Kind, Scope: string(m.Scope),
		Params: m.Spec.Params, Output: m.Spec.Output, Memory: memoryRule(running, m), Stream: m.Spec.Kind == abi.KindChat,
	})
}

// memoryRule tells where a method's memory id comes from. The order is that of
// memory.Resolve: the session's id has the priority 0 and the request's, behind
// which nothing is asked, 100.
func memoryRule(running plugins.Running, m *plugins.Method) client.MemoryRule {
	if m.Spec.Kind != abi.KindChat {
		return client.MemoryRule{Default: "none"}
	}
	rule := client.MemoryRule{Param: m.Spec.MemoryID, Required: m.Spec.MemoryIDRequired}
	if rule.Required {
		rule.Default = "none"
		return rule
	}
	order := []string{"session", "request"}
	if p := running.Manifest.DefaultMemoryID; p != nil {
		from := p.From
		if p.Export != "" {
			from = "the plugin's function " + p.Export
		}
		switch {
		case p.Priority < memory.SessionPriority:
			order = []string{from, "session", "request"}
		case p.Priority < memory.RequestPriority:
			order = []string{"session", from, "request"}
		}
	}
	rule.Default = strings.Join(order, ", then ")
	return rule
}

// invoke calls a method and answers when its request's scope is closed.
func (a *API) invoke(c echo.Context) error {
	call, detached, err := a.readCall(c)
	if err != nil {
		return err
	}
	if wantsEvents(c) {
		return a.stream(c, call, detached)
	}
	ctx := c.Request().Context()
	if detached {
		ctx = context.WithoutCancel(ctx)
	}
	result, closed, err := a.cfg.Invoker.Run(ctx, call)
	if err != nil {
		return err
	}
	if result.Replayed {
		c.Response().Header().Set(headerReplayed, "true")
	}
	return c.JSON(http.StatusOK, invocationOf(result, closed))
}

func invocationOf(result invoke.Result, closed scope.Closed) client.Invocation {
	return client.Invocation{
		ID: result.ID, Output: result.Output, MemoryID: string(result.MemoryID),
		Model: result.Model, FinishReason: string(result.FinishReason),
		Usage:   usageOf(result.Usage),
		Trimmed: result.Trimmed,
		Evicted: evictedOf(closed.Evicted), EvictionPending: closed.Pending,
	}
}

// usageOf is what an invocation used, also one that failed.
func usageOf(u invoke.Usage) client.Usage {
	return client.Usage{
		InputTokens: u.InputTokens, OutputTokens: u.OutputTokens, Fuel: u.Fuel, GuestMicros: u.Guest.Microseconds(),
	}
}

// readCall reads everything that a request says of an invocation.
func (a *API) readCall(c echo.Context) (call invoke.Call, detached bool, err error) {
	if _, err = query(c); err != nil {
		return call, false, err
	}
	call.Request = carrel.RequestID(requestID(c))
	call.Caller = caller(c)
	call.Header = c.Request().Header.Values
	if call.Address, err = address(c); err != nil {
		return call, false, err
	}
	if call.Session, err = sessionHeader(c); err != nil {
		return call, false, err
	}
	if call.IdempotencyKey, err = idempotencyKey(c); err != nil {
		return call, false, err
	}
	h := c.Request().Header
	if detached, err = readChoices(&call, choices{
		conflict: h.Get(headerOnConflict), disconnect: h.Get(headerOnDisconnect), timeout: h.Get(headerTimeout),
	}); err != nil {
		return call, false, err
	}
	body, err := a.readJSON(c)
	if err != nil {
		return call, false, err
	}
	call.Args, err = readArgs(body)
	return call, detached, err
}

// choices are what a caller may choose of an invocation, as it said it;
// empty = nothing. A header and a frame name them differently.
type choices struct{ conflict, disconnect, timeout string }

func readChoices(call *invoke.Call, said choices) (detached bool, err error) {
	conflict, err := choice(headerOnConflict, said.conflict, "wait", "reject")
	if err != nil {
		return false, err
	}
	call.RejectBusy = conflict == "reject"
	disconnect, err := choice(headerOnDisconnect, said.disconnect, "cancel", "continue")
	if err != nil {
		return false, err
	}
	call.Timeout, err = timeout(said.timeout)
	return disconnect == "continue", err
}

// readArgs reads a params object.
func readArgs(text []byte) (invoke.Args, error) {
	value, err := strictjson.Value(text, strictjson.DefaultDepth)
	if err != nil {
		return invoke.Args{}, err
	}
	object, ok := value.(map[string]any)
	if !ok {
		return invoke.Args{}, carrel.Fail("httpapi.invoke", abi.InvalidParams, "the params object is a JSON object")
	}
	return invoke.Args{Value: object, JSON: text}, nil
}

func evictedOf(in []carrel.Eviction) []client.Evicted {
	out := make([]client.Evicted, 0, len(in))
	for _, e := range in {
		out = append(out, client.Evicted{
			Key: e.Handle.String(), Plugin: string(e.Plugin), MemoryID: string(e.Key.ID),
			Reason: string(e.Reason), Messages: e.Messages, Bytes: e.Bytes,
		})
	}
	return out
}
