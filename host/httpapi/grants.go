package httpapi

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/store"
)

// maxGrantCalls bounds the patterns of one grant.
const maxGrantCalls = 256

// grantParam reads the plugin that a grant is for. It must be there, so that
// there are no more grants than plugins.
func (a *API) grantParam(c echo.Context) (carrel.PluginName, error) {
	name, err := pluginParam(c)
	if err != nil {
		return "", err
	}
	_, err = a.cfg.Catalog.Plugin(c.Request().Context(), caller(c).Tenant, name)
	return name, err
}

func (a *API) getGrant(c echo.Context) error {
	name, err := a.grantParam(c)
	if err != nil {
		return err
	}
	g, err := a.cfg.Grants.Grant(c.Request().Context(), caller(c).Tenant, name)
	if err != nil {
		return err
	}
	return answerGrant(c, g)
}

func answerGrant(c echo.Context, g store.Grant) error {
	if g.Call == nil {
		g.Call = []string{}
	}
	return c.JSON(http.StatusOK, client.Grant{Call: g.Call, MemoryNamespace: string(g.Namespace)})
}

// putGrant replaces a plugin's grant; what the body leaves out is taken back.
func (a *API) putGrant(c echo.Context) error {
	name, err := a.grantParam(c)
	if err != nil {
		return err
	}
	var in struct {
		Call            []string        `json:"call"`
		HTTP            json.RawMessage `json:"http"`
		Secrets         json.RawMessage `json:"secrets"`
		MemoryNamespace *string         `json:"memoryNamespace"`
	}
	if err := a.readInto(c, &in); err != nil {
		return err
	}
	var faults []carrel.Fault
	for _, m := range []struct {
		name  string
		value json.RawMessage
	}{{"http", in.HTTP}, {"secrets", in.Secrets}} {
		if len(m.value) > 0 {
			faults = append(faults, carrel.Fault{Pointer: "/" + m.name, Message: "it is not supported by this host yet; leave it out"})
		}
	}
	g := store.Grant{Call: in.Call}
	if in.MemoryNamespace != nil && *in.MemoryNamespace != "" {
		// A namespace is named like a plugin; the two are never the same one.
		if _, err := carrel.ParsePluginName(*in.MemoryNamespace); err != nil {
			faults = append(faults, carrel.Fault{
				Pointer: "/memoryNamespace", Message: "it is a small letter, then up to 62 small letters, digits or hyphens",
			})
		}
		g.Namespace = carrel.Namespace(*in.MemoryNamespace)
	}
	for i, p := range in.Call {
		if _, err := carrel.ParseCallPattern(p); err != nil {
			faults = append(faults, carrel.Fault{
				Pointer: fmt.Sprintf("/call/%d", i), Message: "it is plugin/Service.method, plugin/Service.* or plugin/*",
			})
		}
	}
	if len(faults) > 0 {
		return &carrel.Error{Op: "httpapi.grants", Code: abi.BadRequest, Msg: "the grant is not acceptable; errors says where", Faults: faults}
	}
	if len(in.Call) > maxGrantCalls {
		return carrel.FailLimit("httpapi.grants", abi.LimitExceeded, "grantCalls",
			fmt.Sprintf("a grant has at most %d patterns in call", maxGrantCalls))
	}
	if err := a.cfg.Grants.SetGrant(c.Request().Context(), caller(c).Tenant, name, g); err != nil {
		return err
	}
	a.cfg.Log.Info("grant changed", "tenant", caller(c).Tenant, "plugin", name, "call", g.Call, "memoryNamespace", g.Namespace, "request", requestID(c))
	return answerGrant(c, g)
}
