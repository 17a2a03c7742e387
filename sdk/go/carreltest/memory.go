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
	messages  []stored
	seq, turn int64 // the last that there were
}

// stored is a message with its place in its history.
type stored struct {
	carrel.Message
	Seq    int64         `json:"seq"`
	Turn   int64         `json:"turn"`
	Origin carrel.Origin `json:"origin,omitempty"`
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

// Messages returns what a history holds after calls, oldest first, as it was
// appended; the caller owns it. A history that was never written has none.
func (h *Host) Messages(r carrel.MemoryRef) []carrel.Message {
	found, err := h.memory.of(abi.OpMemoryMessages, r)
	if err != nil {
		return nil
	}
	var all []carrel.Message
	for _, m := range found.messages {
		all = append(all, m.Message)
	}
	return all
}

// Remember puts a turn into a history before a call, as Memory.Append does. A
// message's Origin is kept: a test says by it what another plugin of a shared
// namespace has appended.
func (h *Host) Remember(r carrel.MemoryRef, turn ...carrel.Message) error {
	found, err := h.memory.of(abi.OpMemoryAppend, r)
	if err != nil {
		return err
	}
	return found.append(turn)
}

type memoryRequest struct {
	carrel.MemoryRef
	Messages []carrel.Message
	After    *int64
	Limit    int
	Turn     *int64
}

func (m memory) request(op abi.Op, raw []byte) (memoryRequest, *history, error) {
	var r memoryRequest
	if err := json.Unmarshal(raw, &r); err != nil {
		return r, nil, refuse(string(op), abi.EINVAL, abi.MalformedJSON, err.Error())
	}
	found, err := m.of(op, r.MemoryRef)
	return r, found, err
}

// messages answers with a page, smaller than was asked for.
func (m memory) messages(raw []byte) (any, error) {
	r, found, err := m.request(abi.OpMemoryMessages, raw)
	if err != nil {
		return nil, err
	}
	list := []stored{}
	after := int64(-1)
	if r.After != nil {
		after = *r.After
	}
	for _, message := range found.messages {
		if message.Seq > after && len(list) < min(r.Limit, pageSize) {
			list = append(list, message)
		}
	}
	more := len(list) > 0 && list[len(list)-1].Seq < found.messages[len(found.messages)-1].Seq
	return map[string]any{"messages": list, "more": more}, nil
}

func (m memory) append(raw []byte) (any, error) {
	r, found, err := m.request(abi.OpMemoryAppend, raw)
	if err != nil {
		return nil, err
	}
	return carrel.DefaultMemory{MemoryID: found.MemoryID, Key: found.Key}, found.append(r.Messages)
}

func (m memory) delete(raw []byte) (any, error) {
	r, found, err := m.request(abi.OpMemoryDelete, raw)
	if err != nil {
		return nil, err
	}
	before := len(found.messages)
	switch {
	case r.Turn == nil:
		found.messages, found.seq, found.turn = nil, 0, 0
	case *r.Turn < 1:
		return nil, refuse(string(abi.OpMemoryDelete), abi.EINVAL, abi.InvalidParams, "turn is a turn's number: 1 or more")
	default:
		found.messages = slices.DeleteFunc(found.messages, func(m stored) bool { return m.Turn == *r.Turn })
	}
	return map[string]any{"deleted": len(found.messages) < before}, nil
}

// list returns the histories that have messages, a page at a time.
func (m memory) list(raw []byte) (any, error) {
	var r struct{ Prefix, After string }
	if err := json.Unmarshal(raw, &r); err != nil {
		return nil, refuse(string(abi.OpMemoryList), abi.EINVAL, abi.MalformedJSON, err.Error())
	}
	page := []carrel.History{}
	for _, found := range m.histories {
		if found.Key > r.After && strings.HasPrefix(found.MemoryID, r.Prefix) && len(found.messages) > 0 {
			listed := found.History
			for _, message := range found.messages {
				listed.Messages++
				listed.Bytes += int64(len(message.Content))
			}
			page = append(page, listed)
		}
	}
	slices.SortFunc(page, func(a, b carrel.History) int { return strings.Compare(a.Key, b.Key) })
	if len(page) <= pageSize {
		return map[string]any{"memories": page}, nil
	}
	return map[string]any{"memories": page[:pageSize], "next": page[pageSize-1].Key}, nil
}

// append stores one whole turn.
func (h *history) append(turn []carrel.Message) error {
	if fault := turnFault(turn); fault != "" {
		return refuse(string(abi.OpMemoryAppend), abi.EINVAL, abi.InvalidParams, "this is no whole turn: "+fault)
	}
	h.turn++
	for _, m := range turn {
		h.seq++
		m.Turn = 0
		h.messages = append(h.messages, stored{m, h.seq, h.turn, m.Origin})
	}
	return nil
}

// turnFault says why messages are no whole turn, or returns "".
func turnFault(turn []carrel.Message) string {
	if len(turn) < 2 || turn[0].Role != carrel.RoleUser {
		return "it is a user's message and everything up to the assistant's final answer"
	}
	var waiting []string // calls of tools without a result, in their order
	final := false
	for i, m := range turn[1:] {
		switch {
		case final:
			return fmt.Sprintf("messages[%d] comes after the final answer", i+1)
		case m.Role == carrel.RoleTool && len(waiting) > 0 && waiting[0] == m.ToolCallID:
			waiting = waiting[1:]
		case m.Role == carrel.RoleAssistant && len(waiting) == 0:
			for _, c := range m.ToolCalls {
				waiting = append(waiting, c.ID)
			}
			final = len(m.ToolCalls) == 0
		default:
			return fmt.Sprintf("messages[%d], of the role %q, cannot stand there", i+1, m.Role)
		}
	}
	if !final {
		return "it ends without an answer of the assistant"
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
	if m, ok := c.host.find(name); !ok || m.Kind != abi.KindChat {
		return nil, refuse(string(abi.OpMemoryDefaultID), abi.ENOENT, abi.NotFound, "the plugin has no chat method "+name)
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
