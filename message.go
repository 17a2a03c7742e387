package carrel

import "encoding/json"

// Role says who a message is from.
type Role string

// The roles of chat messages.
const (
	RoleSystem    Role = "system"
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
	RoleTool      Role = "tool"
)

// Message is one message of a chat history.
type Message struct {
	Role       Role
	Content    string
	ToolCalls  []ToolCall // assistant only: what the model asks to be called
	ToolCallID string     // tool only: the call that this is the result of
}

// ToolCall is a model's wish to call a tool.
type ToolCall struct {
	ID   string          `json:"id"`
	Name string          `json:"name"`
	Args json.RawMessage `json:"arguments"`
}

// Turn is one user message and everything up to and including the
// assistant's final answer. N counts a history's turns from 1.
type Turn struct {
	N        int64
	Messages []Message
}

// Origin says where a turn comes from.
type Origin string

// The origins of turns.
const (
	OriginModel  Origin = ""       // a model answered
	OriginPlugin Origin = "plugin" // a plugin appended it to a shared namespace
	OriginImport Origin = "import" // it was imported by hand
)

// Usage is what a model call cost, in tokens as the provider counts them.
type Usage struct {
	InputTokens  int64
	OutputTokens int64
}

// Size returns the bytes that a message counts for in limits and records: its
// content and its tool calls' ids, names and arguments.
func (m Message) Size() int64 {
	n := len(m.Content) + len(m.ToolCallID)
	for _, c := range m.ToolCalls {
		n += len(c.ID) + len(c.Name) + len(c.Args)
	}
	return int64(n)
}
