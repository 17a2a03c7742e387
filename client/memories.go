package client

import (
	"context"
	"net/http"
	"net/url"
)

// MemoryFilter picks histories.
type MemoryFilter struct {
	Plugin string // "" = of every plugin
	Prefix string // of the memory id; "" = all
}

// Memories lists the histories that the key may see.
func (c *Client) Memories(ctx context.Context, f MemoryFilter, o ListOptions) (Page[Memory], error) {
	q := o.query()
	if f.Plugin != "" {
		q.Set("plugin", f.Plugin)
	}
	if f.Prefix != "" {
		q.Set("prefix", f.Prefix)
	}
	var out Page[Memory]
	err := c.do(ctx, http.MethodGet, withQuery("/api/v1/memories", q), nil, nil, &out)
	return out, err
}

// Messages reads a history, oldest message first.
func (c *Client) Messages(ctx context.Context, key string, o ListOptions) (Page[Message], error) {
	var out Page[Message]
	err := c.do(ctx, http.MethodGet, withQuery(memoryPath(key)+"/messages", o.query()), nil, nil, &out)
	return out, err
}

// DeleteMemory ends a history.
func (c *Client) DeleteMemory(ctx context.Context, key string) (Ended, error) {
	var out Ended
	err := c.do(ctx, http.MethodDelete, memoryPath(key), nil, nil, &out)
	return out, err
}

func memoryPath(key string) string { return "/api/v1/memories/" + url.PathEscape(key) }
