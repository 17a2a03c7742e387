// Package openai is the provider for every server that speaks the chat
// completions protocol of OpenAI: OpenAI itself, Ollama, vLLM, LiteLLM and
// others. What it sends is strict, what it reads is tolerant: those servers
// add fields and leave fields out.
package openai

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/carrelhost/carrel/host/model"
)

// Defaults of Config.
const (
	DefaultBaseURL        = "https://api.openai.com/v1"
	DefaultMaxAnswerBytes = 4 << 20
	DefaultHeaderTimeout  = 5 * time.Minute
)

// The values of Config.MaxTokensField.
const (
	MaxTokens           = "max_tokens"            // understood everywhere but by OpenAI's newer models
	MaxCompletionTokens = "max_completion_tokens" // OpenAI's name for it since its reasoning models
)

// Bounds that need no configuration.
const (
	dialTimeout       = 10 * time.Second
	handshakeTimeout  = 10 * time.Second
	maxHeaderBytes    = 256 << 10
	maxErrorBodyBytes = 64 << 10
	maxMaxAnswerBytes = 1 << 30
	// drainTimeout is how long a finished stream may take to end its body, so
	// that its connection can serve the next call.
	drainTimeout = 100 * time.Millisecond
	idleConns    = 32
	idleTimeout  = 90 * time.Second
)

const op = "openai.Generate"

// Config says where a model server is and how far it is trusted. The zero
// value of every field means its default.
type Config struct {
	// BaseURL is the address up to and with the version, such as
	// "http://127.0.0.1:11434/v1". Default: DefaultBaseURL.
	BaseURL string
	// APIKey is sent as a bearer token to BaseURL and nowhere else. Empty: no
	// Authorization header is sent.
	APIKey string
	// MaxAnswerBytes bounds the body of an answer that is not streamed, and the
	// text and each event of one that is. Default: DefaultMaxAnswerBytes.
	MaxAnswerBytes int64
	// MaxTokensField is the name by which the server knows the option
	// maxOutputTokens. Default: MaxCompletionTokens at OpenAI itself, else
	// MaxTokens.
	MaxTokensField string
	// HeaderTimeout bounds the time from the call to the answer's headers. A
	// server that does not stream sends them when it has the whole answer, and
	// one that has to load the model first sends nothing until then. The whole
	// call is bounded by its context only. Default: DefaultHeaderTimeout.
	HeaderTimeout time.Duration
	// Transport replaces the provider's own connections; its owner closes it.
	// Default: nil, the provider's own.
	Transport http.RoundTripper
	// Now reads the clock, for a Retry-After that is a date. Default: time.Now.
	Now func() time.Time
}

// Provider calls one model server. It is safe for concurrent use.
type Provider struct {
	client         *http.Client
	own            *http.Transport // nil if the connections are someone else's
	endpoint       string
	key            string
	maxAnswer      int64
	maxTokensField string
	headerTimeout  time.Duration
	now            func() time.Time
}

var _ model.Provider = (*Provider)(nil)

