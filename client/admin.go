package client

import (
	"context"
	"net/http"
	"net/url"
	"time"
)

// CreateTenant adds a tenant; Key must be the administrator's.
func (c *Client) CreateTenant(ctx context.Context, name string) (Tenant, error) {
	var out Tenant
	err := c.do(ctx, http.MethodPost, "/admin/v1/tenants", nil, NewTenant{name}, &out)
	return out, err
}

// Tenants lists the host's tenants; Key must be the administrator's.
func (c *Client) Tenants(ctx context.Context, o ListOptions) (Page[Tenant], error) {
	var out Page[Tenant]
	err := c.do(ctx, http.MethodGet, withQuery("/admin/v1/tenants", o.query()), nil, nil, &out)
	return out, err
}

// CreateKey makes an API key of a tenant; Key must be the administrator's.
func (c *Client) CreateKey(ctx context.Context, tenant string, k NewKey) (Key, error) {
	var out Key
	err := c.do(ctx, http.MethodPost, "/admin/v1/tenants/"+url.PathEscape(tenant)+"/keys", nil, k, &out)
	return out, err
}

// Scrub is what a host knows of the last time that it took what was deleted
// off its disk.
type Scrub struct {
	At   time.Time `json:"at,omitzero"`    // when it ended; absent: there was none
	Took string    `json:"took,omitempty"` // a duration, such as 12ms
	Due  bool      `json:"due"`            // something was deleted since, and may still be on the disk
}

// Scrub takes what was deleted off the host's disk, and returns when that is
// done; writes wait meanwhile. Key must be the administrator's.
func (c *Client) Scrub(ctx context.Context) (Scrub, error) {
	var out Scrub
	err := c.do(ctx, http.MethodPost, "/admin/v1/scrub", nil, nil, &out)
	return out, err
}

// LastScrub says when the host was last scrubbed; Key must be the
// administrator's.
func (c *Client) LastScrub(ctx context.Context) (Scrub, error) {
	var out Scrub
	err := c.do(ctx, http.MethodGet, "/admin/v1/scrub", nil, nil, &out)
	return out, err
}
