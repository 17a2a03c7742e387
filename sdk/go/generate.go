package carrel

import (
	"encoding/json"

	"github.com/carrelhost/carrel/abi"
)

// Role says who a message is from.
type Role string

// The roles of messages.
const (
	RoleSystem    Role = "system"
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
	RoleTool      Role = "tool"
)

// Message is one message of a conversation.
type Message struct {
	Role       Role       `json:"role"`
	Content    string     `json:"content"`
	ToolCalls  []ToolCall `json:"toolCalls,omitempty"`  // assistant only
	ToolCallID string     `json:"toolCallId,omitempty"` // tool only: the call that this is the result of
	// Turn is the number of the turn of a message that Memory.Messages read, and
	// Origin says where it comes from. Both are the host's to say, and never
	// sent. The system message has no turn: 0.
	Turn   int64  `json:"-"`
	Origin Origin `json:"-"`
}

// Origin says where a stored turn comes from.
type Origin string

// The origins of turns.
const (
	OriginModel  Origin = ""       // a model answered
	OriginPlugin Origin = "plugin" // a plugin appended it to a shared namespace
	OriginImport Origin = "import" // it was imported by hand
)

// ToolCall is a model's wish to call a tool.
type ToolCall struct {
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
}

// System makes a system message.
func System(text string) Message { return Message{Role: RoleSystem, Content: text} }

// User makes a user's message.
func User(text string) Message { return Message{Role: RoleUser, Content: text} }

// Assistant makes an assistant's message.
func Assistant(text string) Message { return Message{Role: RoleAssistant, Content: text} }

// Prompt is a model call without memory: exactly these messages are sent.
type Prompt struct {
	Model    string    `json:"model,omitempty"` // alias that Capabilities.Models names; "" = "default"
	Messages []Message `json:"messages"`        // of the roles system, user and assistant
	Generation
}

// Answer is a model's answer.
type Answer struct {
	Text         string `json:"text"`
	FinishReason string `json:"finishReason"` // stop, length, content_filter or unknown
	Model        string `json:"model"`        // as the provider reports it
	Usage        Usage  `json:"usage"`
}

// Generate calls a model. Nothing is stored. A failure is a *Refusal.
func (c *Context) Generate(p Prompt) (Answer, error) {
	var a Answer
	err := c.Do(abi.OpModelGenerate, p, &a)
	return a, err
}
