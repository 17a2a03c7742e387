package carrel

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/carrelhost/carrel/abi"
)

// Context is one call of a handler: what the host knows about it and what it
// may ask of the host. It belongs to the call's goroutine and ends with the
// call. It is no context.Context: a guest is not asked to stop, it is stopped.
type Context struct {
	host Host
	log  *slog.Logger
	rand *rand.Rand // made when it is first asked for
}

func newContext(h Host) *Context {
	return &Context{host: h, log: slog.New(newLogHandler(h))}
}

// Info says who runs what for whom.
type Info struct {
	Tenant       string `json:"tenant"`
	Plugin       string `json:"plugin"`
	Version      string `json:"version"` // digest of the module that runs
	Service      string `json:"service"`
	Method       string `json:"method"`
	RequestID    string `json:"requestId"`
	InvocationID string `json:"invocationId"`
	SessionID    string `json:"sessionId,omitempty"` // empty outside a session
	Subject      string `json:"subject,omitempty"`   // end user, if the caller named one
	MemoryID     string `json:"memoryId,omitempty"`
}

// Info asks the host who runs what for whom.
func (c *Context) Info() (Info, error) {
	var i Info
	err := c.Do(abi.OpContext, struct{}{}, &i)
	return i, err
}

// Do performs any operation: request is encoded as its JSON, and the result is
// decoded into result unless that is nil. The other methods are made of it;
// use it for operations that this SDK has no method for. A refusal is a
// *Refusal.
func (c *Context) Do(op abi.Op, request, result any) error {
	req, err := encode(request)
	if err != nil {
		return fmt.Errorf("encode the request of %s: %w", op, err)
	}
	res, err := c.host.Call(op, req)
	if err != nil || result == nil {
		return err
	}
	if err := json.Unmarshal(res, result); err != nil {
		return fmt.Errorf("decode the result of %s: %w", op, err)
	}
	return nil
}

// Config decodes the tenant's configuration for this plugin into v.
func (c *Context) Config(v any) error { return c.Do(abi.OpConfigGet, struct{}{}, v) }

// Has reports whether the host knows an operation or a feature, such as
// "memory.append": what it does not know answers *Refusal with abi.ENOSYS. In a
// warm-up it knows none.
func (c *Context) Has(feature string) bool { return c.host.Has(feature) }

// Log returns the logger of the plugin's log. The host bounds what one call
// writes.
func (c *Context) Log() *slog.Logger { return c.log }

// Deadline returns when the host will stop the call; an hour from now in a
// warm-up.
func (c *Context) Deadline() time.Time { return c.host.Deadline() }

// Rand returns a generator that was seeded for this call alone. It panics if
// the host has no randomness to give.
func (c *Context) Rand() *rand.Rand {
	if c.rand == nil {
		var seed [32]byte
		if err := c.host.Random(seed[:]); err != nil {
			panic(fmt.Errorf("seed the generator: %w", err))
		}
		c.rand = rand.New(rand.NewChaCha8(seed)) //nolint:gosec // seeded by the host; crypto/rand is there for keys
	}
	return c.rand
}

// Emit streams a piece of text to the client before the handler returns. No
// host has streams for guests yet: it is a *Refusal with abi.ENOSYS, and
// Has("emit") is false. Handlers that are to run today return all they have.
// Where there are streams, a client that is gone is abi.ECANCELED.
func (c *Context) Emit(text string) error { return c.host.Emit(EmitText, []byte(text)) }

// EmitEvent streams a custom event, encoded as JSON. As with Emit, no host has
// it yet.
func (c *Context) EmitEvent(event any) error {
	b, err := encode(event)
	if err != nil {
		return fmt.Errorf("encode the event: %w", err)
	}
	return c.host.Emit(EmitEvent, b)
}
