package httpapi

import (
	"bytes"
	"fmt"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/host/scope"
	"github.com/carrelhost/carrel/store"
)

// maxMetadataBytes bounds what a client keeps with a session.
const maxMetadataBytes = 4 << 10

func (a *API) openSession(c echo.Context) error {
	if _, err := query(c); err != nil {
		return err
	}
	var in client.NewSession
	if err := a.readInto(c, &in); err != nil {
		return err
	}
	n := scope.NewSession{Owner: caller(c)}
	var err error
	if n.IdleTTL, err = ttl(in.IdleTTL, "/idleTtl"); err != nil {
		return err
	}
	if n.MaxTTL, err = ttl(in.MaxTTL, "/maxTtl"); err != nil {
		return err
	}
	if n.Metadata, err = metadata(in.Metadata); err != nil {
		return err
	}
	s, err := a.cfg.Scopes.OpenSession(c.Request().Context(), n)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusCreated, sessionOf(s))
}

// ttl reads a session's time to live; 0 if the client leaves it to the host.
// Stores keep microseconds, and nobody needs as little.
func ttl(text, pointer string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < time.Millisecond {
		return 0, fault(pointer, "it is a duration of at least 1ms, such as 30m")
	}
	return d, nil
}

// fault is a bad_request with one fault.
func fault(pointer, message string) error {
	return &carrel.Error{
		Op: "httpapi.body", Code: abi.BadRequest, Msg: "the body is not acceptable; errors says where",
		Faults: []carrel.Fault{{Pointer: pointer, Message: message}},
	}
}

func metadata(raw []byte) ([]byte, error) {
	switch {
	case len(raw) == 0:
		return nil, nil
	case len(raw) > maxMetadataBytes:
		return nil, carrel.FailLimit("httpapi.sessions", abi.LimitExceeded, "sessionMetadata",
			fmt.Sprintf("a session's metadata may have at most %d bytes", maxMetadataBytes))
	case !bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{")):
		return nil, fault("/metadata", "it is a JSON object")
	default:
		return raw, nil
	}
}

func sessionOf(s store.Session) client.Session {
	expires := s.LastUsedAt.Add(s.IdleTTL)
	if last := s.CreatedAt.Add(s.MaxTTL); last.Before(expires) {
		expires = last
	}
	return client.Session{
		ID: string(s.ID), Key: string(s.Owner.Key), Subject: string(s.Owner.Subject),
		IdleTTL: s.IdleTTL.String(), MaxTTL: s.MaxTTL.String(), Metadata: s.Metadata,
		CreatedAt: s.CreatedAt, LastUsedAt: s.LastUsedAt, ExpiresAt: expires,
	}
}

func (a *API) listSessions(c echo.Context) error {
	q, err := query(c, "limit", "after")
	if err != nil {
		return err
	}
	limit, after, err := page(q)
	if err != nil {
		return err
	}
	rows, err := a.cfg.Scopes.Sessions(c.Request().Context(), caller(c), carrel.SessionID(after), limit+1)
	if err != nil {
		return err
	}
	return a.answer(c, pageOf(rows, limit, sessionOf, func(s store.Session) string { return string(s.ID) }))
}

// sessionParam reads the session that a route names.
func sessionParam(c echo.Context) (carrel.SessionID, error) {
	if _, err := query(c); err != nil {
		return "", err
	}
	return carrel.ParseSessionID(param(c, "session"))
}

func (a *API) getSession(c echo.Context) error {
	id, err := sessionParam(c)
	if err != nil {
		return err
	}
	s, err := a.cfg.Scopes.Find(c.Request().Context(), caller(c), id)
	if err != nil {
		return err
	}
	if !s.ClosedAt.IsZero() {
		return carrel.Fail("httpapi.sessions", abi.SessionClosed, "the session is closed, or its time has passed; open another")
	}
	return c.JSON(http.StatusOK, sessionOf(s))
}

func (a *API) closeSession(c echo.Context) error {
	id, err := sessionParam(c)
	if err != nil {
		return err
	}
	s, closed, err := a.cfg.Scopes.CloseSession(c.Request().Context(), caller(c), id)
	if err != nil {
		return err
	}
	a.buffers.closeSession(id)
	return c.JSON(http.StatusOK, client.ClosedSession{ID: string(s.ID), Ended: client.Ended{
		Evicted: evictedOf(closed.Evicted), EvictionPending: closed.Pending,
	}})
}
