package imports

import (
	"context"
	"encoding/json"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
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

// Generate asks for a model call without memory.
type Generate struct {
	Model    string            `json:"model"` // alias; "" = default
	Messages []GenerateMessage `json:"messages"`
	abi.Generation
}

// GenerateMessage is one message of a model call.
type GenerateMessage struct {
	Role    string `json:"role"` // system, user or assistant
	Content string `json:"content"`
}

// Generated is a model's answer.
type Generated struct {
	Text         string `json:"text"`
	FinishReason string `json:"finishReason"`
	Model        string `json:"model"`
	Usage        Usage  `json:"usage"`
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

func (h *Host) generate(ctx context.Context, request []byte) (any, error) {
	in, err := decode[Generate](request)
	if err != nil {
		return nil, err
	}
	if len(in.Messages) == 0 {
		return nil, carrel.Fail("imports.generate", abi.InvalidParams, "messages is empty")
	}
	for _, m := range in.Messages {
		switch carrel.Role(m.Role) {
		case carrel.RoleSystem, carrel.RoleUser, carrel.RoleAssistant:
		default:
			return nil, carrel.Fail("imports.generate", abi.InvalidParams, "a message's role is system, user or assistant")
		}
	}
	return h.in.Generate(ctx, in)
}

// config answers with the tenant's configuration of the plugin. There is no
// way to set one yet, so every plugin's is empty.
func (h *Host) config(_ context.Context, request []byte) (any, error) {
	if _, err := decode[struct{}](request); err != nil {
		return nil, err
	}
	return struct{}{}, nil
}
