package client

import (
	"context"
	"net/http"
	"net/url"
)

// UploadOptions are the choices of an upload.
type UploadOptions struct {
	Inactive bool // do not activate the version
	DryRun   bool // only say what would happen
}

func (o UploadOptions) query() url.Values {
	q := url.Values{}
	if o.Inactive {
		q.Set("activate", "false")
	}
	if o.DryRun {
		q.Set("dryRun", "true")
	}
	return q
}

// Upload sends a module. The same bytes again are the same version.
func (c *Client) Upload(ctx context.Context, module []byte, o UploadOptions) (Uploaded, error) {
	var out Uploaded
	err := c.do(ctx, http.MethodPost, withQuery("/api/v1/plugins", o.query()),
		http.Header{"Content-Type": {"application/wasm"}}, module, &out)
	return out, err
}

// Plugins lists the tenant's plugins.
func (c *Client) Plugins(ctx context.Context, o ListOptions) (Page[Plugin], error) {
	var out Page[Plugin]
	err := c.do(ctx, http.MethodGet, withQuery("/api/v1/plugins", o.query()), nil, nil, &out)
	return out, err
}

// Plugin describes one plugin with its services.
func (c *Client) Plugin(ctx context.Context, name string) (Plugin, error) {
	var out Plugin
	err := c.do(ctx, http.MethodGet, pluginPath(name), nil, nil, &out)
	return out, err
}

// Versions lists a plugin's versions, newest first.
func (c *Client) Versions(ctx context.Context, name string, o ListOptions) (Page[Version], error) {
	var out Page[Version]
	err := c.do(ctx, http.MethodGet, withQuery(pluginPath(name)+"/versions", o.query()), nil, nil, &out)
	return out, err
}

// Version describes a version, given by digest or number, with its manifest
// and report.
func (c *Client) Version(ctx context.Context, name, version string) (Version, error) {
	var out Version
	err := c.do(ctx, http.MethodGet, pluginPath(name)+"/versions/"+url.PathEscape(version), nil, nil, &out)
	return out, err
}

// Report returns what a version's admission found, the version given by digest
// or number.
func (c *Client) Report(ctx context.Context, name, version string) (Report, error) {
	var out Report
	err := c.do(ctx, http.MethodGet, pluginPath(name)+"/versions/"+url.PathEscape(version)+"/report", nil, nil, &out)
	return out, err
}

// Module returns a version's bytes.
func (c *Client) Module(ctx context.Context, name, version string) ([]byte, error) {
	var out []byte
	err := c.do(ctx, http.MethodGet, pluginPath(name)+"/versions/"+url.PathEscape(version)+"/module", nil, nil, &out)
	return out, err
}

// Activate makes a version, given by digest or number, the active one.
func (c *Client) Activate(ctx context.Context, name, version string) (Plugin, error) {
	var out Plugin
	err := c.do(ctx, http.MethodPut, pluginPath(name)+"/active", nil, Activate{version}, &out)
	return out, err
}

// Rollback activates the version that was active before.
func (c *Client) Rollback(ctx context.Context, name string) (Plugin, error) {
	var out Plugin
	err := c.do(ctx, http.MethodPost, pluginPath(name)+"/rollback", nil, nil, &out)
	return out, err
}

// Deactivate leaves the plugin without an active version, which closes its
// application scope.
func (c *Client) Deactivate(ctx context.Context, name string) (Deactivated, error) {
	var out Deactivated
	err := c.do(ctx, http.MethodDelete, pluginPath(name)+"/active", nil, nil, &out)
	return out, err
}

// DeletePlugin removes a plugin with all versions, which closes its
// application scope.
func (c *Client) DeletePlugin(ctx context.Context, name string) (Deactivated, error) {
	var out Deactivated
	err := c.do(ctx, http.MethodDelete, pluginPath(name), nil, nil, &out)
	return out, err
}

// DeleteVersion removes a version that is not active.
func (c *Client) DeleteVersion(ctx context.Context, name, version string) error {
	return c.do(ctx, http.MethodDelete, pluginPath(name)+"/versions/"+url.PathEscape(version), nil, nil, nil)
}

func pluginPath(name string) string { return "/api/v1/plugins/" + url.PathEscape(name) }
