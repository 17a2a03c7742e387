package imports

import (
	"context"
	"encoding/json"
)

// Context says where a guest runs: the result of the op context.
type Context struct {
	Tenant       string `json:"tenant"`
	Plugin       string `json:"plugin"`
	Version      string `json:"version"` // digest
	Service      string `json:"service"`
	Method       string `json:"method"`
	RequestID    string `json:"requestId"`
	InvocationID string `json:"invocationId"`
	SessionID    string `json:"sessionId,omitempty"`
	Subject      string `json:"subject,omitempty"`
	MemoryID     string `json:"memoryId,omitempty"`
}

// Invoke asks for a service method: of the own plugin, or of another that the
// manifest names and the owner granted.
type Invoke struct {
	Plugin  string          `json:"plugin"` // "" = the own one
	Service string          `json:"service"`
	Method  string          `json:"method"`
	Args    json.RawMessage `json:"args"` // the params object; absent = {}
}

// Invoked is what an invocation came to.
type Invoked struct {
	Output   any    `json:"output"` // text, or the JSON of the method's output
	MemoryID string `json:"memoryId,omitempty"`
	Usage    Usage  `json:"usage"`
}

// Usage is what an invocation used, those under it included.
type Usage struct {
	InputTokens  int64 `json:"inputTokens"`
	OutputTokens int64 `json:"outputTokens"`
}

func (h *Host) context(_ context.Context, request []byte) (any, error) {
	if _, err := decode[struct{}](request); err != nil {
		return nil, err
	}
	return h.in.Describe(), nil
}

func (h *Host) invoke(ctx context.Context, request []byte) (any, error) {
	in, err := decode[Invoke](request)
	if err != nil {
		return nil, err
	}
	return h.in.Invoke(ctx, in)
}

// config answers with the tenant's configuration of the plugin. There is no
// way to set one yet, so every plugin's is empty.
func (h *Host) config(_ context.Context, request []byte) (any, error) {
	if _, err := decode[struct{}](request); err != nil {
		return nil, err
	}
	return struct{}{}, nil
}
