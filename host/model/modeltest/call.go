package modeltest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
)

// Call is one model call as the server received it.
type Call struct {
	N        int // from 1, in order of arrival
	Header   http.Header
	Remote   string // the client's address and port: one per connection
	Body     []byte
	Model    string
	Messages []carrel.Message
	Options  abi.Generation // nil: not sent
	Stream   bool

	includeUsage bool
}

// Compact returns the messages in the form "role:content", as in "user:hi".
// Tool calls follow the content as " [id name arguments]", as in
// `assistant: [c1 add {"a":1}]`; a result is "tool:id:content".
func (c Call) Compact() []string {
	out := make([]string, len(c.Messages))
	for i, m := range c.Messages {
		var b strings.Builder
		b.WriteString(string(m.Role) + ":")
		if m.ToolCallID != "" {
			b.WriteString(m.ToolCallID + ":")
		}
		b.WriteString(m.Content)
		for _, t := range m.ToolCalls {
			fmt.Fprintf(&b, " [%s %s %s]", t.ID, t.Name, t.Args)
		}
		out[i] = b.String()
	}
	return out
}

// wireCall is what the server understands of a request. Fields that it does
// not know stay in Call.Body.
type wireCall struct {
	Model    string        `json:"model"`
	Messages []wireMessage `json:"messages"`
	Stream   bool          `json:"stream"`

	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`

	Temperature         *float64 `json:"temperature"`
	TopP                *float64 `json:"top_p"`
	MaxTokens           *int     `json:"max_tokens"`
	MaxCompletionTokens *int     `json:"max_completion_tokens"`
	Stop                oneOrAll `json:"stop"`
	Seed                *int64   `json:"seed"`
	ReasoningEffort     string   `json:"reasoning_effort"`
}

type wireMessage struct {
	Role       carrel.Role `json:"role"`
	Content    *string     `json:"content"`
	ToolCalls  []wireTool  `json:"tool_calls"`
	ToolCallID string      `json:"tool_call_id"`
}

type wireTool struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

// oneOrAll is a list of strings, or one string.
type oneOrAll []string

// UnmarshalJSON accepts both forms.
func (o *oneOrAll) UnmarshalJSON(data []byte) error {
	if bytes.HasPrefix(data, []byte(`"`)) {
		*o = make([]string, 1)
		return json.Unmarshal(data, &(*o)[0])
	}
	return json.Unmarshal(data, (*[]string)(o))
}

// decode reads a request as strictly as OpenAI does where a provider can go
// wrong: roles, contents, tool calls and results that belong together.
func decode(body []byte) (Call, error) {
	var w wireCall
	if err := json.Unmarshal(body, &w); err != nil {
		return Call{}, err
	}
	c := Call{
		Body: body, Model: w.Model, Stream: w.Stream, includeUsage: w.StreamOptions.IncludeUsage,
		Messages: make([]carrel.Message, len(w.Messages)),
		Options: abi.Generation{
			Temperature: w.Temperature, TopP: w.TopP, MaxOutputTokens: w.MaxTokens,
			Stop: w.Stop, RandomSeed: w.Seed, ReasoningEffort: w.ReasoningEffort,
		},
	}
	if w.MaxCompletionTokens != nil {
		c.Options.MaxOutputTokens = w.MaxCompletionTokens
	}
	switch {
	case w.Model == "":
		return c, errors.New("model is missing")
	case len(w.Messages) == 0:
		return c, errors.New("messages are missing")
	case w.MaxTokens != nil && w.MaxCompletionTokens != nil:
		return c, errors.New("max_tokens and max_completion_tokens exclude each other")
	case w.StreamOptions.IncludeUsage && !w.Stream:
		return c, errors.New("stream_options needs stream")
	}
	for i, m := range w.Messages {
		out, err := m.decode()
		if err != nil {
			return c, fmt.Errorf("messages[%d]: %w", i, err)
		}
		c.Messages[i] = out
	}
	return c, nil
}

func (m wireMessage) decode() (carrel.Message, error) {
	out := carrel.Message{Role: m.Role, ToolCallID: m.ToolCallID}
	for _, t := range m.ToolCalls {
		if t.Type != "function" || t.ID == "" || t.Function.Name == "" || !json.Valid([]byte(t.Function.Arguments)) {
			return out, errors.New("a tool call needs type function, id, name and arguments in JSON")
		}
		out.ToolCalls = append(out.ToolCalls, carrel.ToolCall{
			ID: t.ID, Name: t.Function.Name, Args: json.RawMessage(t.Function.Arguments),
		})
	}
	switch m.Role {
	case carrel.RoleSystem, carrel.RoleUser, carrel.RoleAssistant, carrel.RoleTool:
	default:
		return out, fmt.Errorf("role %q is unknown", m.Role)
	}
	switch {
	case m.Content != nil:
		out.Content = *m.Content
	case len(m.ToolCalls) == 0:
		return out, errors.New("content is missing")
	}
	if len(m.ToolCalls) > 0 && m.Role != carrel.RoleAssistant {
		return out, errors.New("only the assistant calls tools")
	}
	if (m.ToolCallID != "") != (m.Role == carrel.RoleTool) {
		return out, errors.New("tool_call_id belongs to role tool")
	}
	return out, nil
}
