package httpapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	"github.com/labstack/echo/v4"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/host/scope"
	"github.com/carrelhost/carrel/store"
)

func (a *API) listPlugins(c echo.Context) error {
	q, err := query(c, "limit", "after")
	if err != nil {
		return err
	}
	limit, after, err := page(q)
	if err != nil {
		return err
	}
	ctx, t := c.Request().Context(), caller(c).Tenant
	rows, err := a.cfg.Catalog.List(ctx, t, carrel.PluginName(after), limit+1)
	if err != nil {
		return err
	}
	return a.answer(c, pageOf(rows, limit, a.pluginOf, func(p store.Plugin) string { return string(p.Name) }))
}

func (a *API) pluginOf(p store.Plugin) client.Plugin {
	out := client.Plugin{Name: string(p.Name), Versions: p.Versions, CreatedAt: p.CreatedAt}
	if p.Active != (carrel.Digest{}) {
		out.Active = &client.VersionID{Digest: p.Active.String(), N: p.ActiveN, Quarantined: a.quarantined(p.Active)}
	}
	return out
}

// answerPlugin answers with a plugin and its services.
func (a *API) answerPlugin(c echo.Context, p store.Plugin) error {
	out := a.pluginOf(p)
	if out.Active != nil {
		active, err := a.cfg.Catalog.Version(c.Request().Context(), p.Tenant, p.Name, carrel.VersionRef{Digest: p.Active})
		if err != nil {
			return err
		}
		var m abi.Manifest
		if err := json.Unmarshal(active.Manifest, &m); err != nil {
			return fmt.Errorf("stored manifest: %w", err)
		}
		out.Description = m.Description
		for _, s := range m.Services {
			service := client.Service{Name: s.Name, Description: s.Description, Scope: s.Scope, Methods: []string{}}
			for _, method := range s.Methods {
				service.Methods = append(service.Methods, carrel.Address{
					Plugin: p.Name, Service: carrel.ServiceName(s.Name), Method: carrel.MethodName(method.Name),
				}.String())
			}
			out.Services = append(out.Services, service)
		}
	}
	return c.JSON(http.StatusOK, out)
}

func (a *API) getPlugin(c echo.Context) error {
	name, err := pluginParam(c)
	if err != nil {
		return err
	}
	p, err := a.cfg.Catalog.Plugin(c.Request().Context(), caller(c).Tenant, name)
	if err != nil {
		return err
	}
	return a.answerPlugin(c, p)
}

// pluginParam reads the plugin that a route names; such routes take no query.
func pluginParam(c echo.Context) (carrel.PluginName, error) {
	if _, err := query(c); err != nil {
		return "", err
	}
	return carrel.ParsePluginName(param(c, "plugin"))
}

func (a *API) activate(c echo.Context) error {
	name, err := pluginParam(c)
	if err != nil {
		return err
	}
	var in client.Activate
	if err := a.readInto(c, &in); err != nil {
		return err
	}
	ref, err := carrel.ParseVersionRef(in.Version)
	if err != nil {
		return err
	}
	p, err := a.cfg.Catalog.Activate(c.Request().Context(), caller(c).Tenant, name, ref)
	if err != nil {
		return err
	}
	return a.answerPlugin(c, p)
}

func (a *API) rollback(c echo.Context) error {
	name, err := pluginParam(c)
	if err != nil {
		return err
	}
	p, err := a.cfg.Catalog.Rollback(c.Request().Context(), caller(c).Tenant, name)
	if err != nil {
		return err
	}
	return a.answerPlugin(c, p)
}

func (a *API) deactivate(c echo.Context) error {
	name, err := pluginParam(c)
	if err != nil {
		return err
	}
	closed, err := a.cfg.Catalog.Deactivate(c.Request().Context(), caller(c).Tenant, name)
	if err != nil {
		return err
	}
	return answerClosed(c, name, closed)
}

