package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"time"
)

// NewSession asks for a session. Durations are such as "30m"; empty = the
// host's default.
type NewSession struct {
	IdleTTL  string          `json:"idleTtl,omitempty"`
	MaxTTL   string          `json:"maxTtl,omitempty"`
	Metadata json.RawMessage `json:"metadata,omitempty"` // a JSON object of at most 4 KiB
}

// Session is an HTTP session. Its id is no credential: only its owner, the
// API key and subject that opened it, may use it.
type Session struct {
	ID         string          `json:"id"`
	Key        string          `json:"key"` // the owner's API key, by its id
	Subject    string          `json:"subject,omitempty"`
	IdleTTL    string          `json:"idleTtl"`
	MaxTTL     string          `json:"maxTtl"`
	Metadata   json.RawMessage `json:"metadata,omitempty"`
	CreatedAt  time.Time       `json:"createdAt"`
	LastUsedAt time.Time       `json:"lastUsedAt"`
	ExpiresAt  time.Time       `json:"expiresAt"` // if it is not used before
}

// ClosedSession is the answer of a session's end.
type ClosedSession struct {
	ID string `json:"id"`
	Ended
}

// OpenSession opens a session.
func (c *Client) OpenSession(ctx context.Context, n NewSession) (Session, error) {
	var out Session
	err := c.do(ctx, http.MethodPost, "/api/v1/sessions", nil, n, &out)
	return out, err
}

// Session reads a session; one that is closed is session_closed.
func (c *Client) Session(ctx context.Context, id string) (Session, error) {
	var out Session
	err := c.do(ctx, http.MethodGet, sessionPath(id), nil, nil, &out)
	return out, err
}

// Sessions lists the open sessions of the key; for an owner of the tenant, all.
func (c *Client) Sessions(ctx context.Context, o ListOptions) (Page[Session], error) {
	var out Page[Session]
	err := c.do(ctx, http.MethodGet, withQuery("/api/v1/sessions", o.query()), nil, nil, &out)
	return out, err
}

// CloseSession ends a session, and what was touched in it. A closed one
// answers the same again for a while.
func (c *Client) CloseSession(ctx context.Context, id string) (ClosedSession, error) {
	var out ClosedSession
	err := c.do(ctx, http.MethodDelete, sessionPath(id), nil, nil, &out)
	return out, err
}

func sessionPath(id string) string { return "/api/v1/sessions/" + url.PathEscape(id) }

// NewTicket asks for a ticket, with which a web page may open one WebSocket.
type NewTicket struct {
	Session string `json:"session,omitempty"` // to be attached to
	Origin  string `json:"origin,omitempty"`  // of the page; "" = the request's own Origin, if it has one
}

// Ticket opens one WebSocket, once.
type Ticket struct {
	Ticket    string    `json:"ticket"`
	ExpiresAt time.Time `json:"expiresAt"`
}

// NewTicket makes a ticket.
func (c *Client) NewTicket(ctx context.Context, n NewTicket) (Ticket, error) {
	var out Ticket
	err := c.do(ctx, http.MethodPost, "/api/v1/ws-tickets", nil, n, &out)
	return out, err
}
