package carrel

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"time"
)

// logHandler writes records as lines of the plugin's log: the message, then
// the attributes as slog's text handler shows them. The host adds time and
// level.
type logHandler struct {
	host Host
	line *bytes.Buffer // shared by the handlers of one call, which has one goroutine
	text slog.Handler  // writes into line
}

func newLogHandler(h Host) logHandler {
	var b bytes.Buffer
	return logHandler{h, &b, slog.NewTextHandler(&b, &slog.HandlerOptions{Level: slog.LevelDebug})}
}

func (h logHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h logHandler) Handle(ctx context.Context, r slog.Record) error {
	bare := r.Clone()
	bare.Time, bare.Message = time.Time{}, ""
	h.line.Reset()
	if err := h.text.Handle(ctx, bare); err != nil {
		return err
	}
	attrs := strings.TrimPrefix(h.line.String(), "level="+r.Level.String()+` msg=""`)
	h.host.Log(hostLevel(r.Level), r.Message+strings.TrimSuffix(attrs, "\n"))
	return nil
}

func (h logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return logHandler{h.host, h.line, h.text.WithAttrs(attrs)}
}

func (h logHandler) WithGroup(name string) slog.Handler {
	return logHandler{h.host, h.line, h.text.WithGroup(name)}
}

func hostLevel(l slog.Level) int {
	switch {
	case l < slog.LevelInfo:
		return 0
	case l < slog.LevelWarn:
		return 1
	case l < slog.LevelError:
		return 2
	default:
		return 3
	}
}
