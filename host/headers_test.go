package host_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/carrelhost/carrel/internal/testenv"
)

func TestAHeaderOfAFeatureThatARouteDoesNotHaveIsRefused(t *testing.T) {
	const call, socket = "POST " + methodPath, "GET /api/v1/ws"
	env := testenv.New(t, testenv.Config())
	nothing := things{plugin: "bot", version: "1", key: "x", tenant: "acme", session: "ses_x", invocation: "req_x"}
	for name, takes := range map[string]struct {
		value string
		route func(r route) bool
	}{
		"Carrel-Session":       {"ses_00000000-0000-4000-8000-000000000000", func(r route) bool { return r.String() == call || r.String() == socket }},
		"Carrel-Timeout":       {"1s", func(r route) bool { return r.String() == call }},
		"Carrel-On-Conflict":   {"wait", func(r route) bool { return r.String() == call }},
		"Carrel-On-Disconnect": {"cancel", func(r route) bool { return r.String() == call }},
		"Idempotency-Key":      {"once", func(r route) bool { return r.String() == call }},
		"Carrel-Subject":       {"ada", func(r route) bool { return r.who != admin }},
		"Carrel-Budget":        {"1", func(route) bool { return false }},
	} {
		for _, r := range routes {
			if r.who == anyone && r.path != "/api/v1/openapi.json" {
				continue // they tell nothing of a tenant and do nothing
			}
			t.Run(name+" on "+r.String(), func(t *testing.T) {
				// Nobody's key shows whether the header came first, and does nothing.
				ans := env.Anyone("").With(name, takes.value).Do(r.method, r.at(nothing), "")
				want := http.StatusBadRequest
				switch {
				case takes.route(r) && r.who == anyone:
					want = http.StatusOK
				case takes.route(r):
					want = http.StatusUnauthorized
				}
				if ans.Status != want || want == http.StatusBadRequest && !strings.Contains(ans.Problem(t).Detail, name) {
					t.Errorf("it is answered with %d %s, want %d", ans.Status, ans.Body, want)
				}
			})
		}
	}
}
