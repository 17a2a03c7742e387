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

// Names under which a request's facts are kept in Echo's context.
const (
	keyRequestID = "request"
	keyCode      = "code"
	keyBody      = "body" // bytes that the body took of the budget
)

// requestID returns the request's id, which is also its scope's.
func requestID(c echo.Context) string {
	id, _ := c.Get(keyRequestID).(string)
	return id
}

// note remembers the code of a failed request for the log.
func note(c echo.Context, code string) { c.Set(keyCode, code) }

var traceparent = regexp.MustCompile(`^00-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}$`)

// observe is the outermost middleware: it names the request, logs its end, and
// turns a panic into an internal error. Neither paths with ids in them nor
// params nor keys are logged.
func (a *API) observe(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		start := a.cfg.Now()
		id := "req_" + a.cfg.NewID()
		c.Set(keyRequestID, id)
		h := c.Response().Header()
		h.Set(echo.HeaderXRequestID, id)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-store")
		a.boundWrites(c)
		defer a.release(c)
		err := a.boundReads(c)
		if err == nil {
			err = a.guarded(next, c)
		}
		if err != nil {
			a.handleError(err, c)
		}
		r := c.Request()
		attrs := []slog.Attr{
			slog.String("request", id), slog.String("method", r.Method), slog.String("route", c.Path()),
			slog.Int("status", c.Response().Status), slog.Duration("took", a.cfg.Now().Sub(start)),
		}
		if code, ok := c.Get(keyCode).(string); ok {
			attrs = append(attrs, slog.String("code", code))
		}
		if who, ok := carrel.CallerFrom(r.Context()); ok {
			attrs = append(attrs, slog.String("tenant", string(who.Tenant)), slog.String("key", string(who.Key)))
		}
		if m := traceparent.FindStringSubmatch(r.Header.Get("Traceparent")); m != nil {
			attrs = append(attrs, slog.String("trace", m[1]))
		}
		a.cfg.Log.LogAttrs(r.Context(), slog.LevelInfo, "request", attrs...)
		return nil
	}
}

// boundWrites starts the write deadline with the answer: a request may take
// long before it. The connection may still have the last answer's. A handler
// that streams sets deadlines of its own.
func (a *API) boundWrites(c echo.Context) {
	rc := http.NewResponseController(c.Response())
	set := func(at time.Time) {
		if err := rc.SetWriteDeadline(at); err != nil && !errors.Is(err, http.ErrNotSupported) {
			a.cfg.Log.Debug("write deadline not set", "request", requestID(c), "err", err)
		}
	}
	set(time.Time{})
	c.Response().Before(func() { set(a.cfg.Now().Add(a.cfg.Limits.WriteTimeout)) })
}

// boundReads starts the read deadline with the request, if a body follows:
// whether it is read or not, the server waits for it before it answers.
// readBody takes the deadline away again.
func (a *API) boundReads(c echo.Context) error {
	var at time.Time
	if c.Request().ContentLength != 0 {
		at = a.cfg.Now().Add(a.cfg.Limits.BodyTimeout)
	}
	return a.setReadDeadline(c, at)
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
	allowed := append([]string{"localhost", "127.0.0.1", "::1"}, a.cfg.AllowedHosts...)
	return func(c echo.Context) error {
		host := c.Request().Host
		if h, _, err := net.SplitHostPort(host); err == nil {
			host = h
		}
		host = strings.ToLower(strings.Trim(host, "[]"))
		if !slices.Contains(allowed, host) {
			return carrel.Fail("httpapi.host", abi.WrongHost,
				"this host listens on a loopback address and does not answer to that name; the operator can add it to `allowedHosts`")
		}
		return next(c)
	}
}
