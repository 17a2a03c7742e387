package httpapi

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/client"
)

const headerLastEvent = "Last-Event-ID"

// readEvents sends the events of an invocation again, and goes on with it. A
// browser that reconnects repeats the address and adds Last-Event-ID, so that
// one counts.
func (a *API) readEvents(c echo.Context) error {
	q, err := query(c, "after")
	if err != nil {
		return err
	}
	at, given := q["after"]
	if last := c.Request().Header.Get(headerLastEvent); last != "" {
		at, given = last, true
	}
	after := int64(0)
	if given {
		var ok bool
		if after, ok = number(at); !ok {
			return carrel.Fail("httpapi.events", abi.BadRequest, "after, or "+headerLastEvent+", is the number of an event")
		}
	}
	b, err := a.joinEvents(c)
	if err != nil {
		return err
	}
	sawEnd, err := a.sendEvents(c, b, after)
	a.buffers.leave(b, sawEnd)
	return err
}

// joinEvents finds the buffer that a route names. That of a session or a
// history whose time has passed is not there any more.
func (a *API) joinEvents(c echo.Context) (*buffer, error) {
	who := caller(c)
	b, err := a.buffers.join(who, param(c, "invocation"))
	if err != nil {
		return nil, err
	}
	expired, err := a.cfg.Scopes.Expired(c.Request().Context(), who.Tenant, a.buffers.touchedBy(b))
	if err == nil && expired {
		err = carrel.FailNotFound("httpapi.events")
	}
	if err != nil {
		a.buffers.leave(b, false)
		return nil, err
	}
	if b.run.call.Session == "" {
		return b, nil
	}
	s, err := a.cfg.Scopes.Find(c.Request().Context(), who, b.session)
	if err == nil && s.ClosedAt.IsZero() {
		return b, nil
	}
	a.buffers.leave(b, false)
	if err == nil {
		a.buffers.closeSession(b.session)
		err = carrel.FailNotFound("httpapi.events")
	}
	return nil, err
}

// cancelInvocation cancels an invocation and waits for its end. From the
// commit of its turn on it completes.
func (a *API) cancelInvocation(c echo.Context) error {
	if _, err := query(c); err != nil {
		return err
	}
	b, err := a.joinEvents(c)
	if err != nil {
		return err
	}
	defer a.buffers.leave(b, false)
	b.run.cancel(carrel.Fail("httpapi.cancel", abi.Canceled, "the invocation was cancelled; nothing of it was stored"))
	select {
	case <-b.run.ended:
	case <-c.Request().Context().Done():
		return c.Request().Context().Err()
	}
	return c.JSON(http.StatusOK, client.Canceled{ID: b.id, Status: b.run.status})
}
