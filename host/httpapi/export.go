package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/store"
)

// exportPage is how many messages of an export are in memory at once, those of
// the turn that they belong to aside.
const exportPage = 16

// exportMemory sends a history as JSON lines. Its media type is the customary
// application/x-ndjson, as no type for JSON lines is registered.
func (a *API) exportMemory(c echo.Context) error {
	if _, err := query(c); err != nil {
		return err
	}
	h, err := a.history(c)
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	rows, err := a.cfg.Histories.Messages(ctx, h.Key, h.Generation, -1, exportPage)
	if err != nil { // the last that can be answered
		return err
	}
	head := client.HistoryHead{
		Format: client.HistoryFormat, Plugin: string(h.Plugin), MemoryID: string(h.Key.ID), Kind: string(h.Key.Kind),
		CreatedAt: h.CreatedAt, Messages: h.Messages,
	}
	if caller(c).Role == carrel.RoleOwner {
		head.Owner = string(h.Key.Owner)
	}
	c.Response().Header().Set(echo.HeaderContentType, client.HistoryType)
	c.Response().WriteHeader(http.StatusOK)
	x := &exporter{api: a, out: eventWriter{c: c, timeout: a.cfg.Limits.WriteTimeout, now: a.cfg.Now}, history: h}
	err = x.send(ctx, head, rows)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil || carrel.CodeOf(err) == abi.Canceled:
		note(c, abi.Canceled.String())
		return err
	}
	// There is no way to say so in the answer that could not be mistaken for
	// a message, but a connection that breaks is never taken for the end.
	a.logFailure(ctx, requestID(c), err)
	a.cfg.Log.LogAttrs(ctx, slog.LevelInfo, "export cut",
		slog.String("request", requestID(c)), slog.String("code", carrel.CodeOf(err).String()))
	panic(http.ErrAbortHandler)
}

// exporter sends one history.
type exporter struct {
	api     *API
	out     eventWriter
	history store.History
	turn    []store.StoredMessage // what is read of the turn that is being read
	sent    int64                 // messages
}

// send sends all lines; rows are the first messages. What is appended
// meanwhile is left out.
func (x *exporter) send(ctx context.Context, head client.HistoryHead, rows []store.StoredMessage) error {
	if err := x.write(head); err != nil {
		return err
	}
	for {
		for _, m := range rows {
			if len(x.turn) > 0 && m.Turn != x.turn[0].Turn {
				if err := x.endTurn(); err != nil {
					return err
				}
			}
			if m.Turn <= x.history.LastTurn {
				x.turn = append(x.turn, m)
			}
		}
		if len(rows) < exportPage || rows[len(rows)-1].Turn > x.history.LastTurn {
			break
		}
		var err error
		if rows, err = x.api.cfg.Histories.Messages(ctx, x.history.Key, x.history.Generation, rows[len(rows)-1].Seq, exportPage); err != nil {
			return fmt.Errorf("read messages: %w", err)
		}
	}
	if err := x.endTurn(); err != nil {
		return err
	}
	return x.write(client.HistoryEnd{End: true, Messages: x.sent})
}

// endTurn sends the turn that was read. One that was deleted between two reads
// has no end, and is left out as if it had been deleted before.
func (x *exporter) endTurn() error {
	turn := x.turn
	x.turn = nil
	if len(turn) == 0 {
		return nil
	}
	if last := turn[len(turn)-1]; last.Role != carrel.RoleSystem && (last.Role != carrel.RoleAssistant || len(last.ToolCalls) > 0) {
		return nil
	}
	x.sent += int64(len(turn))
	lines := make([]any, len(turn))
	for i, m := range turn {
		lines[i] = messageOf(m)
	}
	return x.write(lines...)
}

func (x *exporter) write(lines ...any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	for _, l := range lines {
		if err := enc.Encode(l); err != nil {
			return fmt.Errorf("encode: %w", err)
		}
	}
	return x.out.write(b.Bytes())
}
