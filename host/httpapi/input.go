package httpapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/strictjson"
)

// readBody reads a request's body to its end, which also lets the server
// notice when the client goes away later. Past most bytes it is too_large,
// naming the limit. The bytes count against the budget of all bodies until the
// request ends: overloaded if there is no room for them in time.
func (a *API) readBody(c echo.Context, most int64, limit string) ([]byte, error) {
	const op = "httpapi.body"
	r := c.Request()
	for _, e := range r.Header.Values("Content-Encoding") {
		if e != "" && e != "identity" {
			return nil, carrel.Fail(op, abi.UnsupportedMediaType, "send the body without a content encoding")
		}
	}
	tooLarge := func() error {
		return carrel.FailLimit(op, abi.TooLarge, limit, fmt.Sprintf(
			"the body may have at most %d bytes; the host's operator can raise `limits.%s`", most, limit))
	}
	if r.ContentLength > most {
		a.passOver(r)
		return nil, tooLarge()
	}
	if err := a.takeBody(c, r.ContentLength, most); err != nil {
		return nil, err
	}
	body, err := readAll(http.MaxBytesReader(c.Response(), r.Body, most), r.ContentLength)
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, tooLarge()
	}
	if err != nil {
		return nil, a.arrivals.failure(&carrel.Error{
			Op: op, Code: abi.BadRequest, Limit: "bodyTimeout", Err: err,
			Msg: fmt.Sprintf("the body did not arrive whole within %v", a.cfg.Limits.BodyTimeout),
		})
	}
	return body, a.arrivals.end(connOf(r), exchangeOf(c))
}

// readAll reads what has size bytes (-1: unknown) to its end. What is large
// takes memory only as it comes. A body that ends early is an error.
func readAll(r io.Reader, size int64) ([]byte, error) {
	const first = 64 << 10
	if size < 0 || size > first {
		return io.ReadAll(r)
	}
	b := make([]byte, size)
	_, err := io.ReadFull(r, b)
	return b, err
}

// setReadDeadline bounds how long what the client still sends may take; the
// zero time takes the bound away.
func setReadDeadline(x *exchange, at time.Time) error {
	err := x.control.SetReadDeadline(at)
	if err != nil && !errors.Is(err, http.ErrNotSupported) {
		return fmt.Errorf("set read deadline: %w", err)
	}
	return nil
}

// takeBody takes room for a body of that size (-1: unknown) until the request
// ends.
func (a *API) takeBody(c echo.Context, size, most int64) error {
	if size < 0 {
		size = most
	}
	if err := a.awaitRoom(c, a.bodies, size); err != nil {
		return a.arrivals.failure(carrel.FailLimit("httpapi.body", abi.Overloaded, "bodyBytes", fmt.Sprintf(
			"bodies of %d bytes in all are being handled, or of %d of this tenant; the host's operator can raise `limits.bodyBytes`",
			a.cfg.Limits.BodyBytes, a.bodies.most)))
	}
	exchangeOf(c).body += size
	return nil
}

// awaitRoom takes room for the request's body, as long as that may take to come.
func (a *API) awaitRoom(c echo.Context, room *budget, size int64) error {
	tenant := caller(c).Tenant
	if room.take(tenant, size) {
		return nil
	}
	ctx, cancel := context.WithTimeout(c.Request().Context(), a.cfg.Limits.BodyTimeout)
	defer cancel()
	a.arrivals.await(connOf(c.Request()), cancel)
	return room.acquire(ctx, tenant, size)
}

// release gives back what the request's body took of the budget.
func (a *API) release(x *exchange) { a.releaseBody(caller(x).Tenant, x.body, x.module) }

func (a *API) releaseBody(t carrel.TenantID, body, module int64) {
	a.bodies.release(t, body)
	a.modules.release(t, module)
}

// passOver reads and forgets a body that is refused for its size, as far as
// that is bearable: many clients send all of it before they read the answer,
// and would see a broken connection instead. One that waits for permission
// (Expect: 100-continue) is not given it.
func (a *API) passOver(r *http.Request) {
	const bearable = 16 << 20
	if r.Header.Get("Expect") == "" {
		_, _ = io.CopyN(io.Discard, r.Body, bearable) // whatever comes of it, the answer is the same
	}
}

