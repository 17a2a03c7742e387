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

// What is in memory of an export at once, besides the turn that is being read:
// a page of messages, and lines that are about to be sent.
const (
	exportPage  = 16
	exportLines = 64 << 10 // bytes; they are sent once there are more
)

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
	x := &exporter{
		api: a, out: eventWriter{c: c, timeout: a.cfg.Limits.WriteTimeout, now: a.cfg.Now},
		history: h, room: a.unsentOf(c),
	}
	defer x.room.release()
	page, err := x.page(ctx, -1)
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
	err = x.send(ctx, head, page)
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
	room    *unsent
	turn    []store.StoredMessage // what is read of the turn that is being read
	size    int64                 // of turn
	lines   bytes.Buffer          // that are not sent yet
	sent    int64                 // messages
	last    int64                 // seq of the message that was read last
}

// hold takes room for what is in memory: a page, the turn and the lines.
func (x *exporter) hold(ctx context.Context) error {
	return x.room.hold(ctx, min(x.history.Bytes, pageBytes)+x.size+int64(x.lines.Len()))
}

// page reads the messages after a seq.
func (x *exporter) page(ctx context.Context, after int64) (store.MessagePage, error) {
	if err := x.hold(ctx); err != nil {
		return store.MessagePage{}, err
	}
	return x.api.cfg.Histories.Messages(ctx, x.history.Key, x.history.Generation, after,
		store.MessageLimit{Messages: exportPage, Bytes: pageBytes})
}

// send sends all lines; page has the first messages. What is appended
// meanwhile is left out.
func (x *exporter) send(ctx context.Context, head client.HistoryHead, page store.MessagePage) error {
	if err := x.write(ctx, head); err != nil {
		return err
	}
	for {
		for i, m := range page.Messages {
			page.Messages[i] = store.StoredMessage{} // once it is sent nothing holds it
			if len(x.turn) > 0 && m.Turn != x.turn[0].Turn {
				if err := x.endTurn(ctx); err != nil {
					return err
				}
			}
			if m.Turn > x.history.LastTurn {
				page.More = false
				break
			}
			x.turn = append(x.turn, m)
			x.size += m.Size()
			if err := x.hold(ctx); err != nil {
				return err
			}
			x.last = m.Seq
		}
		if !page.More {
			break
		}
		var err error
		if page, err = x.page(ctx, x.last); err != nil {
			return fmt.Errorf("read messages: %w", err)
		}
	}
	if err := x.endTurn(ctx); err != nil {
		return err
	}
	if err := x.write(ctx, client.HistoryEnd{End: true, Messages: x.sent}); err != nil {
		return err
	}
	return x.flush(ctx)
}

// endTurn sends the turn that was read. One that was deleted between two reads
// has no end, and is left out as if it had been deleted before.
func (x *exporter) endTurn(ctx context.Context) error {
	turn := x.turn
	defer func() { x.turn, x.size = nil, 0 }()
	if len(turn) == 0 {
		return nil
	}
	if last := turn[len(turn)-1]; last.Role != carrel.RoleSystem && (last.Role != carrel.RoleAssistant || len(last.ToolCalls) > 0) {
		return nil
	}
	x.sent += int64(len(turn))
	for _, m := range turn {
		if err := x.write(ctx, messageOf(m)); err != nil {
			return err
		}
	}
	return nil
}

// write sends a line, or keeps it until there are more of them.
func (x *exporter) write(ctx context.Context, line any) error {
	enc := json.NewEncoder(&x.lines)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(line); err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	if x.lines.Len() < exportLines {
		return nil
	}
	return x.flush(ctx)
}

func (x *exporter) flush(ctx context.Context) error {
	if err := x.hold(ctx); err != nil {
		return err
	}
	err := x.out.write(x.lines.Bytes())
	if x.lines.Reset(); x.lines.Cap() > 2*exportLines {
		x.lines = bytes.Buffer{}
	}
	return err
}
