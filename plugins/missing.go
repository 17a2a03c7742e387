package plugins

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/internal/spelling"
)

// maxNamed bounds how many plugins a misspelt name is held against.
const maxNamed = 1000

// Missing says, where Running answered not_found, what is not there: the
// plugin, an active version, or the version that was asked for. Its error has
// that code, too. It is for whoever may list the tenant's plugins. It goes by
// what the tenant itself has and never repeats a name that nothing has there,
// so what exists elsewhere answers as what exists nowhere.
func (c *Catalog) Missing(ctx context.Context, t carrel.TenantID, p carrel.PluginName) error {
	return c.missing(ctx, t, p, true)
}

// explained is err, or for not_found what is not there of a plugin, which need
// not be active.
func (c *Catalog) explained(ctx context.Context, t carrel.TenantID, p carrel.PluginName, err error) error {
	if carrel.CodeOf(err) != abi.NotFound {
		return err
	}
	return c.missing(ctx, t, p, false)
}

func (c *Catalog) missing(ctx context.Context, t carrel.TenantID, p carrel.PluginName, active bool) error {
	const op = "plugins.Missing"
	row, err := c.cfg.Store.Plugin(ctx, t, p)
	switch {
	case carrel.CodeOf(err) == abi.NotFound:
		return c.noPlugin(ctx, t, p)
	case err != nil:
		return fmt.Errorf("find plugin: %w", err)
	case active && row.Active == (carrel.Digest{}):
		return carrel.Fail(op, abi.NotFound, fmt.Sprintf(
			`%s has no active version; a publisher or owner activates one: PUT /api/v1/plugins/%s/active {"version": "1"}`, p, p))
	default:
		return carrel.Fail(op, abi.NotFound, fmt.Sprintf(
			"%s has no such version; GET /api/v1/plugins/%s/versions lists those it has", p, p))
	}
}

func (c *Catalog) noPlugin(ctx context.Context, t carrel.TenantID, p carrel.PluginName) error {
	rows, err := c.cfg.Store.ListPlugins(ctx, t, "", maxNamed)
	if err != nil {
		return fmt.Errorf("list plugins: %w", err)
	}
	names := make([]string, 0, len(rows))
	for _, r := range rows {
		names = append(names, string(r.Name))
	}
	text := "this tenant has no such plugin"
	switch near := spelling.Nearest(string(p), names); {
	case near != "":
		text += "; did you mean " + near + "?"
	case len(names) == 0:
		text += ", and no other yet; POST /api/v1/plugins uploads one"
	default:
		text += "; GET /api/v1/plugins lists those it has"
	}
	return carrel.Fail("plugins.Missing", abi.NotFound, text)
}

// NoMethod is not_found for names that Method does not find: it says whether
// the service or the method is not there, and which one may have been meant.
func (l *Loaded) NoMethod(s carrel.ServiceName, m carrel.MethodName) error {
	services, methods := map[string]bool{}, map[string]bool{}
	for at := range l.methods {
		services[string(at.service)] = true
		if at.service == s {
			methods[string(at.method)] = true
		}
	}
	text := fmt.Sprintf("version %d of %s has no such service", l.Version.N, l.Version.Plugin)
	name, names := string(s), slices.Sorted(maps.Keys(services))
	if len(methods) > 0 {
		text = fmt.Sprintf("the service %s has no such method in version %d of %s", s, l.Version.N, l.Version.Plugin)
		name, names = string(m), slices.Sorted(maps.Keys(methods))
	}
	return carrel.Fail("plugins.NoMethod", abi.NotFound, text+"; "+meant(name, names))
}

// meant says which of some names a wrong one may have been meant to be. A
// service's last part is often taken for its name.
func meant(name string, names []string) string {
	near := spelling.Nearest(name, names)
	if at := slices.IndexFunc(names, func(n string) bool { return strings.HasSuffix(n, "."+name) }); at >= 0 && near == "" {
		near = names[at]
	}
	if near != "" {
		return "did you mean " + near + "?"
	}
	const most = 5
	if len(names) > most {
		return fmt.Sprintf("it has %s and %d others", strings.Join(names[:most], ", "), len(names)-most)
	}
	return "it has " + strings.Join(names, ", ")
}
