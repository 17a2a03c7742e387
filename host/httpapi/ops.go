package httpapi

import (
	"net/http"

	"github.com/labstack/echo/v4"
)

// live answers as long as the process serves at all.
func (a *API) live(c echo.Context) error {
	return c.JSON(http.StatusOK, map[string]string{"status": "ok"})
}

// ready answers ok while the host takes work.
func (a *API) ready(c echo.Context) error {
	if err := a.cfg.Ready(); err != nil {
		return err
	}
	return c.JSON(http.StatusOK, map[string]string{"status": "ok"})
}

func (a *API) version(c echo.Context) error {
	return c.JSON(http.StatusOK, a.cfg.Version)
}
