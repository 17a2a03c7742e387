package carreltest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	carrel "github.com/carrelhost/carrel/sdk/go"

	"github.com/carrelhost/carrel/abi"
)

// pageSize is small, so that a test of a handful of histories sees pages.
const pageSize = 3

// history is one chat history.
type history struct {
	carrel.History
	messages []carrel.Message
}

// memory is the chat memory of one plugin.
type memory struct {
	keys      map[string]string // by kind and memory id
	histories map[string]*history
}

func newMemory() memory {
	return memory{keys: map[string]string{}, histories: map[string]*history{}}
}

// key returns the opaque key of a memory id of a kind.
func (m memory) key(kind, id string) string {
	name := kind + " " + id
	if _, ok := m.keys[name]; !ok {
		m.keys[name] = fmt.Sprintf("key-%03d", len(m.keys)+1)
		m.histories[m.keys[name]] = &history{History: carrel.History{Key: m.keys[name], MemoryID: id, Kind: kind}}
	}
	return m.keys[name]
}

const explicit = "explicit"

func (m memory) of(op abi.Op, r carrel.MemoryRef) (*history, error) {
	switch {
	case (r.MemoryID == "") == (r.Key == ""):
		return nil, refuse(string(op), abi.EINVAL, abi.BadRequest, "give either memoryId or key")
	case r.MemoryID != "":
		return m.histories[m.key(explicit, r.MemoryID)], nil
	case m.histories[r.Key] == nil:
		return nil, refuse(string(op), abi.ENOENT, abi.NotFound, "there is no history of that key")
	}
	return m.histories[r.Key], nil
}

// Messages returns what a history holds after calls, oldest first; the caller
// owns it. A history that was never written has none.
func (h *Host) Messages(r carrel.MemoryRef) []carrel.Message {
	found, err := h.memory.of(abi.OpMemoryMessages, r)
	if err != nil {
		return nil
	}
	return slices.Clone(found.messages)
}

// Remember puts messages into a history before a call, as Memory.Append would.
func (h *Host) Remember(r carrel.MemoryRef, messages ...carrel.Message) error {
	found, err := h.memory.of(abi.OpMemoryAppend, r)
	if err != nil {
		return err
	}
	return found.append(messages)
}

type memoryRequest struct {
	carrel.MemoryRef
	Messages []carrel.Message `json:"messages"`
}

func (m memory) request(op abi.Op, raw []byte) (memoryRequest, *history, error) {
	var r memoryRequest
	if err := json.Unmarshal(raw, &r); err != nil {
		return r, nil, refuse(string(op), abi.EINVAL, abi.MalformedJSON, err.Error())
	}
	found, err := m.of(op, r.MemoryRef)
	return r, found, err
}

func (m memory) messages(raw []byte) (any, error) {
	_, found, err := m.request(abi.OpMemoryMessages, raw)
	if err != nil {
		return nil, err
	}
	return map[string]any{"messages": append([]carrel.Message{}, found.messages...)}, nil
}

func (m memory) append(raw []byte) (any, error) {
	r, found, err := m.request(abi.OpMemoryAppend, raw)
	if err != nil {
		return nil, err
	}
	return struct{}{}, found.append(r.Messages)
}

func (m memory) delete(raw []byte) (any, error) {
	_, found, err := m.request(abi.OpMemoryDelete, raw)
	if err != nil {
		return nil, err
	}
	found.messages = nil
	return struct{}{}, nil
}

// list returns the histories that have messages, a page at a time.
func (m memory) list(raw []byte) (any, error) {
	var r struct{ After string }
	if err := json.Unmarshal(raw, &r); err != nil {
		return nil, refuse(string(abi.OpMemoryList), abi.EINVAL, abi.MalformedJSON, err.Error())
	}
	page := []carrel.History{}
	for _, found := range m.histories {
		if found.Key > r.After && len(found.messages) > 0 {
			found.History.Messages = int64(len(found.messages))
			page = append(page, found.History)
		}
	}
	slices.SortFunc(page, func(a, b carrel.History) int { return strings.Compare(a.Key, b.Key) })
	if len(page) <= pageSize {
		return map[string]any{"data": page}, nil
	}
	return map[string]any{"data": page[:pageSize], "next": page[pageSize-1].Key}, nil
}

