// Package client is the typed Go client of a Carrel host, and the shapes of
// its HTTP requests and responses, which the host itself uses.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/carrelhost/carrel"
)

// Client talks to one host with one API key. Its zero value is not usable;
// set Base and Key. It is safe for concurrent use. Errors of the host are
// *Problem values.
type Client struct {
	Base string       // such as http://127.0.0.1:8080
	Key  string       // an API key's secret, or the administrator's
	HTTP *http.Client // nil = http.DefaultClient

	// Subject, if not empty, is sent as Carrel-Subject.
	Subject string
}

// maxAnswer bounds what the client reads of one answer.
const maxAnswer = 64 << 20

// do sends one request. in is the body: nil, []byte, streamed, or what is sent as JSON.
// out, if not nil, receives the answer: *[]byte as it is, else decoded JSON.
func (c *Client) do(ctx context.Context, method, path string, header http.Header, in, out any) error {
	_, err := c.exchange(ctx, method, path, header, in, out)
	return err
}

// exchange is do that returns the answer's headers, too.
func (c *Client) exchange(ctx context.Context, method, path string, header http.Header, in, out any) (http.Header, error) {
	resp, err := c.send(ctx, method, path, header, in)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close() //nolint:errcheck // a body that was read
	if resp.StatusCode/100 != 2 {
		return nil, failure(resp)
	}
	answer, err := readAnswer(resp)
	if err != nil {
		return nil, err
	}
	return resp.Header, decode(answer, out)
}

// send sends one request. The caller closes the answer's body.
func (c *Client) send(ctx context.Context, method, path string, header http.Header, in any) (*http.Response, error) {
	body, kind, err := encode(in)
	if err != nil {
		return nil, err
	}
	var sent atomic.Bool // also if it was on a connection that is given up for another
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() { sent.Store(true) }})
	req, err := http.NewRequestWithContext(traced, method, strings.TrimSuffix(c.Base, "/")+path, body)
	if err != nil {
		return nil, fmt.Errorf("carrel client: %w", err)
	}
	if s, ok := in.(streamed); ok && s.size > 0 {
		req.ContentLength = s.size
	}
	for name, values := range header {
		req.Header[name] = values
	}
	if kind != "" && req.Header.Get("Content-Type") == "" {
		req.Header.Set("Content-Type", kind)
	}
	c.identify(req.Header)
	resp, err := c.http().Do(req)
	if err != nil && sent.Load() && ctx.Err() == nil {
		err = brokenOff(err)
	}
	if err != nil {
		return nil, fmt.Errorf("carrel client: %w", err)
	}
	return resp, nil
}

// identify says in a request's headers who sends it.
func (c *Client) identify(h http.Header) {
	if c.Key != "" {
		h.Set("Authorization", "Bearer "+c.Key)
	}
	if c.Subject != "" {
		h.Set("Carrel-Subject", c.Subject)
	}
}

func (c *Client) http() *http.Client {
	if c.HTTP != nil {
		return c.HTTP
	}
	return http.DefaultClient
}

func readAnswer(resp *http.Response) ([]byte, error) {
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return nil, fmt.Errorf("carrel client: read answer: %w", brokenOff(err))
	}
	if len(answer) > maxAnswer {
		return nil, fmt.Errorf("carrel client: the answer is larger than %d bytes", maxAnswer)
	}
	return answer, nil
}

func encode(in any) (body io.Reader, kind string, err error) {
	switch in := in.(type) {
	case nil:
		return nil, "", nil
	case []byte:
		return bytes.NewReader(in), "application/octet-stream", nil
	case streamed:
		return io.NopCloser(in.Reader), "application/octet-stream", nil
	}
	b, err := json.Marshal(in)
	if err != nil {
		return nil, "", fmt.Errorf("carrel client: encode request: %w", err)
	}
	return bytes.NewReader(b), "application/json", nil
}