func (a *API) deletePlugin(c echo.Context) error {
	name, err := pluginParam(c)
	if err != nil {
		return err
	}
	closed, err := a.cfg.Catalog.Delete(c.Request().Context(), caller(c).Tenant, name)
	if err != nil {
		return err
	}
	a.cfg.PluginLog.Drop(caller(c).Tenant, name)
	return answerClosed(c, name, closed)
}

func answerClosed(c echo.Context, name carrel.PluginName, closed scope.Closed) error {
	return c.JSON(http.StatusOK, client.Deactivated{Plugin: string(name), Ended: client.Ended{
		Evicted: evictedOf(closed.Evicted), EvictionPending: closed.Pending,
	}})
}

func (a *API) listVersions(c echo.Context) error {
	q, err := query(c, "limit", "after")
	if err != nil {
		return err
	}
	name, err := carrel.ParsePluginName(param(c, "plugin"))
	if err != nil {
		return err
	}
	limit, at, err := page(q)
	if err != nil {
		return err
	}
	before, err := numberCursor(at, 0)
	if err != nil {
		return err
	}
	ctx, t := c.Request().Context(), caller(c).Tenant
	p, err := a.cfg.Catalog.Plugin(ctx, t, name)
	if err != nil {
		return err
	}
	rows, err := a.cfg.Catalog.ListVersions(ctx, t, name, int(before), limit+1)
	if err != nil {
		return err
	}
	return a.answer(c, pageOf(rows, limit,
		func(v store.Version) client.Version { return a.shown(v, p.Active) },
		func(v store.Version) string { return strconv.Itoa(v.N) }))
}

func versionOf(v store.Version, active carrel.Digest) client.Version {
	return client.Version{
		Digest: v.Digest.String(), N: v.N, Active: v.Digest == active, Bytes: v.Bytes, CreatedAt: v.CreatedAt,
	}
}

// versionParam finds the version that a route names.
func (a *API) versionParam(c echo.Context) (store.Version, error) {
	name, err := pluginParam(c)
	if err != nil {
		return store.Version{}, err
	}
	ref, err := carrel.ParseVersionRef(param(c, "version"))
	if err != nil {
		return store.Version{}, err
	}
	return a.cfg.Catalog.Version(c.Request().Context(), caller(c).Tenant, name, ref)
}

func (a *API) getVersion(c echo.Context) error {
	v, err := a.versionParam(c)
	if err != nil {
		return err
	}
	p, err := a.cfg.Catalog.Plugin(c.Request().Context(), v.Tenant, v.Plugin)
	if err != nil {
		return err
	}
	out := a.shown(v, p.Active)
	out.Manifest, out.Report = v.Manifest, v.Report
	return a.answer(c, out)
}

func (a *API) getManifest(c echo.Context) error {
	v, err := a.versionParam(c)
	if err != nil {
		return err
	}
	return a.answerJSON(c, v.Manifest)
}

func (a *API) getReport(c echo.Context) error {
	v, err := a.versionParam(c)
	if err != nil {
		return err
	}
	return a.answerJSON(c, v.Report)
}

func (a *API) getModule(c echo.Context) error {
	v, err := a.versionParam(c)
	if err != nil {
		return err
	}
	out := a.unsentOf(c)
	defer out.release()
	if err := out.hold(c.Request().Context(), v.Bytes); err != nil {
		return err
	}
	b, err := a.cfg.Catalog.Module(c.Request().Context(), v.Tenant, v.Plugin, v.Digest)
	if err != nil {
		return err
	}
	return out.send(c, "application/wasm", b)
}

func (a *API) deleteVersion(c echo.Context) error {
	v, err := a.versionParam(c)
	if err != nil {
		return err
	}
	if err := a.cfg.Catalog.DeleteVersion(c.Request().Context(), v.Tenant, v.Plugin, carrel.VersionRef{Digest: v.Digest}); err != nil {
		return err
	}
	return c.NoContent(http.StatusNoContent)
}
