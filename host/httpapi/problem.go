package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/client"
)

// statusClientGone is for a request whose client went away, which hardly any
// client is there to read. The number is the one that nginx made customary.
const statusClientGone = 499

// status is total over abi.Codes.
var status = map[abi.Code]int{
	abi.Internal:               http.StatusInternalServerError,
	abi.MalformedJSON:          http.StatusBadRequest,
	abi.BadRequest:             http.StatusBadRequest,
	abi.Unauthenticated:        http.StatusUnauthorized,
	abi.Forbidden:              http.StatusForbidden,
	abi.NotFound:               http.StatusNotFound,
	abi.MethodNotAllowed:       http.StatusMethodNotAllowed,
	abi.UnsupportedMediaType:   http.StatusUnsupportedMediaType,
	abi.WrongHost:              http.StatusMisdirectedRequest,
	abi.TooLarge:               http.StatusRequestEntityTooLarge,
	abi.InvalidParams:          http.StatusUnprocessableEntity,
	abi.InvalidMemoryID:        http.StatusUnprocessableEntity,
	abi.InvalidManifest:        http.StatusUnprocessableEntity,
	abi.InvalidModule:          http.StatusUnprocessableEntity,
	abi.UnknownImport:          http.StatusUnprocessableEntity,
	abi.LimitExceeded:          http.StatusUnprocessableEntity,
	abi.DefaultIDLeak:          http.StatusUnprocessableEntity,
	abi.ContextTooLarge:        http.StatusUnprocessableEntity,
	abi.GuardRefused:           http.StatusUnprocessableEntity,
	abi.IdempotencyMismatch:    http.StatusUnprocessableEntity,
	abi.IdempotencyInterrupted: http.StatusConflict,
	abi.GuestFailed:            http.StatusUnprocessableEntity,
	abi.GuestTrap:              http.StatusInternalServerError,
	abi.FuelExhausted:          http.StatusGatewayTimeout,
	abi.MemoryBusy:             http.StatusConflict,
	abi.SessionBusy:            http.StatusConflict,
	abi.ScopeClosed:            http.StatusConflict,
	abi.NoSession:              http.StatusConflict,
	abi.HistoryConflict:        http.StatusConflict,
	abi.SessionClosed:          http.StatusGone,
	abi.ModelFailed:            http.StatusBadGateway,
	abi.Timeout:                http.StatusGatewayTimeout,
	abi.Canceled:               statusClientGone,
	abi.BudgetExceeded:         http.StatusPaymentRequired,
	abi.QuotaExceeded:          http.StatusTooManyRequests,
	abi.RateLimited:            http.StatusTooManyRequests,
	abi.Draining:               http.StatusServiceUnavailable,
	abi.Overloaded:             http.StatusServiceUnavailable,
	abi.StorageFull:            http.StatusInsufficientStorage,
}

// retryAfter says for which codes the answer carries Retry-After when the
// error itself names no time.
var retryAfter = map[abi.Code]time.Duration{
	abi.MemoryBusy: time.Second, abi.SessionBusy: time.Second,
	abi.QuotaExceeded: time.Second, abi.RateLimited: time.Second,
	abi.Draining: 5 * time.Second, abi.Overloaded: time.Second,
	abi.StorageFull: 30 * time.Second,
}

// problemOf is what a client may know of an error.
func problemOf(err error, requestID string) client.Problem {
	code := carrel.CodeOf(err)
	p := client.Problem{
		Type: "urn:carrel:error:" + code.String(), Title: title(code), Status: status[code],
		Code: code.String(), RequestID: requestID, Retryable: code.Retryable(),
	}
	if e, ok := errors.AsType[*carrel.Error](err); ok && code != abi.Internal {
		p.Detail, p.Limit, p.Errors, p.GuestCode = e.Msg, e.Limit, e.Faults, e.GuestCode
	}
	if p.Detail == "" {
		p.Detail = hidden[code]
	}
	return p
}

// hidden holds the details of codes whose errors do not tell.
var hidden = map[abi.Code]string{
	abi.Internal: "the host failed; its log has the reason under this request's id",
	abi.Timeout:  "the request did not end in time; nothing of it was stored",
}

func title(c abi.Code) string {
	if t := http.StatusText(status[c]); t != "" {
		return t
	}
	return c.String()
}

// handleError answers with an error, once. It is Echo's HTTPErrorHandler.
func (a *API) handleError(err error, c echo.Context) {
	if c.Response().Committed {
		return
	}
	err = classify(err)
	id := requestID(c)
	p := problemOf(err, id)
	note(c, p.Code)
	a.logFailure(c.Request().Context(), id, err)
	h := c.Response().Header()
	if wait := waitOf(err); wait > 0 {
		h.Set("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
	}
	if p.Status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="carrel"`)
	}
	body, err := json.Marshal(p)
	if err != nil {
		a.cfg.Log.Error("problem not encoded", "request", id, "err", err)
	}
	h.Set(echo.HeaderContentType, client.ProblemType)
	c.Response().WriteHeader(p.Status)
	if _, err := c.Response().Write(append(body, '\n')); err != nil {
		a.cfg.Log.Debug("answer not sent", "request", id, "err", err)
	}
}

// logFailure logs an error that is the host's own, or a model server's.
func (a *API) logFailure(ctx context.Context, requestID string, err error) {
	if code := carrel.CodeOf(err); status[code] >= http.StatusInternalServerError {
		a.cfg.Log.LogAttrs(ctx, slog.LevelError, "request failed",
			slog.String("request", requestID), slog.String("code", code.String()), slog.Any("err", err))
	}
}

func waitOf(err error) time.Duration {
	if e, ok := errors.AsType[*carrel.Error](err); ok && e.Wait > 0 {
		return e.Wait
	}
	return retryAfter[carrel.CodeOf(err)]
}

// classify gives the router's own errors their codes.
func classify(err error) error {
	he, ok := errors.AsType[*echo.HTTPError](err)
	if !ok {
		return err
	}
	switch he.Code {
	case http.StatusNotFound:
		return carrel.FailNotFound("httpapi.route")
	case http.StatusMethodNotAllowed:
		return carrel.Fail("httpapi.route", abi.MethodNotAllowed, "this address does not take this method; the header Allow lists those it takes")
	default:
		return he
	}
}
