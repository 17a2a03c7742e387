package httpapi

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/host/quarantine"
	"github.com/carrelhost/carrel/store"
)

// listQuarantine lists what ran at crashes, of all tenants.
func (a *API) listQuarantine(c echo.Context) error {
	q, err := query(c, "limit", "after")
	if err != nil {
		return err
	}
	limit, at, err := page(q)
	if err != nil {
		return err
	}
	var after carrel.Digest
	if at != "" {
		if after, err = carrel.ParseDigest(at); err != nil {
			return badCursor()
		}
	}
	rows := a.cfg.Quarantine.After(after, limit+1)
	return a.answer(c, pageOf(rows, limit, crashedOf, func(r quarantine.Record) string { return r.Digest.String() }))
}

func crashedOf(r quarantine.Record) client.CrashedModule {
	out := client.CrashedModule{Digest: r.Digest.String(), Tenants: []string{}, Since: r.Since, Crashes: r.Crashes}
	for _, t := range r.Tenants {
		out.Tenants = append(out.Tenants, string(t))
	}
	return out
}

func (a *API) liftQuarantine(c echo.Context) error {
	if _, err := query(c); err != nil {
		return err
	}
	d, err := carrel.ParseDigest(param(c, "digest"))
	if err != nil {
		return err
	}
	if err := a.cfg.Quarantine.Lift(d); err != nil {
		return err
	}
	a.cfg.Log.Info("quarantine lifted", "digest", d, "request", requestID(c))
	return c.NoContent(http.StatusNoContent)
}

// shown is versionOf for whoever may see the version: it tells whether that is
// quarantined.
func (a *API) shown(v store.Version, active carrel.Digest) client.Version {
	out := versionOf(v, active)
	if r, ok := a.cfg.Quarantine.Of(v.Digest); ok {
		out.Quarantined = &client.Quarantine{Since: r.Since, Crashes: r.Crashes}
	}
	return out
}