// readJSON reads a JSON body, not yet decoded.
func (a *API) readJSON(c echo.Context) ([]byte, error) {
	if err := wantType(c, "application/json"); err != nil {
		return nil, err
	}
	return a.readBody(c, a.cfg.Limits.RequestBytes, "requestBytes")
}

// readInto decodes a JSON body into dst, strictly.
func (a *API) readInto(c echo.Context, dst any) error {
	body, err := a.readJSON(c)
	if err != nil {
		return err
	}
	return strictjson.Into(body, dst, strictjson.DefaultDepth)
}

func wantType(c echo.Context, want string) error {
	got := strings.Join(c.Request().Header.Values(echo.HeaderContentType), ", ") // two of them are no media type
	if got == want {
		return nil
	}
	kind, params, err := mime.ParseMediaType(got)
	if err != nil || kind != want {
		return carrel.Fail("httpapi.contentType", abi.UnsupportedMediaType,
			"send the body as `Content-Type: "+want+"`"+curlHint(want))
	}
	if cs, ok := params["charset"]; ok && !strings.EqualFold(cs, "utf-8") {
		return carrel.Fail("httpapi.contentType", abi.UnsupportedMediaType, "JSON is UTF-8; send it as that")
	}
	return nil
}

func curlHint(want string) string {
	if want == "application/json" {
		return " (curl: --json instead of -d)"
	}
	return ""
}

// query returns a request's query parameters, each of which must be known and
// given once.
func query(c echo.Context, known ...string) (map[string]string, error) {
	if c.Request().URL.RawQuery == "" {
		return nil, nil //nolint:nilnil // a map without names
	}
	params, err := url.ParseQuery(c.Request().URL.RawQuery) // Echo drops what it cannot read
	if err != nil {
		return nil, &carrel.Error{Op: "httpapi.query", Code: abi.BadRequest, Msg: "the query of the address is malformed", Err: err}
	}
	out := map[string]string{}
	for name, values := range params {
		if !slices.Contains(known, name) {
			return nil, carrel.Fail("httpapi.query", abi.BadRequest, fmt.Sprintf(
				"the query parameter %q is not known here, or not supported by this host yet; known are: %s", name, orNone(known)))
		}
		if len(values) > 1 {
			return nil, carrel.Fail("httpapi.query", abi.BadRequest, fmt.Sprintf("the query parameter %q is given %d times", name, len(values)))
		}
		out[name] = values[0]
	}
	return out, nil
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// boolean reads a query parameter that is true or false.
func boolean(q map[string]string, name string, otherwise bool) (bool, error) {
	switch q[name] {
	case "":
		return otherwise, nil
	case "true":
		return true, nil
	case "false":
		return false, nil
	default:
		return false, carrel.Fail("httpapi.query", abi.BadRequest, fmt.Sprintf("the query parameter %q is true or false", name))
	}
}

// The Carrel- headers that this host has. Others are refused, so that nobody
// relies on what does not happen.
const (
	headerSubject      = "Carrel-Subject"
	headerOnConflict   = "Carrel-On-Conflict"
	headerOnDisconnect = "Carrel-On-Disconnect"
	headerTimeout      = "Carrel-Timeout"
	headerSession      = "Carrel-Session"

	headerIdempotencyKey = "Idempotency-Key"
)

// headerReplayed says in an answer that it is that of an earlier call.
const headerReplayed = "Idempotent-Replayed"

// refuseHeaders is middleware: it refuses headers of features that this host
// or this route does not have.
func refuseHeaders(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		h := c.Request().Header
		for name, values := range h {
			if name != headerIdempotencyKey && !strings.HasPrefix(name, "Carrel-") {
				continue
			}
			users, here := headerUsers(name, c.Request().Method, c.Path())
			switch {
			case users == "":
				return carrel.Fail("httpapi.headers", abi.BadRequest, "the header "+name+" is not supported by this host yet; leave it out")
			case !here:
				return carrel.Fail("httpapi.headers", abi.BadRequest, "the header "+name+" is for "+users+"; leave it out")
			case name != headerIdempotencyKey && len(values) > 1: // that has words of its own
				return carrel.Fail("httpapi.headers", abi.BadRequest, "the header "+name+" is sent more than once")
			}
		}
		return next(c)
	}
}

