package carrel

import (
	"iter"

	"github.com/carrelhost/carrel/abi"
)

// MemoryRef names one chat history of the plugin's own namespace: one of the
// two fields is set. The host derives the key; no ref can reach another
// tenant's or plugin's history.
type MemoryRef struct {
	MemoryID string `json:"memoryId,omitempty"` // an explicit id, as a caller would give it
	Key      string `json:"key,omitempty"`      // opaque, from DefaultID or List
}

// MemoryID refers to the history of an explicit memory id.
func MemoryID(id string) MemoryRef { return MemoryRef{MemoryID: id} }

// MemoryKey refers to a history by the key that the host gave.
func MemoryKey(key string) MemoryRef { return MemoryRef{Key: key} }

// Memory is the plugin's own chat memory. Refusals are *Refusal.
type Memory struct{ ctx *Context }

// Memory returns the plugin's own chat memory.
func (c *Context) Memory() Memory { return Memory{c} }

// DefaultMemory is the default history of a method in this call's context.
type DefaultMemory struct {
	MemoryID string `json:"memoryId"` // to show; it is no explicit id
	Key      string `json:"key"`      // for MemoryKey
}

// DefaultID returns the history that a method of this plugin would use here if
// its caller named none.
func (m Memory) DefaultID(service, method string) (DefaultMemory, error) {
	var d DefaultMemory
	err := m.ctx.Do(abi.OpMemoryDefaultID, invokeName{service, method}, &d)
	return d, err
}

type invokeName struct {
	Service string `json:"service"`
	Method  string `json:"method"`
}

// Messages returns a history's messages, oldest first, its system message
// before all. A history that was never written has none. Reading does not
// touch: it prolongs and ends nothing.
func (m Memory) Messages(r MemoryRef) ([]Message, error) {
	var res struct {
		Messages []Message `json:"messages"`
	}
	err := m.ctx.Do(abi.OpMemoryMessages, r, &res)
	return res.Messages, err
}

// Append stores whole turns: each a user's message and everything up to the
// assistant's final answer. A system message may come first; it takes the
// place of the stored one. The history is touched for the handler's service's
// scope, so it ends with that.
func (m Memory) Append(r MemoryRef, messages ...Message) error {
	return m.ctx.Do(abi.OpMemoryAppend, struct {
		MemoryRef
		Messages []Message `json:"messages"`
	}{r, messages}, nil)
}

// Delete ends a history. One that is not there is no error.
func (m Memory) Delete(r MemoryRef) error { return m.ctx.Do(abi.OpMemoryDelete, r, nil) }

// History is one history of the plugin's namespace.
type History struct {
	Key      string `json:"key"` // for MemoryKey
	MemoryID string `json:"memoryId"`
	Kind     string `json:"kind"`     // explicit, request, session or plugin
	Messages int64  `json:"messages"` // the system message counts; 0 if it was only touched
}

// List yields the histories of the plugin's namespace. It asks the host page
// by page and ends after an error.
func (m Memory) List() iter.Seq2[History, error] {
	type request struct {
		After string `json:"after,omitempty"`
	}
	type page struct {
		Data []History `json:"data"`
		Next string    `json:"next"`
	}
	return func(yield func(History, error) bool) {
		for after := ""; ; {
			var p page
			if err := m.ctx.Do(abi.OpMemoryList, request{after}, &p); err != nil {
				yield(History{}, err)
				return
			}
			for _, h := range p.Data {
				if !yield(h, nil) {
					return
				}
			}
			if after = p.Next; after == "" {
				return
			}
		}
	}
}
