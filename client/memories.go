package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"
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

// Window reads what the next call of a method of the history's plugin, such as
// com.acme.MyChat.chat, would send of the history.
func (c *Client) Window(ctx context.Context, key, method string) ([]Message, error) {
	var out Page[Message]
	q := url.Values{"view": {"window"}, "method": {method}}
	err := c.do(ctx, http.MethodGet, withQuery(memoryPath(key)+"/messages", q), nil, nil, &out)
	return out.Data, err
}

// DeleteTurn deletes one turn of a history, which stays.
func (c *Client) DeleteTurn(ctx context.Context, key string, turn int64) error {
	return c.do(ctx, http.MethodDelete, memoryPath(key)+"/turns/"+strconv.FormatInt(turn, 10), nil, nil, nil)
}

// DeleteMemory ends a history.
func (c *Client) DeleteMemory(ctx context.Context, key string) (Ended, error) {
	var out Ended
	err := c.do(ctx, http.MethodDelete, memoryPath(key), nil, nil, &out)
	return out, err
}

func memoryPath(key string) string { return "/api/v1/memories/" + url.PathEscape(key) }

// EraseSubject ends every history that an end user's calls touched. If it
// fails, what was erased stays erased, and another call goes on.
func (c *Client) EraseSubject(ctx context.Context, subject string) (Erased, error) {
	var out Erased
	err := c.do(ctx, http.MethodPost, "/api/v1/subjects/erase", nil, Erase{subject}, &out)
	return out, err
}

// Evictions lists the records of histories that ended at or after since (zero
// = all that are kept), the oldest first.
func (c *Client) Evictions(ctx context.Context, since time.Time, o ListOptions) (Page[EvictionRecord], error) {
	q := o.query()
	if !since.IsZero() {
		q.Set("since", since.Format(time.RFC3339Nano))
	}
	var out Page[EvictionRecord]
	err := c.do(ctx, http.MethodGet, withQuery("/api/v1/evictions", q), nil, nil, &out)
	return out, err
}