// failure is the error that an answer without success means.
func failure(resp *http.Response) error {
	answer, err := readAnswer(resp)
	if err != nil {
		return err
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	p := new(Problem)
	if kind != ProblemType || json.Unmarshal(answer, p) != nil {
		return fmt.Errorf("carrel client: %s answered %s, and not as a Carrel host would", resp.Request.URL.Host, resp.Status)
	}
	return p
}

func decode(answer []byte, out any) error {
	switch out := out.(type) {
	case nil:
		return nil
	case *[]byte:
		*out = answer
		return nil
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return fmt.Errorf("carrel client: decode answer: %w", err)
	}
	return nil
}

// CallOptions are the choices of one invocation.
type CallOptions struct {
	Timeout    string      // such as "20s"; "" = the host's
	RejectBusy bool        // fail with memory_busy instead of waiting for the turn
	Detached   bool        // go on when this client goes away
	Session    string      // the HTTP session that the call is made in, or ""
	Header     http.Header // further headers, such as one a plugin takes its memory id from

	// IdempotencyKey, if not empty, makes the call safe to repeat: however
	// often it is sent, it is made once. 1 to 255 visible ASCII characters.
	IdempotencyKey string
}

func (o CallOptions) headers() http.Header {
	h := o.Header.Clone()
	if h == nil {
		h = http.Header{}
	}
	if o.Timeout != "" {
		h.Set("Carrel-Timeout", o.Timeout)
	}
	if o.RejectBusy {
		h.Set("Carrel-On-Conflict", "reject")
	}
	if o.Detached {
		h.Set("Carrel-On-Disconnect", "continue")
	}
	if o.Session != "" {
		h.Set("Carrel-Session", o.Session)
	}
	if o.IdempotencyKey != "" {
		h.Set("Idempotency-Key", o.IdempotencyKey)
	}
	return h
}

// Invoke calls a service method with a params object.
func (c *Client) Invoke(ctx context.Context, a carrel.Address, version string, args any, o CallOptions) (Invocation, error) {
	var out Invocation
	header, err := c.exchange(ctx, http.MethodPost, methodPath(a, version), o.headers(), args, &out)
	out.Replayed = replays(header)
	return out, err
}

// replays reports whether an answer says that it is that of an earlier call.
func replays(header http.Header) bool { return header.Get("Idempotent-Replayed") == "true" }

// Describe tells how to call a service method.
func (c *Client) Describe(ctx context.Context, a carrel.Address, version string) (Method, error) {
	var out Method
	err := c.do(ctx, http.MethodGet, methodPath(a, version), nil, nil, &out)
	return out, err
}

func methodPath(a carrel.Address, version string) string {
	p := string(a.Plugin)
	if version != "" {
		p += "@" + version
	}
	return "/api/v1/plugins/" + p + "/services/" + string(a.Service) + "/" + string(a.Method)
}

// HostVersion says what the host runs; it needs no key.
func (c *Client) HostVersion(ctx context.Context) (HostVersion, error) {
	var out HostVersion
	err := c.do(ctx, http.MethodGet, "/version", nil, nil, &out)
	return out, err
}

// ListOptions pick a page of a list.
type ListOptions struct {
	Limit int    // 0 = the host's default
	After string // Page.Next of the page before
}

func (o ListOptions) query() url.Values {
	q := url.Values{}
	if o.Limit > 0 {
		q.Set("limit", strconv.Itoa(o.Limit))
	}
	if o.After != "" {
		q.Set("after", o.After)
	}
	return q
}

func withQuery(path string, q url.Values) string {
	if len(q) == 0 {
		return path
	}
	return path + "?" + q.Encode()
}

// All reads every page of a list, and no more than most items (an error past that).
// A list without items is empty, not nil.
func All[T any](most int, page func(ListOptions) (Page[T], error)) ([]T, error) {
	out := []T{}
	o := ListOptions{Limit: 1000}
	for {
		p, err := page(o)
		if err != nil {
			return nil, err
		}
		if out = append(out, p.Data...); len(out) > most {
			return nil, fmt.Errorf("carrel client: the list has more than %d entries", most)
		}
		if p.Next == "" {
			return out, nil
		}
		if p.Next == o.After {
			return nil, errors.New("carrel client: the list does not advance")
		}
		o.After = p.Next
	}
}
