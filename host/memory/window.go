package memory

import (
	"fmt"
	"math"
	"slices"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
)

// System applies a rendered system message to a history that has the stored
// one; "" is none, for both. It returns the one to send, and the one to store
// if that is a change. A method that declares none leaves what is there.
func System(stored, rendered string) (send string, change *string) {
	if rendered == "" || rendered == stored {
		return stored, nil
	}
	return rendered, &rendered
}

// Seeds makes turns of a manifest's examples: those that an empty history
// begins with. The caller owns them.
func Seeds(examples []abi.Example) [][]carrel.Message {
	turns := make([][]carrel.Message, 0, len(examples))
	for _, e := range examples {
		turns = append(turns, []carrel.Message{
			{Role: carrel.RoleUser, Content: e.User},
			{Role: carrel.RoleAssistant, Content: e.Assistant},
		})
	}
	return turns
}

// Window is what a chat method's window allows to be sent. Its bounds hold
// together: what exceeds one of them is left out.
type Window struct {
	Messages  int   // all that is sent, the system message and the current turn among them; 0 = no bound by messages
	Tokens    int64 // likewise in tokens, estimated; 0 = no bound by tokens
	Bytes     int64 // of the turns taken from the history, as carrel.Message.Size counts; 0 = no bound
	TokenRate int   // tokens per 1,000 bytes, as measured; 0 = DefaultTokenRate
}

// NewWindow makes a window of a manifest's, of the host's bound on the bytes
// taken from a history, and of the rate that was measured on that history.
func NewWindow(w abi.Window, bytes int64, tokenRate int) Window {
	out := Window{Bytes: bytes, TokenRate: tokenRate}
	if w.Type == abi.WindowTokens {
		out.Tokens = int64(w.Max)
	} else {
		out.Messages = w.Max
	}
	return out
}

// Read returns how much of a history must be read so that Send and Drop have
// all that may fit: the number of the newest messages, and their bytes, where
// reading ends with the message that exceeds them; 0 bytes = no bound.
func (w Window) Read() (messages int, bytes int64) {
	messages, bytes = math.MaxInt32, w.Bytes
	if w.Messages > 0 {
		messages = w.Messages
	}
	if w.Tokens > 0 {
		// Every message has its overhead, so their number is bounded too.
		messages = int(min(int64(messages), 1+w.Tokens/messageTokens))
		most := 1 + TokenBytes(w.Tokens, w.TokenRate)
		if bytes == 0 || most < bytes {
			bytes = most
		}
	}
	return messages, bytes
}

// Send returns what the model is sent: the system message, if there is one,
// the newest whole turns that fit, and the current turn's messages. The turns
// are contiguous up to the newest; the first that does not fit ends them. A
// first turn that lacks its beginning is never part of it. System message and
// current turn are sent even if they alone are more than the bound by
// messages; if they are more than the bound by tokens, it is
// context_too_large with the limit window. The slice is the caller's.
func (w Window) Send(system string, recent []carrel.Turn, current []carrel.Message) ([]carrel.Message, error) {
	room := w.room(system, current)
	if w.Tokens > 0 && room.tokens < 0 {
		return nil, carrel.FailLimit("memory.Send", abi.ContextTooLarge, "window", fmt.Sprintf(
			"the system message and this turn's messages alone are about %d tokens, and the method's window has %d; "+
				"send less text, or let the plugin's author raise `window.max`", w.Tokens-room.tokens, w.Tokens))
	}
	fitting := recent[w.first(recent, room):]
	size := 1 + len(current)
	for _, t := range fitting {
		size += len(t.Messages)
	}
	out := make([]carrel.Message, 0, size)
	if system != "" {
		out = append(out, carrel.Message{Role: carrel.RoleSystem, Content: system})
	}
	for _, t := range fitting {
		out = append(out, t.Messages...)
	}
	return append(out, current...), nil
}

// Drop returns the number of the newest turn that a history does not keep
// under "retain": "window" once current, a whole turn, is stored after
// lastTurn; 0 = it keeps all. What it keeps is what would fit beside system
// and current, so no later Send, whose turn comes on top of them, misses what
// was dropped. Seeds that are stored together with current are not dropped.
func (w Window) Drop(system string, recent []carrel.Turn, lastTurn int64, current []carrel.Message) int64 {
	first := w.first(recent, w.room(system, current))
	if first == len(recent) {
		return lastTurn
	}
	// Older turns, which were not read, are outside of the window too.
	return recent[first].N - 1
}

// room is what a window has left. Bounds that do not exist leave the most
// that there can be.
type room struct {
	messages int
	tokens   int64 // negative if the bound is exceeded
	bytes    int64
}

// room returns what system message and current turn leave for older turns.
func (w Window) room(system string, current []carrel.Message) room {
	r := room{messages: math.MaxInt, tokens: math.MaxInt64, bytes: math.MaxInt64}
	if w.Messages > 0 {
		r.messages = w.Messages
	}
	if w.Tokens > 0 {
		r.tokens = w.Tokens
	}
	if system != "" {
		r.messages--
		r.tokens -= Tokens(carrel.Message{Content: system}, w.TokenRate)
	}
	r.messages -= len(current)
	for _, m := range current {
		r.tokens -= Tokens(m, w.TokenRate)
	}
	if w.Bytes > 0 {
		r.bytes = w.Bytes
	}
	return r
}

// first returns the index of the oldest turn that fits, with all after it.
func (w Window) first(recent []carrel.Turn, r room) int {
	for i, turn := range slices.Backward(recent) {
		if len(turn.Messages) == 0 || turn.Messages[0].Role != carrel.RoleUser {
			return i + 1
		}
		r.messages -= len(turn.Messages)
		for _, m := range turn.Messages {
			r.tokens -= Tokens(m, w.TokenRate)
			r.bytes -= m.Size()
		}
		if r.messages < 0 || r.tokens < 0 || r.bytes < 0 {
			return i + 1
		}
	}
	return 0
}
