package openai

import (
	"bytes"
	"encoding/json"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/model"
)

// request is the body of a chat completions call. Options are pointers so that
// a zero that was asked for is sent, and one that was not is left out.
type request struct {
	Model               string         `json:"model"`
	Messages            []message      `json:"messages"`
	Temperature         *float64       `json:"temperature,omitempty"`
	TopP                *float64       `json:"top_p,omitempty"`
	MaxTokens           *int           `json:"max_tokens,omitempty"`
	MaxCompletionTokens *int           `json:"max_completion_tokens,omitempty"`
	Stop                []string       `json:"stop,omitempty"`
	Seed                *int64         `json:"seed,omitempty"`
	ReasoningEffort     string         `json:"reasoning_effort,omitempty"`
	Stream              bool           `json:"stream,omitempty"`
	StreamOptions       *streamOptions `json:"stream_options,omitempty"`
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

type message struct {
	Role       carrel.Role `json:"role"`
	Content    *string     `json:"content"` // null: only tool calls
	ToolCalls  []toolCall  `json:"tool_calls,omitempty"`
	ToolCallID string      `json:"tool_call_id,omitempty"`
}

type toolCall struct {
	ID       string       `json:"id"`
	Type     string       `json:"type"`
	Function toolFunction `json:"function"`
}

type toolFunction struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"` // JSON text inside a JSON string
}

// encode returns the body of the call. NaN and the infinities cannot be sent.
func (p *Provider) encode(r model.Request, stream bool) ([]byte, error) {
	out := request{
		Model:           r.Model,
		Messages:        make([]message, len(r.Messages)),
		Temperature:     r.Options.Temperature,
		TopP:            r.Options.TopP,
		Stop:            r.Options.Stop,
		Seed:            r.Options.RandomSeed,
		ReasoningEffort: r.Options.ReasoningEffort,
		Stream:          stream,
	}
	if p.maxTokensField == MaxCompletionTokens {
		out.MaxCompletionTokens = r.Options.MaxOutputTokens
	} else {
		out.MaxTokens = r.Options.MaxOutputTokens
	}
	if stream {
		out.StreamOptions = &streamOptions{IncludeUsage: true}
	}
	for i, m := range r.Messages {
		out.Messages[i] = encodeMessage(m)
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(out); err != nil {
		return nil, &carrel.Error{
			Op: op, Code: abi.ModelFailed, Err: err,
			Msg: "the request has an option that is no number; the same request will be refused again",
		}
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}

func encodeMessage(m carrel.Message) message {
	out := message{Role: m.Role, Content: &m.Content, ToolCallID: m.ToolCallID}
	for _, c := range m.ToolCalls {
		args := string(c.Args)
		if args == "" {
			args = "{}"
		}
		out.ToolCalls = append(out.ToolCalls, toolCall{
			ID: c.ID, Type: "function", Function: toolFunction{Name: c.Name, Arguments: args},
		})
	}
	// Servers disagree on an empty text beside tool calls; null is what OpenAI
	// itself answers with, so all of them take it.
	if m.Content == "" && len(out.ToolCalls) > 0 {
		out.Content = nil
	}
	return out
}
