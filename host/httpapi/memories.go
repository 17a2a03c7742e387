package httpapi

import (
	"fmt"
	"net/http"
	"strconv"

	"github.com/labstack/echo/v4"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/store"
)

// sight returns whose histories the caller may see: nil = all of its tenant.
// A publisher sees none: forbidden.
func sight(who carrel.Caller) (*store.Toucher, error) {
	switch {
	case who.SeesAllMemories():
		return nil, nil //nolint:nilnil // nil is the filter that lets all pass
	case who.Role == carrel.RoleCaller:
		return &store.Toucher{Key: who.Key, Subject: who.Subject}, nil
	default:
		return nil, carrel.Fail("httpapi.memories", abi.Forbidden,
			"this API key's role may not see chat histories; use one of role caller, viewer or owner")
	}
}

func (a *API) listMemories(c echo.Context) error {
	who := caller(c)
	by, err := sight(who)
	if err != nil {
		return err
	}
	q, err := query(c, "plugin", "prefix", "limit", "after")
	if err != nil {
		return err
	}
	f := store.HistoryFilter{Tenant: who.Tenant, Prefix: q["prefix"], TouchedBy: by}
	if q["plugin"] != "" {
		if f.Plugin, err = carrel.ParsePluginName(q["plugin"]); err != nil {
			return err
		}
	}
	limit, after, err := page(q)
	if err != nil {
		return err
	}
	if f.After, err = numberCursor(after, 0); err != nil {
		return err
	}
	f.Limit = limit + 1
	rows, err := a.cfg.Histories.ListHistories(c.Request().Context(), f)
	if err != nil {
		return err
	}
	return a.answer(c, pageOf(rows, limit, memoryOf, func(h store.History) string {
		return strconv.FormatInt(h.Generation, 10)
	}))
}

func memoryOf(h store.History) client.Memory {
	return client.Memory{
		Key: h.Handle.String(), Plugin: string(h.Plugin), MemoryID: string(h.Key.ID), Kind: string(h.Key.Kind),
		Messages: h.Messages, Bytes: h.Bytes, CreatedAt: h.CreatedAt, LastUsedAt: h.LastUsedAt,
	}
}

// history finds the history that a route names, if the caller may see it.
func (a *API) history(c echo.Context) (store.History, error) {
	who := caller(c)
	by, err := sight(who)
	if err != nil {
		return store.History{}, err
	}
	handle, err := carrel.ParseHandle(param(c, "key"))
	if err != nil {
		return store.History{}, err
	}
	return a.cfg.Histories.History(c.Request().Context(), who.Tenant, handle, by, store.Cutoff{})
}

// pageBytes bounds a page of messages besides its limit: it ends before the
// message that exceeds it, but has one at least.
const pageBytes = 1 << 20

func (a *API) listMessages(c echo.Context) error {
	q, err := query(c, "view", "method", "limit", "after")
	if err != nil {
		return err
	}
	h, err := a.history(c)
	if err != nil {
		return err
	}
	if _, given := q["view"]; given {
		return a.window(c, h, q)
	}
	if _, given := q["method"]; given {
		return carrel.Fail("httpapi.memories", abi.BadRequest, "method goes with view=window")
	}
	limit, at, err := page(q)
	if err != nil {
		return err
	}
	after, err := numberCursor(at, -1)
	if err != nil {
		return err
	}
	out := a.unsentOf(c)
	defer out.release()
	ctx := c.Request().Context()
	if err := out.hold(ctx, min(h.Bytes, pageBytes)); err != nil {
		return err
	}
	read, err := a.cfg.Histories.Messages(ctx, h.Key, h.Generation, after, store.MessageLimit{Messages: limit, Bytes: pageBytes})
	if err != nil {
		return err
	}
	p := pageOf(read.Messages, limit, messageOf, nil)
	if n := len(read.Messages); read.More && n > 0 {
		p.Next = cursor(strconv.FormatInt(read.Messages[n-1].Seq, 10))
	}
	return out.answer(c, p)
}

// window answers with what the next call of a method would send. It is one
// page, as it is one read.
func (a *API) window(c echo.Context, h store.History, q map[string]string) error {
	const op = "httpapi.memories"
	if q["view"] != "window" {
		return carrel.Fail(op, abi.BadRequest, "view is window, or left out")
	}
	for _, name := range []string{"limit", "after"} {
		if _, given := q[name]; given {
			return carrel.Fail(op, abi.BadRequest, "a window has no pages; leave "+name+" out")
		}
	}
	at, err := carrel.ParseAddress(string(h.Plugin) + "/" + q["method"])
	if err != nil {
		return carrel.Fail(op, abi.BadRequest, "view=window needs method=Service.method, such as com.acme.MyChat.chat")
	}
	out := a.unsentOf(c)
	defer out.release()
	if err := out.hold(c.Request().Context(), min(h.Bytes, a.cfg.Limits.WindowBytes)); err != nil {
		return err
	}
	rows, err := a.cfg.Invoker.Window(c.Request().Context(), caller(c), h, at.Plugin, at.Service, at.Method)
	if err != nil {
		return err
	}
	return out.answer(c, pageOf(rows, len(rows), messageOf, nil))
}

func messageOf(m store.StoredMessage) client.Message {
	return client.Message{
		Seq: m.Seq, Turn: m.Turn, Role: string(m.Role), Content: m.Content,
		ToolCalls: m.ToolCalls, ToolCallID: m.ToolCallID, At: m.At, Origin: string(m.Origin),
	}
}

// deleteMemory ends a history at once, whatever runs on it.
func (a *API) deleteMemory(c echo.Context) error {
	h, err := a.endable(c)
	if err != nil {
		return err
	}
	e, err := a.cfg.Scopes.Delete(c.Request().Context(), h.Key)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, client.Ended{Evicted: evictedOf([]carrel.Eviction{e})})
}

// endable finds the history that a route names, if the caller may end what is
// in it.
func (a *API) endable(c echo.Context) (store.History, error) {
	if caller(c).Role == carrel.RoleViewer {
		return store.History{}, carrel.Fail("httpapi.memories", abi.Forbidden, "this API key's role only reads; use one of role caller or owner")
	}
	if _, err := query(c); err != nil {
		return store.History{}, err
	}
	return a.history(c)
}

// deleteTurn deletes one turn, whatever runs on the history. The system
// message is no turn.
func (a *API) deleteTurn(c echo.Context) error {
	h, err := a.endable(c)
	if err != nil {
		return err
	}
	// Whoever comes here may see the history, and may be told what it lacks.
	const op = "httpapi.memories"
	turn, err := strconv.ParseInt(param(c, "turn"), 10, 64)
	if err != nil || turn < 1 {
		return carrel.Fail(op, abi.NotFound, "a turn has a number, from 1; the system message is none")
	}
	err = a.cfg.Scopes.DeleteTurn(c.Request().Context(), h, turn)
	if carrel.CodeOf(err) == abi.NotFound {
		return carrel.Fail(op, abi.NotFound, fmt.Sprintf("the history has no turn %d, or has just ended", turn))
	}
	if err != nil {
		return err
	}
	return c.NoContent(http.StatusNoContent)
}
