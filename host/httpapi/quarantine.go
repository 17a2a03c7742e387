package httpapi

import (
	"errors"
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
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
	var failed error
	p := pageOf(rows, limit, func(r quarantine.Record) client.CrashedModule {
		versions, err := a.cfg.Catalog.Crashed(c.Request().Context(), r)
		failed = errors.Join(failed, err)
		return crashedOf(r, versions)
	}, func(r quarantine.Record) string { return r.Digest.String() })
	if failed != nil {
		return failed
	}
	return a.answer(c, p)
}

func crashedOf(r quarantine.Record, versions []store.Version) client.CrashedModule {
	out := client.CrashedModule{Digest: r.Digest.String(), Tenants: []string{}, Versions: []client.CrashedVersion{}, Since: r.Since, Crashes: r.Crashes}
	for _, t := range r.Tenants {
		out.Tenants = append(out.Tenants, string(t))
	}
	for _, v := range versions {
		out.Versions = append(out.Versions, client.CrashedVersion{Tenant: string(v.Tenant), Plugin: string(v.Plugin), N: v.N})
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
	err = a.cfg.Catalog.Lift(c.Request().Context(), d)
	if carrel.CodeOf(err) == abi.NotFound {
		return carrel.Fail("httpapi.quarantine", abi.NotFound,
			"no module with this digest is listed as crashed; GET /admin/v1/quarantine has those that are")
	}
	if err != nil {
		return err
	}
	a.cfg.Log.Info("quarantine lifted", "digest", d, "request", requestID(c))
	return c.NoContent(http.StatusNoContent)
}

// shown is versionOf for whoever may see the version: it tells whether that is
// quarantined.
func (a *API) shown(v store.Version, active carrel.Digest) client.Version {
	out := versionOf(v, active)
	out.Quarantined = a.quarantined(v.Digest)
	return out
}

// quarantined says why a module does not run; nil if nothing keeps it.
func (a *API) quarantined(d carrel.Digest) *client.Quarantine {
	r, ok := a.cfg.Quarantine.Of(d)
	if !ok {
		return nil
	}
	return &client.Quarantine{Since: r.Since, Crashes: r.Crashes}
}
