package client

import (
	"context"
	"net/http"
	"net/url"
	"time"
)

// Grant is what the tenant's owner allows a plugin.
type Grant struct {
	Call []string `json:"call"` // plugin/Service.method, plugin/Service.* or plugin/*
	// MemoryNamespace is where the plugin's explicit memory ids live, together
	// with those of other plugins that are granted the same and whose manifests
	// ask for it; "" = in its own.
	MemoryNamespace string `json:"memoryNamespace,omitempty"`
}

// Grant reads what a plugin is granted.
func (c *Client) Grant(ctx context.Context, plugin string) (Grant, error) {
	var out Grant
	err := c.do(ctx, http.MethodGet, grantPath(plugin), nil, nil, &out)
	return out, err
}

// SetGrant replaces what a plugin is granted.
func (c *Client) SetGrant(ctx context.Context, plugin string, g Grant) (Grant, error) {
	if g.Call == nil {
		g.Call = []string{}
	}
	var out Grant
	err := c.do(ctx, http.MethodPut, grantPath(plugin), nil, g, &out)
	return out, err
}

func grantPath(plugin string) string { return "/api/v1/tenant/grants/" + url.PathEscape(plugin) }

// LogLine is a line of a plugin's log: what it wrote, and its traps with their
// stacks. The text is a guest's own: escape control characters where it is
// shown.
type LogLine struct {
	Seq       int64     `json:"seq"` // rises by one with each line
	At        time.Time `json:"at"`
	Level     string    `json:"level"` // debug, info, warn or error
	RequestID string    `json:"requestId"`
	Method    string    `json:"method"` // Service.method
	Text      string    `json:"text"`
}

// PluginLog reads a plugin's log, oldest line first. After is the Seq of the
// line that was read last: to follow a log, ask again with it.
func (c *Client) PluginLog(ctx context.Context, plugin string, o ListOptions) (Page[LogLine], error) {
	var out Page[LogLine]
	err := c.do(ctx, http.MethodGet, withQuery(pluginPath(plugin)+"/log", o.query()), nil, nil, &out)
	return out, err
}
