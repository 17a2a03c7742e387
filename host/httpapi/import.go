package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/host/invoke"
	"github.com/carrelhost/carrel/host/memory"
)

// importMemory makes a history of an exported one. The query can give it to
// another plugin, or another memory id.
func (a *API) importMemory(c echo.Context) error {
	q, err := query(c, "plugin", "memoryId")
	if err != nil {
		return err
	}
	if err := wantType(c, client.HistoryType); err != nil {
		return err
	}
	l := a.cfg.Limits
	body, err := a.readBody(c, l.ImportBytes, "importBytes")
	if err != nil {
		return err
	}
	done, err := a.oneImport(c)
	if err != nil {
		return err
	}
	defer done()
	read, err := readHistory(body, l.importLimits())
	if err != nil {
		return err
	}
	in := invoke.Import{
		Request: carrel.RequestID(requestID(c)), Caller: caller(c), System: read.system, Turns: read.turns,
		Kind: carrel.KeyKind(read.head.Kind), Owner: carrel.Owner(read.head.Owner),
		ID: carrel.MemoryID(given(q, "memoryId", read.head.MemoryID)), // Import judges it, by its kind
	}
	if in.Plugin, err = carrel.ParsePluginName(given(q, "plugin", read.head.Plugin)); err != nil {
		return err
	}
	if in.Kind == carrel.KindRequest || in.Kind == carrel.KindSession {
		if _, named := q["memoryId"]; !named {
			return badLine(1, "/memoryId", "a "+read.head.Kind+"'s own memory id ends with it, and no later call has it; name another with ?memoryId=")
		}
		in.Kind = carrel.KindExplicit
	}
	h, err := a.cfg.Invoker.Import(c.Request().Context(), in)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusCreated, memoryOf(h))
}

// oneImport waits until no other import of the tenant is read or stored: what
// one tenant makes of whole histories must not hold up what others store. Done
// is to be called.
func (a *API) oneImport(c echo.Context) (done func(), err error) {
	limit := a.cfg.Limits.Timeout
	tenant := caller(c).Tenant
	ctx, cancel := context.WithTimeoutCause(c.Request().Context(), limit, carrel.FailLimit("httpapi.import", abi.Timeout, "timeout",
		fmt.Sprintf("other imports of this tenant did not end within %v; import one history after the other", limit)))
	defer cancel()
	if err := a.imports.acquire(ctx, tenant, 1); err != nil {
		return nil, context.Cause(ctx) //nolint:wrapcheck // it says why the wait ended
	}
	return func() { a.imports.release(tenant, 1) }, nil
}

// given returns a query parameter, if only an empty one, or else otherwise.
func given(q map[string]string, name, otherwise string) string {
	if v, ok := q[name]; ok {
		return v
	}
	return otherwise
}

// checkHead judges the first line of an import, but for its names.
func checkHead(h client.HistoryHead) error {
	switch carrel.KeyKind(h.Kind) {
	case carrel.KindExplicit, carrel.KindRequest, carrel.KindSession, carrel.KindPlugin:
	default:
		return badLine(1, "/kind", "it is explicit, request, session or plugin")
	}
	if h.Format != client.HistoryFormat {
		return badLine(1, "/format", "this host reads `"+client.HistoryFormat+"` and no other format")
	}
	if h.Owner == "" {
		return nil
	}
	if h.Kind != string(carrel.KindPlugin) {
		return badLine(1, "/owner", "a history of the kind plugin has an owner, and no other")
	}
	_, err := memory.ParseOwner(h.Owner)
	if e, ok := errors.AsType[*carrel.Error](err); ok {
		return badLine(1, "/owner", e.Msg)
	}
	return err
}

// badLine is invalid_params for one line of an import; pointer is into it.
func badLine(line int, pointer, message string) error {
	return &carrel.Error{
		Op: "httpapi.import", Code: abi.InvalidParams, Msg: inLine(line) + message,
		Faults: []carrel.Fault{{Pointer: pointer, Message: message}},
	}
}