// append stores whole turns; a system message at their head takes the place of
// the history's.
func (h *history) append(messages []carrel.Message) error {
	var system []carrel.Message
	turns := messages
	if len(messages) > 0 && messages[0].Role == carrel.RoleSystem {
		system, turns = messages[:1], messages[1:]
	}
	if fault := turnFault(turns); fault != "" {
		return refuse(string(abi.OpMemoryAppend), abi.EINVAL, abi.BadRequest, fault)
	}
	if system != nil {
		old := h.messages
		if len(old) > 0 && old[0].Role == carrel.RoleSystem {
			old = old[1:]
		}
		h.messages = slices.Concat(system, old)
	}
	h.messages = append(h.messages, turns...)
	return nil
}

// turnFault says why messages are no whole turns, or returns "".
func turnFault(messages []carrel.Message) string {
	open := false                // a turn has begun and is not answered
	waiting := map[string]bool{} // calls of tools without a result
	for i, m := range messages {
		switch m.Role {
		case carrel.RoleUser:
			if open {
				return fmt.Sprintf("messages[%d]: the turn before has no answer of the assistant", i)
			}
			open = true
		case carrel.RoleAssistant:
			if !open || len(waiting) > 0 {
				return fmt.Sprintf("messages[%d]: an answer stands after a user's message and the results of all tool calls", i)
			}
			for _, c := range m.ToolCalls {
				waiting[c.ID] = true
			}
			open = len(m.ToolCalls) > 0
		case carrel.RoleTool:
			if !waiting[m.ToolCallID] {
				return fmt.Sprintf("messages[%d]: no tool call has the id %q", i, m.ToolCallID)
			}
			delete(waiting, m.ToolCallID)
		default:
			return fmt.Sprintf("messages[%d]: the role %q cannot stand here", i, m.Role)
		}
	}
	if open {
		return "the last turn has no answer of the assistant"
	}
	return ""
}

// The priorities of a host's own providers of default ids.
const (
	sessionPriority = 0
	requestPriority = 100
)

// defaultID asks the providers in the order of their priorities.
func (c *call) defaultID(raw []byte) (any, error) {
	var r struct{ Service, Method string }
	if err := json.Unmarshal(raw, &r); err != nil {
		return nil, refuse(string(abi.OpMemoryDefaultID), abi.EINVAL, abi.MalformedJSON, err.Error())
	}
	name := r.Service + "." + r.Method
	if _, ok := c.host.find(name); !ok {
		return nil, refuse(string(abi.OpMemoryDefaultID), abi.ENOENT, abi.NotFound, "the plugin has no method "+name)
	}
	type provided struct {
		kind, id string
		priority int
	}
	providers := []provided{
		{"session", c.host.Info.SessionID, sessionPriority},
		{"request", c.host.Info.RequestID, requestPriority},
	}
	if ids := c.host.ids; ids != nil {
		own := provided{kind: "plugin", priority: ids.Priority}
		switch {
		case ids.Export != "":
			id, err := c.host.DefaultMemoryID()
			if err != nil {
				return nil, err
			}
			own.id = id
		case ids.From == abi.FromSubject:
			own.id = c.host.Info.Subject
		}
		providers = append(providers, own)
	}
	slices.SortStableFunc(providers, func(a, b provided) int { return a.priority - b.priority })
	for _, p := range providers {
		if p.id != "" {
			id := p.id + "#" + name
			return carrel.DefaultMemory{MemoryID: id, Key: c.host.memory.key(p.kind, id)}, nil
		}
	}
	return nil, refuse(string(abi.OpMemoryDefaultID), abi.ENOENT, abi.InvalidMemoryID, "no provider yields an id: set Info.RequestID")
}
