package client

import (
	"context"
	"net/http"
	"net/url"
	"time"
)

// Quarantine says why a version does not run.
type Quarantine struct {
	Since   time.Time   `json:"since"`   // when it was quarantined
	Crashes []time.Time `json:"crashes"` // of the host, at which it ran, oldest first
}

// CrashedModule is a module that ran when the host crashed.
type CrashedModule struct {
	Digest   string           `json:"digest"`         // of its bytes, as that of a version
	Tenants  []string         `json:"tenants"`        // who ran it then; not all, if many did
	Versions []CrashedVersion `json:"versions"`       // what it is to those tenants; without what they deleted
	Since    time.Time        `json:"since,omitzero"` // when it was quarantined; absent: it is not
	Crashes  []time.Time      `json:"crashes"`        // at which it ran, oldest first
}

// CrashedVersion is the version of a tenant that ran when the host crashed.
type CrashedVersion struct {
	Tenant string `json:"tenant"`
	Plugin string `json:"plugin"`
	N      int    `json:"n"`
}

// CrashedModules lists the modules that ran when the host crashed, those that
// are quarantined and those that ran at one crash so far, by digest; Key must
// be the administrator's.
func (c *Client) CrashedModules(ctx context.Context, o ListOptions) (Page[CrashedModule], error) {
	var out Page[CrashedModule]
	err := c.do(ctx, http.MethodGet, withQuery("/admin/v1/quarantine", o.query()), nil, nil, &out)
	return out, err
}

// LiftQuarantine forgets at which crashes a module ran, so that it runs again;
// Key must be the administrator's. not_found if there is no such digest.
func (c *Client) LiftQuarantine(ctx context.Context, digest string) error {
	return c.do(ctx, http.MethodDelete, "/admin/v1/quarantine/"+url.PathEscape(digest), nil, nil, nil)
}
