package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/invoke"
)

const mimeEvents = "text/event-stream"

// heartbeat is how often a client that waits is shown that the host is there.
const heartbeat = 15 * time.Second

// wantsEvents reports whether the client asks for an event stream. One that
// takes JSON as well gets JSON.
func wantsEvents(c echo.Context) bool {
	accept := strings.Join(c.Request().Header.Values("Accept"), ",")
	return strings.Contains(accept, mimeEvents) && !strings.Contains(accept, echo.MIMEApplicationJSON)
}

// stream calls a method and sends its events as they come. What fails before
// the first of them is answered as a problem.
func (a *API) stream(c echo.Context, call invoke.Call, detached bool) error {
	ctx := c.Request().Context()
	r := a.start(ctx, call, detached)
	sawEnd := false
	defer func() { r.leave(sawEnd) }()
	begun, err := r.begun(ctx)
	if begun {
		if r.replays {
			c.Response().Header().Set(headerReplayed, "true")
		}
		sawEnd, err = a.sendEvents(c, r.buf, 0)
	}
	if err != nil && !detached { // the client is gone
		r.cancel(carrel.Fail("httpapi.stream", abi.Canceled, "the client went away"))
		<-r.ended
	}
	switch {
	case err != nil:
		note(c, abi.Canceled.String())
		return err
	case !begun:
		return r.err
	}
	<-r.ended
	if r.err != nil {
		note(c, carrel.CodeOf(r.err).String())
	}
	return nil
}

// sendEvents sends the events of a buffer after number n, to the last. Its
// error says that the client went away before.
func (a *API) sendEvents(c echo.Context, b *buffer, n int64) (sawEnd bool, err error) {
	out := eventWriter{c: c, timeout: a.cfg.Limits.WriteTimeout, now: a.cfg.Now}
	h := c.Response().Header()
	h.Set(echo.HeaderContentType, mimeEvents)
	h.Set("X-Accel-Buffering", "no")
	c.Response().WriteHeader(http.StatusOK)
	if err := out.write(); err != nil {
		return false, err
	}
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	ctx := c.Request().Context()
	for {
		events, ended, more := b.since(n)
		for _, e := range events {
			n++
			head := []byte("id: " + strconv.FormatInt(n, 10) + "\nevent: " + e.kind + "\ndata: ")
			if err := out.write(slices.Concat([][]byte{head}, e.pieces(), [][]byte{[]byte("\n\n")})...); err != nil {
				return false, err
			}
		}
		if ended {
			return true, out.write([]byte("data: [DONE]\n\n"))
		}
		select {
		case <-more:
		case <-beat.C:
			if err := out.write([]byte(": \n\n")); err != nil {
				return false, err
			}
		case <-ctx.Done():
			return false, fmt.Errorf("send events: %w", ctx.Err())
		}
	}
}

// eventWriter writes an event stream, each event at once and within the time
// that a client may take to receive it.
type eventWriter struct {
	c       echo.Context
	timeout time.Duration
	now     func() time.Time
}

func (w eventWriter) write(pieces ...[]byte) error {
	rc := http.NewResponseController(w.c.Response())
	if err := rc.SetWriteDeadline(w.now().Add(w.timeout)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return gone(err)
	}
	for _, p := range pieces {
		if _, err := w.c.Response().Write(p); err != nil {
			return gone(err)
		}
	}
	if err := rc.Flush(); err != nil {
		return gone(err)
	}
	return nil
}

// gone is the error of a client that does not take what it is sent.
func gone(err error) error { return fmt.Errorf("%w: %w", context.Canceled, err) }
