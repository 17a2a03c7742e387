package abi

import "encoding/json"

// Version is the value of a manifest's "abi" member.
const Version = "carrel/v1"

// Manifest is what a module declares about itself. It is decoded strictly by
// the host: unknown, duplicate or differently cased members are faults. A
// Manifest in memory is complete: defaults are filled in.
type Manifest struct {
	ABI                string           `json:"abi"`
	Name               string           `json:"name"`
	Version            string           `json:"version"`
	Description        string           `json:"description,omitempty"`
	Services           []Service        `json:"services,omitempty"`
	DefaultMemoryID    *DefaultMemoryID `json:"defaultMemoryId,omitempty"`
	AllowDefaultIDLeak bool             `json:"allowDefaultIdLeak,omitempty"`
	MemoryNamespace    string           `json:"memoryNamespace,omitempty"` // shared namespace asked for; needs a grant
	Capabilities       Capabilities     `json:"capabilities"`
	Limits             *PluginLimits    `json:"limits,omitempty"`
	Warmup             *Warmup          `json:"warmup,omitempty"`
}

// Warmup is a call of a handler that is made once, at admission, so that every
// other call begins in the state that it left.
type Warmup struct {
	Method string          `json:"method"` // Service.method, of this plugin
	Params json.RawMessage `json:"params"` // what the handler gets as its input
}

// PluginLimits are a plugin's wishes within the host's limits.
type PluginLimits struct {
	MemoryMiB int    `json:"memoryMiB,omitempty"` // linear memory of one call; 0 = DefaultMemoryMiB
	Timeout   string `json:"timeout,omitempty"`   // of one handler call, such as "10s"; "" = DefaultTimeout
}

// Service is an AI service: a named group of methods with a scope.
type Service struct {
	Name          string   `json:"name"`
	Description   string   `json:"description,omitempty"`
	Scope         string   `json:"scope"` // request, session or application
	SystemMessage string   `json:"systemMessage,omitempty"`
	Methods       []Method `json:"methods"`
}

// Method is what a client calls.
type Method struct {
	Name          string          `json:"name"`
	Kind          string          `json:"kind"`             // chat or handler
	Export        string          `json:"export,omitempty"` // handler: the function that gets control
	Description   string          `json:"description,omitempty"`
	Params        json.RawMessage `json:"params"`
	Output        json.RawMessage `json:"output"`
	SystemMessage string          `json:"systemMessage,omitempty"`
	UserMessage   string          `json:"userMessage,omitempty"`
	// UserParam is derived, not declared: the single string param that is the
	// user message when UserMessage is empty.
	UserParam string `json:"-"`
	// MemoryID names the string param that holds the memory id, or is empty.
	MemoryID string `json:"memoryId,omitempty"`
	// MemoryIDRequired is derived: the memory id param is a required one.
	MemoryIDRequired bool   `json:"-"`
	Model            string `json:"model,omitempty"` // of a chat method
	Generation
	Window *Window   `json:"window,omitempty"` // of a chat method; nil on handlers
	Retain string    `json:"retain,omitempty"` // of a chat method: RetainHistory or RetainWindow
	Seed   []Example `json:"seed,omitempty"`   // the turns that an empty history is given
}

// Generation holds a chat method's options for the model. A nil field leaves
// the choice to the provider.
type Generation struct {
	Temperature     *float64 `json:"temperature,omitempty"` // 0 to 2
	TopP            *float64 `json:"topP,omitempty"`        // 0 to 1
	MaxOutputTokens *int     `json:"maxOutputTokens,omitempty"`
	Stop            []string `json:"stop,omitempty"`
	RandomSeed      *int64   `json:"randomSeed,omitempty"`
	ReasoningEffort string   `json:"reasoningEffort,omitempty"`
}

// Window bounds what of a history is sent to the model.
type Window struct {
	Type string `json:"type"` // messages or tokens
	Max  int    `json:"max"`  // of what Type counts
}

// DefaultMemoryID is a plugin's own provider of default memory ids.
type DefaultMemoryID struct {
	From     string `json:"from,omitempty"`   // "header:NAME" or "subject"
	Export   string `json:"export,omitempty"` // or a function of the guest that yields the id
	Priority int    `json:"priority"`
}

// Capabilities is what a plugin asks to be allowed.
type Capabilities struct {
	Models []string `json:"models,omitempty"`
	Call   []string `json:"call,omitempty"` // other plugins' methods: plugin/Service.method, plugin/Service.* or plugin/*
}

// The values of Service.Scope.
const (
	ScopeRequest     = "request"
	ScopeSession     = "session"
	ScopeApplication = "application"
)

// The values of Method.Kind: the host runs the pipeline of a chat method by
// itself; a handler method is the guest's own code.
const (
	KindChat    = "chat"
	KindHandler = "handler"
)

// The values of Window.Type.
const (
	WindowMessages = "messages"
	WindowTokens   = "tokens"
)

// The values of Method.Retain: what a history keeps of the turns that its
// window leaves out.
const (
	RetainHistory = "history" // all of them, until its scope closes
	RetainWindow  = "window"  // none
)

// Example is a turn that a history begins with.
type Example struct {
	User      string `json:"user"`
	Assistant string `json:"assistant"`
}

// The values of DefaultMemoryID.From: FromSubject, or FromHeader followed by
// a header name.
const (
	FromSubject = "subject"
	FromHeader  = "header:"
)
