package carrel

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/carrelhost/carrel/abi"
)

// Usage is what a model call cost, in tokens as the provider counts them.
type Usage struct {
	InputTokens  int64 `json:"inputTokens"`
	OutputTokens int64 `json:"outputTokens"`
}

// Invocation is what a finished call of a method tells besides its output.
type Invocation struct {
	MemoryID string // that was used; empty if the method has no memory
	Usage    Usage
}

type invokeRequest struct {
	Plugin  string          `json:"plugin,omitempty"`
	Service string          `json:"service"`
	Method  string          `json:"method"`
	Args    json.RawMessage `json:"args"`
}

type invokeResult struct {
	Output   json.RawMessage `json:"output"`
	MemoryID string          `json:"memoryId"`
	Usage    Usage           `json:"usage"`
}

// Invoke calls a method of this plugin ("com.acme.Chat.chat") or of another
// ("billing/com.acme.Bills.list"), which Capabilities.Call must name and the
// tenant's owner must grant. args is encoded as the params object, by
// EncodeParams; nil is {}.
// The output is decoded into out, a *string for text, unless that is nil.
//
// The call runs in the same request scope and under the same deadline. What
// fails in it is a *Refusal with the code that the host gives it.
func (c *Context) Invoke(address string, args, out any) (Invocation, error) {
	req, err := target(address)
	if err != nil {
		return Invocation{}, err
	}
	if args == nil {
		args = struct{}{}
	}
	if req.Args, err = EncodeParams(args); err != nil {
		return Invocation{}, fmt.Errorf("encode the params of %s: %w", address, err)
	}
	var res invokeResult
	if err := c.Do(abi.OpInvoke, req, &res); err != nil {
		return Invocation{}, err
	}
	if out != nil {
		if err := json.Unmarshal(res.Output, out); err != nil {
			return Invocation{}, fmt.Errorf("decode the output of %s: %w", address, err)
		}
	}
	return Invocation{res.MemoryID, res.Usage}, nil
}

// Invoke calls a method as Context.Invoke does and returns its output.
func Invoke[Out any](c *Context, address string, args any) (Out, error) {
	var out Out
	_, err := c.Invoke(address, args, &out)
	return out, err
}

// target reads [plugin/]Service.method; the last dot parts the two.
func target(address string) (invokeRequest, error) {
	plugin, method, other := strings.Cut(address, "/")
	if !other {
		plugin, method = "", address
	}
	dot := strings.LastIndexByte(method, '.')
	if dot <= 0 || dot == len(method)-1 || other && plugin == "" {
		return invokeRequest{}, fmt.Errorf("%q is no address of a method; write Service.method or plugin/Service.method", address)
	}
	return invokeRequest{Plugin: plugin, Service: method[:dot], Method: method[dot+1:]}, nil
}
