package httpapi

import (
	"strconv"

	"github.com/labstack/echo/v4"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/plugins"
)

// pluginLog reads a plugin's log. Unlike in other lists, after is no opaque
// cursor but a line's number, so that a reader can come back for what is new.
func (a *API) pluginLog(c echo.Context) error {
	q, err := query(c, "limit", "after")
	if err != nil {
		return err
	}
	name, err := carrel.ParsePluginName(param(c, "plugin"))
	if err != nil {
		return err
	}
	after := int64(0)
	if s, given := q["after"]; given {
		var ok bool
		if after, ok = number(s); !ok {
			return carrel.Fail("httpapi.log", abi.BadRequest, "after is the number of a line")
		}
	}
	delete(q, "after")
	limit, _, err := page(q)
	if err != nil {
		return err
	}
	t := caller(c).Tenant
	if _, err := a.cfg.Catalog.Plugin(c.Request().Context(), t, name); err != nil {
		return err
	}
	lines := a.cfg.PluginLog.After(t, name, after, limit+1)
	p := client.Page[client.LogLine]{Data: []client.LogLine{}}
	for i, l := range lines {
		if i == limit {
			p.Next = strconv.FormatInt(lines[i-1].Seq, 10)
			break
		}
		p.Data = append(p.Data, lineOf(l))
	}
	return a.answer(c, p)
}

func lineOf(e plugins.Entry) client.LogLine {
	levels := [...]string{"debug", "info", "warn", "error"}
	return client.LogLine{
		Seq: e.Seq, At: e.At, Level: levels[min(max(e.Level, 0), len(levels)-1)],
		RequestID: string(e.Request), Method: e.Method, Text: e.Text,
	}
}
