package imports

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/memory"
)

// Memory names a history of the plugin's own namespace: an explicit memory id,
// or the opaque key of any kind of history. Exactly one is set.
type Memory struct {
	MemoryID string `json:"memoryId,omitempty"`
	Key      string `json:"key,omitempty"`
}

func (m Memory) check() error {
	if (m.MemoryID == "") == (m.Key == "") {
		return carrel.Fail("imports.memory", abi.InvalidParams, "give exactly one of memoryId and key")
	}
	return nil
}

// Appended is what an append came to.
type Appended struct {
	Memory
	Trimmed int64 `json:"trimmed,omitempty"` // messages deleted because the history is at its limit
}

// Message is a stored message.
type Message struct {
	Seq        int64             `json:"seq"`  // 0 is the system message
	Turn       int64             `json:"turn"` // 0 is the system message
	Role       string            `json:"role"`
	Content    string            `json:"content"`
	ToolCalls  []carrel.ToolCall `json:"toolCalls,omitempty"`
	ToolCallID string            `json:"toolCallId,omitempty"`
	At         time.Time         `json:"at"`
	Origin     string            `json:"origin,omitempty"` // of its turn; absent = a model answered
}

// Listed is a history of the plugin's own namespace.
type Listed struct {
	MemoryID string `json:"memoryId"`
	Key      string `json:"key"`
	Kind     string `json:"kind"`
	Messages int64  `json:"messages"`
	Bytes    int64  `json:"bytes"`
}

// page bounds of what one operation lists.
const (
	defaultPage = 100
	maxPage     = 1000
)

func pageLimit(n int) (int, error) {
	switch {
	case n == 0:
		return defaultPage, nil
	case n < 0 || n > maxPage:
		return 0, carrel.Fail("imports.memory", abi.InvalidParams, fmt.Sprintf("limit is 1 to %d", maxPage))
	default:
		return n, nil
	}
}

func (h *Host) defaultID(ctx context.Context, request []byte) (any, error) {
	in, err := decode[struct {
		Service string `json:"service"`
		Method  string `json:"method"`
	}](request)
	if err != nil {
		return nil, err
	}
	s, err := carrel.ParseServiceName(in.Service)
	if err != nil {
		return nil, err
	}
	m, err := carrel.ParseMethodName(in.Method)
	if err != nil {
		return nil, err
	}
	return h.in.DefaultMemoryID(ctx, s, m)
}

func (h *Host) messages(ctx context.Context, request []byte) (any, error) {
	in, err := decode[struct {
		Memory
		After *int64 `json:"after"` // the last seq that is known; absent = from the beginning
		Limit int    `json:"limit"`
	}](request)
	if err != nil {
		return nil, err
	}
	limit, err := pageLimit(in.Limit)
	if err == nil {
		err = in.check()
	}
	if err != nil {
		return nil, err
	}
	after := int64(-1) // with the system message
	if in.After != nil {
		if after = *in.After; after < 0 {
			return nil, carrel.Fail("imports.memory", abi.InvalidParams, "after is a message's seq: 0 or more")
		}
	}
	list, more, err := h.in.Messages(ctx, in.Memory, after, limit)
	return struct {
		Messages []Message `json:"messages"`
		More     bool      `json:"more"`
	}{list, more}, err
}

// append takes whole turns only: a user's message, then the assistant's
// answer, with whole pairs of tool calls and results in between.
func (h *Host) append(ctx context.Context, request []byte) (any, error) {
	in, err := decode[struct {
		Memory
		Messages []struct {
			Role       string            `json:"role"`
			Content    string            `json:"content"`
			ToolCalls  []carrel.ToolCall `json:"toolCalls"`
			ToolCallID string            `json:"toolCallId"`
		} `json:"messages"`
	}](request)
	if err != nil {
		return nil, err
	}
	if err := in.check(); err != nil {
		return nil, err
	}
	turn := make([]carrel.Message, 0, len(in.Messages))
	for _, m := range in.Messages {
		turn = append(turn, carrel.Message{
			Role: carrel.Role(m.Role), Content: m.Content, ToolCalls: m.ToolCalls, ToolCallID: m.ToolCallID,
		})
	}
	if err := memory.CheckTurn(turn); err != nil {
		return nil, err
	}
	return h.in.Append(ctx, in.Memory, turn)
}

func (h *Host) delete(ctx context.Context, request []byte) (any, error) {
	in, err := decode[struct {
		Memory
		Turn json.Number `json:"turn"` // "" = the whole history; null is refused, it is no way to say that
	}](request)
	if err != nil {
		return nil, err
	}
	if err := in.check(); err != nil {
		return nil, err
	}
	var deleted bool
	if in.Turn == "" {
		deleted, err = h.in.Delete(ctx, in.Memory)
	} else {
		turn, bad := strconv.ParseInt(in.Turn.String(), 10, 64)
		if bad != nil || turn < 1 {
			return nil, carrel.Fail("imports.memory", abi.InvalidParams, "turn is a turn's number: 1 or more; leave it out to delete the history")
		}
		deleted, err = h.in.DeleteTurn(ctx, in.Memory, turn)
	}
	return struct {
		Deleted bool `json:"deleted"`
	}{deleted}, err
}

func (h *Host) list(ctx context.Context, request []byte) (any, error) {
	in, err := decode[struct {
		Prefix string `json:"prefix"`
		After  string `json:"after"` // what the page before returned as next
		Limit  int    `json:"limit"`
	}](request)
	if err != nil {
		return nil, err
	}
	limit, err := pageLimit(in.Limit)
	if err != nil {
		return nil, err
	}
	found, next, err := h.in.List(ctx, in.Prefix, in.After, limit)
	return struct {
		Memories []Listed `json:"memories"`
		Next     string   `json:"next,omitempty"`
	}{found, next}, err
}