// headerUsers tells for which requests a header is, and whether a route's are
// among them; "" if this host does not have the header.
func headerUsers(name, method, path string) (users string, here bool) {
	calls := method == http.MethodPost && path == routeMethod
	switch name {
	case headerOnConflict, headerOnDisconnect, headerTimeout, headerIdempotencyKey:
		return "calls of service methods over HTTP", calls
	case headerSession:
		return "calls of service methods and WebSockets", calls || path == routeSocket
	case headerSubject:
		return "what keys of tenants do", strings.HasPrefix(path, "/api/v1/")
	default:
		return "", false
	}
}

// choice reads one of a fixed set of values; the first is the default.
func choice(name, got string, values ...string) (string, error) {
	if got == "" {
		return values[0], nil
	}
	if !slices.Contains(values, got) {
		return "", carrel.Fail("httpapi.choice", abi.BadRequest, fmt.Sprintf("%s is one of: %s", name, strings.Join(values, ", ")))
	}
	return got, nil
}

// timeout reads how long a caller is willing to wait; 0 if it does not say.
func timeout(got string) (time.Duration, error) {
	if got == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(got)
	if err != nil || d <= 0 {
		return 0, carrel.Fail("httpapi.timeout", abi.BadRequest, headerTimeout+" is a positive duration, such as 20s or 1500ms")
	}
	return d, nil
}

// sessionHeader reads the session that a call is to be made in, or "".
func sessionHeader(c echo.Context) (carrel.SessionID, error) {
	values := c.Request().Header.Values(headerSession)
	switch {
	case len(values) == 0:
		return "", nil
	case values[0] == "":
		return "", carrel.Fail("httpapi.headers", abi.BadRequest, "the header "+headerSession+" is empty; leave it out, or name a session")
	default:
		return carrel.ParseSessionID(values[0])
	}
}

// maxIdempotencyKey bounds an idempotency key, in bytes.
const maxIdempotencyKey = 255

// idempotencyKey reads what makes repeating the call safe, or "".
func idempotencyKey(c echo.Context) (string, error) {
	values := c.Request().Header.Values(headerIdempotencyKey)
	if len(values) == 0 {
		return "", nil
	}
	wrong := func(r rune) bool { return r <= ' ' || r > '~' }
	if key := values[0]; len(values) == 1 && key != "" && len(key) <= maxIdempotencyKey && !strings.ContainsFunc(key, wrong) {
		return key, nil
	}
	return "", carrel.Fail("httpapi.headers", abi.BadRequest, fmt.Sprintf(
		"the header %s is sent once, with 1 to %d visible ASCII characters", headerIdempotencyKey, maxIdempotencyKey))
}

// page reads limit and after.
func page(q map[string]string) (limit int, after string, err error) {
	const fallback, most = 100, 1000
	limit = fallback
	if s, given := q["limit"]; given {
		n, ok := number(s)
		if !ok || n < 1 || n > most {
			return 0, "", carrel.Fail("httpapi.query", abi.BadRequest, fmt.Sprintf("limit is a number from 1 to %d, in digits", most))
		}
		limit = int(n)
	}
	if s, given := q["after"]; given {
		if after, err = openCursor(s); err == nil && after == "" {
			err = badCursor()
		}
	}
	return limit, after, err
}

// param returns a part of the request's path, decoded once: clients may encode
// more than they must, such as the @ of a version. What cannot be decoded
// names nothing.
func param(c echo.Context, name string) string {
	raw := c.Param(name)
	if c.Request().URL.RawPath == "" { // decoded already
		return raw
	}
	decoded, err := url.PathUnescape(raw)
	if err != nil {
		return raw
	}
	return decoded
}
