package httpapi

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
)

// checkOrigin refuses (forbidden) a WebSocket that a foreign web page opens:
// browsers let every page do so, and say which it is. It returns the origin in
// small letters; "" = it is no web page.
func (a *API) checkOrigin(r *http.Request) (string, error) {
	values := r.Header.Values(echo.HeaderOrigin)
	if len(values) == 0 {
		return "", nil
	}
	origin := strings.ToLower(values[0])
	if len(values) == 1 && (sameHost(origin, r.Host) || a.allowsOrigin(origin)) {
		return origin, nil
	}
	return "", carrel.Fail("httpapi.origin", abi.Forbidden,
		"this host does not take WebSockets from pages of that origin; the operator can add it to `allowedOrigins`")
}

func sameHost(origin, host string) bool {
	u, err := url.Parse(origin)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && strings.EqualFold(u.Host, host)
}

func (a *API) allowsOrigin(origin string) bool {
	for _, o := range a.cfg.AllowedOrigins {
		if strings.EqualFold(o, origin) {
			return true
		}
	}
	return false
}
