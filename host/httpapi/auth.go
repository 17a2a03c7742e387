package httpapi

import (
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/tenant"
)

// credential is the one extractor of API keys: `Authorization: Bearer` or
// `x-api-key`. Two different ones are bad_request, none is unauthenticated.
func credential(r *http.Request) (string, error) {
	const op = "httpapi.credential"
	var found []string
	for _, v := range r.Header.Values("Authorization") {
		scheme, secret, _ := strings.Cut(v, " ")
		if !strings.EqualFold(scheme, "Bearer") {
			return "", carrel.Fail(op, abi.Unauthenticated, "send the API key as `Authorization: Bearer KEY`")
		}
		found = append(found, strings.TrimSpace(secret))
	}
	found = append(found, r.Header.Values("X-Api-Key")...)
	if len(found) == 0 {
		return "", carrel.Fail(op, abi.Unauthenticated, "send an API key as `Authorization: Bearer KEY`")
	}
	for _, other := range found[1:] {
		if other != found[0] {
			return "", carrel.Fail(op, abi.BadRequest, "the request carries two different API keys; send one")
		}
	}
	return found[0], nil
}

// authenticated is middleware of the data plane: it finds out who calls.
func (a *API) authenticated(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := c.Request()
		secret, err := credential(r)
		if err != nil {
			return err
		}
		key, err := a.cfg.Tenants.Authenticate(r.Context(), secret)
		if err != nil {
			return err
		}
		var asserted *string
		if values := r.Header.Values(headerSubject); len(values) > 0 {
			asserted = &values[0]
		}
		caller, err := tenant.Caller(key, asserted)
		if err != nil {
			return err
		}
		exchangeOf(c).caller = &caller
		return next(c)
	}
}

// asAdmin is middleware of the administration: only the host's own key.
func (a *API) asAdmin(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		secret, err := credential(c.Request())
		if err != nil {
			return err
		}
		if !a.cfg.Admin.Is(secret) {
			return carrel.Fail("httpapi.asAdmin", abi.Unauthenticated,
				"this is not the key of the host's administrator (CARREL_ADMIN_KEY, or the file admin.key in the data directory)")
		}
		return next(c)
	}
}

// publishing returns middleware: it lets those pass who may change plugins.
// what is that which others may not.
func publishing(what string) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			if !caller(c).MayPublish() {
				return carrel.Fail("httpapi.publishing", abi.Forbidden,
					"this API key's role may not "+what+"; use one of role publisher or owner")
			}
			return next(c)
		}
	}
}

// invoking is middleware: it lets those pass who may call methods, and so have
// sessions.
func invoking(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if !caller(c).MayInvoke() {
			return carrel.Fail("httpapi.invoking", abi.Forbidden,
				"this API key's role may not call methods; use one of role caller or owner")
		}
		return next(c)
	}
}

// owning is middleware: it lets the tenant's owners pass.
func owning(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if caller(c).Role != carrel.RoleOwner {
			return carrel.Fail("httpapi.owning", abi.Forbidden, "this is for the tenant's owner; use a key of that role")
		}
		return next(c)
	}
}

// inspecting is middleware: it lets those pass who may read what a plugin is
// made of. A caller may not: system messages are not its business.
func inspecting(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if caller(c).Role == carrel.RoleCaller {
			return carrel.Fail("httpapi.inspecting", abi.Forbidden,
				"this API key's role may not read versions; use one of role viewer, publisher or owner")
		}
		return next(c)
	}
}
