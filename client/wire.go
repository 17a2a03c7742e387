package client

import (
	"encoding/json"
	"time"

	"github.com/carrelhost/carrel"
)

// Page is one page of a list. Next, if not empty, is passed as after to get
// the one behind it.
type Page[T any] struct {
	Data []T    `json:"data"`
	Next string `json:"next,omitempty"`
}

// Invocation is the answer of a service method.
type Invocation struct {
	ID              string    `json:"id"`
	Output          any       `json:"output"`
	MemoryID        string    `json:"memoryId,omitempty"`
	Model           string    `json:"model,omitempty"`
	FinishReason    string    `json:"finishReason,omitempty"`
	Usage           Usage     `json:"usage"`
	Trimmed         int64     `json:"trimmed,omitempty"` // messages deleted because the history is at its limit
	Evicted         []Evicted `json:"evicted"`           // histories that ended with the request
	EvictionPending bool      `json:"evictionPending,omitempty"`

	// Replayed says that this is the answer of an earlier call with the same
	// idempotency key. A header carries it, for streams as well.
	Replayed bool `json:"-"`
}

// Usage is what an invocation used. Fuel and GuestMicros (microseconds) are 0
// for methods that run no guest code.
type Usage struct {
	InputTokens  int64 `json:"inputTokens"`
	OutputTokens int64 `json:"outputTokens"`
	Fuel         int64 `json:"fuel"`
	GuestMicros  int64 `json:"guestMicros"`
}

// Evicted reports the end of one history.
type Evicted struct {
	Key      string `json:"key"` // opaque; the same as in lists of memories
	Plugin   string `json:"plugin"`
	MemoryID string `json:"memoryId"`
	Reason   string `json:"reason"`
	Messages int64  `json:"messages"`
	Bytes    int64  `json:"bytes"`
}

// Ended is the answer of a call that ends histories.
type Ended struct {
	Evicted         []Evicted `json:"evicted"`
	EvictionPending bool      `json:"evictionPending,omitempty"`
}

// Erased is the answer of an erasure.
type Erased struct {
	Evicted   []Evicted `json:"evicted"`   // at most 1,000 of them
	Histories int64     `json:"histories"` // that ended, listed or not
}

// Method describes a service method to those who want to call it.
type Method struct {
	Address     string          `json:"address"`
	Description string          `json:"description,omitempty"`
	Kind        string          `json:"kind"`
	Scope       string          `json:"scope"`
	Params      json.RawMessage `json:"params"` // JSON Schema
	Output      json.RawMessage `json:"output"` // JSON Schema
	Memory      MemoryRule      `json:"memory"`
	Stream      bool            `json:"stream"`
}

// MemoryRule says how a method's calls find their history.
type MemoryRule struct {
	Param    string `json:"param,omitempty"` // the param that holds the memory id
	Required bool   `json:"required"`        // that param must be given
	Default  string `json:"default"`         // where the id comes from otherwise
}

// Plugin is a plugin of the tenant.
type Plugin struct {
	Name        string     `json:"name"`
	Description string     `json:"description,omitempty"`
	Active      *VersionID `json:"active"` // null: it is deactivated
	Versions    int        `json:"versions"`
	CreatedAt   time.Time  `json:"createdAt"`
	Services    []Service  `json:"services,omitempty"` // of the active version; not in lists
}

// VersionID names a version.
type VersionID struct {
	Digest string `json:"digest"`
	N      int    `json:"n"`

	// Quarantined says why the version does not run; nil if nothing keeps it.
	Quarantined *Quarantine `json:"quarantined,omitempty"`
}

// Service is a service of a plugin's active version.
type Service struct {
	Name        string   `json:"name"`
	Description string   `json:"description,omitempty"`
	Scope       string   `json:"scope"`
	Methods     []string `json:"methods"` // addresses
}

// Version is one uploaded module.
type Version struct {
	Digest    string          `json:"digest"`
	N         int             `json:"n"` // 0 after a dry run
	Active    bool            `json:"active"`
	Bytes     int64           `json:"bytes"`
	CreatedAt time.Time       `json:"createdAt"`
	Manifest  json.RawMessage `json:"manifest,omitempty"` // not in lists
	Report    json.RawMessage `json:"report,omitempty"`   // a Report; not in lists

	// Quarantined says why the version does not run; nil if nothing keeps it.
	Quarantined *Quarantine `json:"quarantined,omitempty"`
}

// Uploaded is the answer to an upload.
type Uploaded struct {
	Plugin  string  `json:"plugin"`
	Version Version `json:"version"`
	DryRun  bool    `json:"dryRun,omitempty"`
}

// Deactivated is the answer of a deactivation and of a plugin's deletion: its
// application scope is closed.
type Deactivated struct {
	Plugin string `json:"plugin"`
	Ended
}

// Memory describes a chat history.
type Memory struct {
	Key        string    `json:"key"`
	Plugin     string    `json:"plugin"`
	MemoryID   string    `json:"memoryId"`
	Kind       string    `json:"kind"`
	Messages   int64     `json:"messages"` // the system message counts
	Bytes      int64     `json:"bytes"`
	CreatedAt  time.Time `json:"createdAt"`
	LastUsedAt time.Time `json:"lastUsedAt"`
}

// Message is a message of a chat history.
type Message struct {
	Seq        int64             `json:"seq"`  // 0 is the system message
	Turn       int64             `json:"turn"` // 0 is the system message
	Role       string            `json:"role"`
	Content    string            `json:"content"`
	ToolCalls  []carrel.ToolCall `json:"toolCalls,omitempty"`
	ToolCallID string            `json:"toolCallId,omitempty"`
	At         time.Time         `json:"at,omitzero"`      // when it was stored; a window has messages that are not
	Origin     string            `json:"origin,omitempty"` // of its turn: plugin, import, or "" if a model answered
}

// Erase asks for an end of all that an end user's calls touched.
type Erase struct {
	Subject string `json:"subject"`
}

// EvictionRecord is what remains of a history that ended.
type EvictionRecord struct {
	Key      string    `json:"key"` // as in lists of memories
	Plugin   string    `json:"plugin"`
	MemoryID string    `json:"memoryId,omitempty"` // not of what was erased
	Scope    string    `json:"scope,omitempty"`    // of the scope instance that closed, if one did
	Instance string    `json:"instance,omitempty"` // likewise
	Reason   string    `json:"reason"`
	Messages int64     `json:"messages"` // the system message counts
	Bytes    int64     `json:"bytes"`
	At       time.Time `json:"at"`
}

// Tenant is a tenant of the host.
type Tenant struct {
	Name      string    `json:"name"`
	CreatedAt time.Time `json:"createdAt"`
}

// NewTenant asks for a tenant.
type NewTenant struct {
	Name string `json:"name"`
}

// NewKey asks for an API key.
type NewKey struct {
	Role          string `json:"role"`
	Name          string `json:"name,omitempty"`
	Subject       string `json:"subject,omitempty"`
	AssertSubject bool   `json:"assertSubject,omitempty"`
}

// Key is a new API key. Secret is shown this once.
type Key struct {
	ID     string `json:"id"`
	Role   string `json:"role"`
	Secret string `json:"secret"`
}

// Activate asks for a version, by digest or number, to become the active one.
type Activate struct {
	Version string `json:"version"`
}

// HostVersion says what runs.
type HostVersion struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Go      string `json:"go"`
	ABI     string `json:"abi"`
}
