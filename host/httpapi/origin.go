package httpapi

import (
	"net/http"
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
	if len(values) == 1 && (sameOrigin(origin, r) || a.allowsOrigin(origin)) {
		return origin, nil
	}
	return "", carrel.Fail("httpapi.origin", abi.Forbidden,
		"this host does not take WebSockets from pages of that origin; the operator can add it to `allowedOrigins`")
}

// sameOrigin reports whether an origin is the one at which this request
// reached the host: scheme, name and port, and nothing else. A host behind a
// proxy that does TLS cannot know its own; there it is in AllowedOrigins.
func sameOrigin(origin string, r *http.Request) bool {
	scheme, port := "http", ":80"
	if r.TLS != nil {
		scheme, port = "https", ":443"
	}
	host := strings.TrimSuffix(strings.ToLower(r.Host), port) // browsers leave it out
	return host != "" && origin == scheme+"://"+host
}

func (a *API) allowsOrigin(origin string) bool {
	for _, o := range a.cfg.AllowedOrigins {
		if strings.EqualFold(o, origin) {
			return true
		}
	}
	return false
}
