package client

import (
	"context"
	"net/http"
	"net/url"
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
