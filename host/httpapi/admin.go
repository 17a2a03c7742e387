package httpapi

import (
	"context"
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/host/tenant"
	"github.com/carrelhost/carrel/internal/spelling"
	"github.com/carrelhost/carrel/store"
)

func (a *API) createTenant(c echo.Context) error {
	var in client.NewTenant
	if err := a.readInto(c, &in); err != nil {
		return err
	}
	id, err := carrel.ParseTenantID(in.Name)
	if err != nil {
		return err
	}
	t, err := a.cfg.Tenants.CreateTenant(c.Request().Context(), id)
	if err != nil {
		return err
	}
	a.cfg.Log.Info("tenant created", "tenant", id, "request", requestID(c))
	return c.JSON(http.StatusCreated, tenantOf(t))
}

func tenantOf(t store.Tenant) client.Tenant {
	return client.Tenant{Name: string(t.ID), CreatedAt: t.CreatedAt}
}

func (a *API) listTenants(c echo.Context) error {
	q, err := query(c, "limit", "after")
	if err != nil {
		return err
	}
	limit, after, err := page(q)
	if err != nil {
		return err
	}
	rows, err := a.cfg.Tenants.List(c.Request().Context(), carrel.TenantID(after), limit+1)
	if err != nil {
		return err
	}
	return a.answer(c, pageOf(rows, limit, tenantOf, func(t store.Tenant) string { return string(t.ID) }))
}

func (a *API) createKey(c echo.Context) error {
	t, err := carrel.ParseTenantID(param(c, "tenant"))
	if err != nil {
		return err
	}
	var in client.NewKey
	if err := a.readInto(c, &in); err != nil {
		return err
	}
	m := tenant.Mint{Tenant: t, Name: in.Name, AssertSubject: in.AssertSubject}
	if m.Role, err = carrel.ParseKeyRole(in.Role); err != nil {
		return err
	}
	if in.Subject != "" {
		if m.Subject, err = carrel.ParseSubject(in.Subject); err != nil {
			return err
		}
	}
	k, secret, err := a.cfg.Tenants.MintAsAdmin(c.Request().Context(), m)
	if carrel.CodeOf(err) == abi.NotFound {
		return a.noTenant(c.Request().Context(), t)
	}
	if err != nil {
		return err
	}
	a.cfg.Log.Info("API key created", "tenant", t, "key", k.ID, "role", k.Role, "request", requestID(c))
	return c.JSON(http.StatusCreated, client.Key{ID: string(k.ID), Role: string(k.Role), Secret: secret})
}

// noTenant tells the administrator that there is no such tenant, and which one
// may have been meant.
func (a *API) noTenant(ctx context.Context, t carrel.TenantID) error {
	const most = 1000 // tenants that the name is held against
	rows, err := a.cfg.Tenants.List(ctx, "", most)
	if err != nil {
		return err
	}
	names := make([]string, 0, len(rows))
	for _, r := range rows {
		names = append(names, string(r.ID))
	}
	text := "there is no such tenant; GET /admin/v1/tenants lists those there are"
	if near := spelling.Nearest(string(t), names); near != "" {
		text = "there is no such tenant; did you mean " + near + "?"
	}
	return carrel.Fail("httpapi.admin", abi.NotFound, text)
}
