package httpapi

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/store"
)

// scrub answers when it is done, which may be long after the request. A client
// that goes away cuts it short.
func (a *API) scrub(c echo.Context) error {
	if _, err := query(c); err != nil {
		return err
	}
	done, err := a.cfg.Scopes.Scrub(c.Request().Context())
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, scrubOf(done))
}

func (a *API) lastScrub(c echo.Context) error {
	if _, err := query(c); err != nil {
		return err
	}
	last, err := a.cfg.Scopes.ScrubStatus(c.Request().Context())
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, scrubOf(last))
}

func scrubOf(s store.Scrub) client.Scrub {
	out := client.Scrub{At: s.At, Due: s.Due}
	if !s.At.IsZero() {
		out.Took = s.Took.String()
	}
	return out
}
