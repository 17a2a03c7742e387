package httpapi

import (
	"context"
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/host/invoke"
	"github.com/carrelhost/carrel/host/strictjson"
	"github.com/carrelhost/carrel/plugins"
)

// address reads the address of a method from a route's params.
func address(c echo.Context) (carrel.Address, error) {
	var a carrel.Address
	var err error
	if a.Plugin, a.Version, err = carrel.ParsePluginRef(c.Param("plugin")); err != nil {
		return a, err
	}
	if a.Service, err = carrel.ParseServiceName(c.Param("service")); err != nil {
		return a, err
	}
	a.Method, err = carrel.ParseMethodName(c.Param("method"))
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
	if err != nil {
		return err
	}
	defer running.Release()
	m, ok := running.Method(at.Service, at.Method)
	if !ok {
		return carrel.FailNotFound("httpapi.describe")
	}
	return c.JSON(http.StatusOK, client.Method{
		Address: at.String(), Description: m.Spec.Description, Kind: m.Spec.Kind, Scope: string(m.Scope),
		Params: m.Spec.Params, Output: m.Spec.Output, Memory: memoryRule(running, m),
	})
}

func memoryRule(running plugins.Running, m *plugins.Method) client.MemoryRule {
	rule := client.MemoryRule{Param: m.Spec.MemoryID, Required: m.Spec.MemoryIDRequired, Default: "session, then request"}
	if p := running.Manifest.DefaultMemoryID; p != nil {
		from := p.From
		if p.Export != "" {
			from = "the plugin's function " + p.Export
		}
		rule.Default = from + ", then session, then request"
	}
	if rule.Required {
		rule.Default = "none"
	}
	return rule
}

// invoke calls a method and answers when its request's scope is closed.
func (a *API) invoke(c echo.Context) error {
	call, detached, err := a.readCall(c)
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	if detached {
		ctx = context.WithoutCancel(ctx)
	}
	result, closed, err := a.cfg.Invoker.Run(ctx, call)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, client.Invocation{
		ID: result.ID, Output: result.Output, MemoryID: string(result.MemoryID),
		Model: result.Model, FinishReason: string(result.FinishReason),
		Usage: client.Usage{
			InputTokens: result.Usage.InputTokens, OutputTokens: result.Usage.OutputTokens,
			GuestMicros: result.Usage.Guest.Microseconds(),
		},
		Evicted: evictedOf(closed.Evicted), EvictionPending: closed.Pending,
	})
}

// readCall reads everything that a request says of an invocation.
func (a *API) readCall(c echo.Context) (call invoke.Call, detached bool, err error) {
	const op = "httpapi.invoke"
	if _, err = query(c); err != nil {
		return call, false, err
	}
	if wantsOnlyEvents(c) {
		return call, false, carrel.Fail(op, abi.BadRequest, "event streams are not supported by this host yet; send `Accept: application/json`")
	}
	call.Request = carrel.RequestID(requestID(c))
	call.Caller = caller(c)
	call.Header = c.Request().Header.Values
	if call.Address, err = address(c); err != nil {
		return call, false, err
	}
	conflict, err := choice(c, headerOnConflict, "wait", "reject")
	if err != nil {
		return call, false, err
	}
	call.RejectBusy = conflict == "reject"
	disconnect, err := choice(c, headerOnDisconnect, "cancel", "continue")
	if err != nil {
		return call, false, err
	}
	if call.Timeout, err = duration(c); err != nil {
		return call, false, err
	}
	body, err := a.readJSON(c)
	if err != nil {
		return call, false, err
	}
	value, err := strictjson.Value(body, strictjson.DefaultDepth)
	if err != nil {
		return call, false, err
	}
	var ok bool
	if call.Args.Value, ok = value.(map[string]any); !ok {
		return call, false, carrel.Fail(op, abi.InvalidParams, "the body is the params object: a JSON object")
	}
	call.Args.JSON = body
	return call, disconnect == "continue", nil
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
