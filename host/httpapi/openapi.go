package httpapi

import (
	_ "embed"
	"net/http"

	"github.com/labstack/echo/v4"
)

// document describes every route, in OpenAPI 3.1. It is written by hand; tests
// hold it against the routes and against answers of a running host.
//
//go:embed openapi.json
var document string

// openAPI answers with the description of the whole surface. It needs no key.
func (a *API) openAPI(c echo.Context) error {
	return c.Blob(http.StatusOK, echo.MIMEApplicationJSON, []byte(document))
}
