package carrel

import (
	"iter"

	"github.com/carrelhost/carrel/abi"
)

// MemoryRef names one chat history of the plugin's own namespace, or of the
// shared one that it is granted: one of the two fields is set. The host
// derives the key; no ref can reach another tenant's or plugin's history.
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

// DefaultID returns the history that a chat method of this plugin would use
// here if its caller named none.
func (m Memory) DefaultID(service, method string) (DefaultMemory, error) {
	var d DefaultMemory
	err := m.ctx.Do(abi.OpMemoryDefaultID, struct {
		Service string `json:"service"`
		Method  string `json:"method"`
	}{service, method}, &d)
	return d, err
}

// messagesPage is how many messages are asked for at once.
const messagesPage = 500

// Messages returns a history's messages, oldest first, its system message
// before all. A history that was never written has none. Reading does not
// touch: it prolongs and ends nothing.
func (m Memory) Messages(r MemoryRef) ([]Message, error) {
	type request struct {
		MemoryRef
		After *int64 `json:"after,omitempty"` // seq of the last message that is known
		Limit int    `json:"limit"`
	}
	type page struct {
		Messages []struct {
			Message
			Seq    int64  `json:"seq"` // the system message's is 0
			Turn   int64  `json:"turn"`
			Origin Origin `json:"origin"`
		} `json:"messages"`
		More bool `json:"more"`
	}
	var all []Message
	for req := (request{r, nil, messagesPage}); ; {
		var p page
		if err := m.ctx.Do(abi.OpMemoryMessages, req, &p); err != nil {
			return nil, err
		}
		for _, message := range p.Messages {
			message.Message.Turn, message.Message.Origin = message.Turn, message.Origin
			all, req.After = append(all, message.Message), &message.Seq
		}
		if !p.More || len(p.Messages) == 0 {
			return all, nil
		}
	}
}

// Append stores one whole turn: a user's message and everything up to the
// assistant's final answer, results of tool calls included. The history is
// touched for the scope of the handler's service, so it ends with that. In a
// shared namespace the turn is marked with OriginPlugin. A history that is
// full loses its oldest turns: trimmed is how many messages it lost.
func (m Memory) Append(r MemoryRef, turn ...Message) (trimmed int64, err error) {
	var res struct {
		Trimmed int64 `json:"trimmed"`
	}
	err = m.ctx.Do(abi.OpMemoryAppend, struct {
		MemoryRef
		Messages []Message `json:"messages"`
	}{r, turn}, &res)
	return res.Trimmed, err
}

// Delete ends a history and reports whether there was one.
func (m Memory) Delete(r MemoryRef) (deleted bool, err error) {
	var res struct {
		Deleted bool `json:"deleted"`
	}
	err = m.ctx.Do(abi.OpMemoryDelete, r, &res)
	return res.Deleted, err
}

// DeleteTurn deletes one turn of a history, which stays, and reports whether
// there was one. Turns are counted from 1, and no number is used again; see
// Message.Turn.
func (m Memory) DeleteTurn(r MemoryRef, turn int64) (deleted bool, err error) {
	var res struct {
		Deleted bool `json:"deleted"`
	}
	err = m.ctx.Do(abi.OpMemoryDelete, struct {
		MemoryRef
		Turn int64 `json:"turn"` // also 0: that is no turn, and not the whole history
	}{r, turn}, &res)
	return res.Deleted, err
}

// History is one history of the plugin's namespace.
type History struct {
	MemoryID string `json:"memoryId"`
	Key      string `json:"key"`      // for MemoryKey
	Kind     string `json:"kind"`     // explicit, request, session or plugin
	Messages int64  `json:"messages"` // the system message counts; 0 if it was only touched
	Bytes    int64  `json:"bytes"`    // of contents
}

// List yields the histories of the plugin's namespace whose memory ids begin
// with prefix. It asks the host page by page and ends after an error.
func (m Memory) List(prefix string) iter.Seq2[History, error] {
	type request struct {
		Prefix string `json:"prefix,omitempty"`
		After  string `json:"after,omitempty"`
	}
	type page struct {
		Memories []History `json:"memories"`
		Next     string    `json:"next"`
	}
	return func(yield func(History, error) bool) {
		for after := ""; ; {
			var p page
			if err := m.ctx.Do(abi.OpMemoryList, request{prefix, after}, &p); err != nil {
				yield(History{}, err)
				return
			}
			for _, h := range p.Memories {
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
