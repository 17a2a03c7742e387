package httpapi

import (
	"errors"
	"log/slog"
	"net"
	"net/http"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
)

var traceparent = regexp.MustCompile(`^00-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}$`)

// observe is the outermost middleware: it names the request, logs its end, and
// turns a panic into an internal error. Neither paths with ids in them nor
// params nor keys are logged.
func (a *API) observe(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		start := a.cfg.Now()
		x := newExchange(c, "req_"+a.cfg.NewID())
		a.boundWrites(x)
		defer a.release(x)
		err := a.boundReads(x)
		if err == nil {
			err = a.guarded(next, x)
		}
		if err != nil {
			a.handleError(err, x)
		}
		if a.cfg.Log.Enabled(c.Request().Context(), slog.LevelInfo) {
			a.logEnd(x, a.cfg.Now().Sub(start))
		}
		return nil
	}
}

// logEnd logs a request that is over.
func (a *API) logEnd(x *exchange, took time.Duration) {
	r := x.Request()
	attrs := []slog.Attr{
		slog.String("request", x.id), slog.String("method", r.Method), slog.String("route", x.Path()),
		slog.Int("status", x.Response().Status), slog.Duration("took", took),
	}
	if x.code != "" {
		attrs = append(attrs, slog.String("code", x.code))
	}
	if who := x.caller; who != nil {
		attrs = append(attrs, slog.String("tenant", string(who.Tenant)), slog.String("key", string(who.Key)))
	}
	if m := traceparent.FindStringSubmatch(r.Header.Get("Traceparent")); m != nil {
		attrs = append(attrs, slog.String("trace", m[1]))
	}
	a.cfg.Log.LogAttrs(r.Context(), slog.LevelInfo, "request", attrs...)
}

// boundWrites starts the write deadline with the answer: a request may take
// long before it. The connection may still have the last answer's. A handler
// that streams sets deadlines of its own.
func (a *API) boundWrites(x *exchange) {
	a.setWriteDeadline(x, time.Time{})
	x.Response().Before(func() { a.setWriteDeadline(x, a.cfg.Now().Add(a.cfg.Limits.WriteTimeout)) })
}

func (a *API) setWriteDeadline(x *exchange, at time.Time) {
	if err := x.control.SetWriteDeadline(at); err != nil && !errors.Is(err, http.ErrNotSupported) {
		a.cfg.Log.Debug("write deadline not set", "request", x.id, "err", err)
	}
}

// boundReads starts the read deadline with the request, if a body follows:
// whether it is read or not, the server waits for it before it answers.
// readBody takes the deadline away again.
func (a *API) boundReads(x *exchange) error {
	if x.Request().ContentLength == 0 {
		return setReadDeadline(x, time.Time{})
	}
	return a.arrivals.begin(connOf(x.Request()), x, a.cfg.Now().Add(a.cfg.Limits.BodyTimeout))
}

// guarded runs a handler and returns a panic of it as an internal error.
func (a *API) guarded(next echo.HandlerFunc, c echo.Context) (err error) {
	defer func() {
		if p := recover(); p != nil {
			if p == http.ErrAbortHandler { //nolint:errorlint,err113 // a sentinel to panic with, compared as net/http does
				panic(p)
			}
			a.cfg.Log.Error("panic", "request", requestID(c), "panic", p, "stack", string(debug.Stack()))
			err = carrel.Fail("httpapi", abi.Internal, "")
		}
	}()
	return next(c)
}

// onlyOurHost is middleware for a listener on a loopback address: a page that
// a browser loaded from elsewhere reaches it under the page's own host name
// (DNS rebinding), and is turned away with wrong_host.
func (a *API) onlyOurHost(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		host := c.Request().Host
		if h, _, err := net.SplitHostPort(host); err == nil {
			host = h
		}
		host = strings.ToLower(strings.Trim(host, "[]"))
		switch {
		case host == "localhost", host == "127.0.0.1", host == "::1", slices.Contains(a.cfg.AllowedHosts, host):
			return next(c)
		default:
			return carrel.Fail("httpapi.host", abi.WrongHost,
				"this host listens on a loopback address and does not answer to that name; the operator can add it to `allowedHosts`")
		}
	}
}
