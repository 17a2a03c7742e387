package httpapi

import (
	"bufio"
	"context"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"strings"

	"github.com/coder/websocket"
	"github.com/labstack/echo/v4"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
)

// admitted is middleware of the WebSocket's address: it finds out who calls by
// a ticket, or else as everywhere.
func (a *API) admitted(next echo.HandlerFunc) echo.HandlerFunc {
	const op = "httpapi.upgrade"
	byKey := a.authenticated(next)
	return func(c echo.Context) error {
		q, err := query(c, "ticket")
		if err != nil {
			return err
		}
		secret, ok := q["ticket"]
		if !ok {
			return byKey(c)
		}
		r := c.Request()
		for _, name := range []string{"Authorization", "X-Api-Key", headerSubject, headerSession} {
			if r.Header.Get(name) != "" {
				return carrel.Fail(op, abi.BadRequest, "a ticket says who calls, and in which session; leave out the header "+name)
			}
		}
		t, err := a.tickets.use(secret)
		if err != nil {
			return err
		}
		x := exchangeOf(c)
		x.ticket, x.caller = &t, &t.who
		return next(c)
	}
}

// openSocket opens a WebSocket and serves it to its end.
func (a *API) openSocket(c echo.Context) error {
	r := c.Request()
	if err := checkUpgrade(r); err != nil {
		return err
	}
	attached, err := a.attachment(c)
	if err != nil {
		return err
	}
	s := a.newSocket(caller(c), requestID(c), r.Header)
	if s.attached = attached; attached != "" {
		if err := a.mayAttach(c, s.who, attached); err != nil {
			return err
		}
	}
	if err := a.sockets.add(s); err != nil {
		return err
	}
	defer a.sockets.remove(s)
	ctx := context.WithoutCancel(r.Context())
	if attached == "" {
		if s.own, err = a.cfg.Scopes.OpenSocket(ctx, s.who.Tenant); err != nil {
			return err
		}
		defer func() {
			a.buffers.closeSession(s.own.ID())
			closed := s.own.Close(ctx)
			a.cfg.Log.Debug("session closed", "request", s.request, "session", s.own.ID(),
				"evicted", len(closed.Evicted), "pending", closed.Pending)
		}()
	}
	below := &upgraded{ResponseWriter: c.Response()}
	conn, err := websocket.Accept(below, r, &websocket.AcceptOptions{
		InsecureSkipVerify: true, // checkOrigin did
		OnPingReceived:     s.pinged,
		OnPongReceived:     func(context.Context, []byte) { s.hear() },
	})
	if err != nil {
		return &carrel.Error{Op: "httpapi.upgrade", Code: abi.BadRequest, Msg: "the WebSocket could not be opened", Err: err}
	}
	s.serve(conn, below.conn)
	return nil
}

// upgraded is an answer that remembers the connection that is taken over from
// it.
type upgraded struct {
	http.ResponseWriter
	conn net.Conn
}

// Hijack implements http.Hijacker.
func (u *upgraded) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(u.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, fmt.Errorf("take over the connection: %w", err)
	}
	u.conn = conn
	return conn, buffered, nil
}

// attachment returns the session that a WebSocket is to be attached to, or "",
// once its origin is in order.
func (a *API) attachment(c echo.Context) (carrel.SessionID, error) {
	const op = "httpapi.upgrade"
	r := c.Request()
	origin, err := a.checkOrigin(r)
	if err != nil {
		return "", err
	}
	t := exchangeOf(c).ticket
	if t == nil {
		return sessionHeader(c)
	}
	if t.origin != origin {
		return "", carrel.Fail(op, abi.Forbidden, "the ticket was made for pages of another origin")
	}
	return t.session, nil
}

// checkUpgrade refuses a request that opens no WebSocket, in our words rather
// than in the library's.
func checkUpgrade(r *http.Request) error {
	token := func(header, want string) bool {
		for _, v := range r.Header.Values(header) {
			for part := range strings.SplitSeq(v, ",") {
				if strings.EqualFold(strings.TrimSpace(part), want) {
					return true
				}
			}
		}
		return false
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(r.Header.Get("Sec-WebSocket-Key")))
	if r.ProtoAtLeast(1, 1) && token("Connection", "Upgrade") && token("Upgrade", "websocket") &&
		r.Header.Get("Sec-WebSocket-Version") == "13" && err == nil && len(key) == 16 && len(r.Header.Values("Sec-WebSocket-Key")) == 1 {
		return nil
	}
	return carrel.Fail("httpapi.upgrade", abi.BadRequest, "this address takes WebSockets only (RFC 6455, version 13)")
}