// New returns a provider, or every fault of the configuration, joined. It does
// not connect. No fault shows the key. The caller owns the provider and closes
// it.
func New(c Config) (*Provider, error) {
	if c.BaseURL == "" {
		c.BaseURL = DefaultBaseURL
	}
	if c.MaxAnswerBytes == 0 {
		c.MaxAnswerBytes = DefaultMaxAnswerBytes
	}
	if c.HeaderTimeout == 0 {
		c.HeaderTimeout = DefaultHeaderTimeout
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	base, err := c.validate()
	if err != nil {
		return nil, fmt.Errorf("openai: %w", err)
	}
	if c.MaxTokensField == "" {
		c.MaxTokensField = MaxTokens
		if strings.EqualFold(base.Hostname(), "api.openai.com") {
			c.MaxTokensField = MaxCompletionTokens
		}
	}
	p := &Provider{
		endpoint:       strings.TrimRight(base.String(), "/") + "/chat/completions",
		key:            c.APIKey,
		maxAnswer:      c.MaxAnswerBytes,
		maxTokensField: c.MaxTokensField,
		headerTimeout:  c.HeaderTimeout,
		now:            c.Now,
	}
	transport := c.Transport
	if transport == nil {
		p.own = &http.Transport{
			Proxy:                  http.ProxyFromEnvironment,
			DialContext:            (&net.Dialer{Timeout: dialTimeout}).DialContext,
			TLSHandshakeTimeout:    handshakeTimeout,
			MaxResponseHeaderBytes: maxHeaderBytes,
			MaxIdleConns:           idleConns,
			MaxIdleConnsPerHost:    idleConns,
			IdleConnTimeout:        idleTimeout,
			ForceAttemptHTTP2:      true,
			// A compressed stream may arrive late, in blocks.
			DisableCompression: true,
		}
		transport = p.own
	}
	p.client = &http.Client{
		Transport: transport,
		// Another address must get neither the key nor the messages.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return p, nil
}

// validate returns the parsed base URL, or every fault. It never repeats the
// URL, which may hold credentials by mistake.
func (c Config) validate() (*url.URL, error) {
	var errs []error
	base, err := url.Parse(c.BaseURL)
	switch {
	case err != nil, base.Scheme != "http" && base.Scheme != "https", base.Hostname() == "":
		errs = append(errs, errors.New("BaseURL must be an absolute http or https address"))
	case base.User != nil, base.RawQuery != "" || base.ForceQuery, base.Fragment != "":
		errs = append(errs, errors.New("BaseURL must have no user, no query and no fragment"))
	}
	for i := range len(c.APIKey) {
		if c.APIKey[i] <= ' ' || c.APIKey[i] > '~' {
			errs = append(errs, errors.New("APIKey must be printable ASCII without spaces"))
			break
		}
	}
	if c.MaxAnswerBytes < 1 || c.MaxAnswerBytes > maxMaxAnswerBytes {
		errs = append(errs, fmt.Errorf("MaxAnswerBytes %d must be from 1 to %d", c.MaxAnswerBytes, maxMaxAnswerBytes))
	}
	if f := c.MaxTokensField; f != "" && f != MaxTokens && f != MaxCompletionTokens {
		errs = append(errs, fmt.Errorf("MaxTokensField %q must be %s or %s", f, MaxTokens, MaxCompletionTokens))
	}
	if c.HeaderTimeout < 0 {
		errs = append(errs, fmt.Errorf("HeaderTimeout %v must be positive", c.HeaderTimeout))
	}
	return base, errors.Join(errs...)
}

// Close drops the provider's idle connections. Calls that run are not
// disturbed. It is safe to call twice and always returns nil.
func (p *Provider) Close() error {
	if p.own != nil {
		p.own.CloseIdleConnections()
	}
	return nil
}

// Generate is the contract's. Its model_failed errors carry a Limit if the
// answer exceeded the limit answerBytes or its headers timeout, and a Wait if
// the server said when to come back.
func (p *Provider) Generate(ctx context.Context, r model.Request, onDelta func(text string) error) (model.Response, error) {
	var receiver error
	var deliver func(string) error
	if onDelta != nil {
		deliver = func(text string) error {
			receiver = onDelta(text)
			return receiver
		}
	}
	resp, err := p.call(ctx, r, deliver)
	switch {
	case err == nil:
		if resp.Model == "" {
			resp.Model = r.Model
		}
		return resp, nil
	case receiver != nil:
		return model.Response{}, fmt.Errorf("%s: the answer's receiver stopped it: %w", op, receiver)
	case ctx.Err() != nil:
		return model.Response{}, fmt.Errorf("%s: %w", op, ctx.Err())
	default:
		return model.Response{}, failure(err)
	}
}

// call makes one HTTP request and reads its answer. Its error is classified by
// Generate, which knows why a read may have ended.
func (p *Provider) call(ctx context.Context, r model.Request, deliver func(string) error) (model.Response, error) {
	body, err := p.encode(r, deliver != nil)
	if err != nil {
		return model.Response{}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.endpoint, bytes.NewReader(body))
	if err != nil {
		return model.Response{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "carrel")
	req.Header.Set("Accept", "application/json")
	if deliver != nil {
		req.Header.Set("Accept", "text/event-stream")
	}
	if p.key != "" {
		req.Header.Set("Authorization", "Bearer "+p.key)
	}
	timer := time.AfterFunc(p.headerTimeout, cancel)
	res, err := p.client.Do(req)
	inTime := timer.Stop()
	if err == nil {
		defer func() { _ = res.Body.Close() }()
	}
	switch {
	case !inTime:
		return model.Response{}, p.late()
	case err != nil:
		return model.Response{}, unreachable(err)
	}
	if res.StatusCode < 200 || res.StatusCode > 299 {
		return model.Response{}, p.refused(res)
	}
	if deliver == nil {
		return p.readWhole(res.Body)
	}
	if kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type")); kind == "application/json" {
		return p.deliverWhole(res.Body, deliver)
	}
	resp, err := p.readStream(res.Body, deliver)
	if err == nil {
		timer := time.AfterFunc(drainTimeout, cancel)
		_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, maxErrorBodyBytes))
		timer.Stop()
	}
	return resp, err
}
