package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/store"
)

// storedCall is a tool call in a row. Arguments are kept as bytes, because
// they come from a model: they need not be JSON, and JSON must not be
// reformatted.
type storedCall struct {
	ID        []byte `json:"id"`
	Name      []byte `json:"name"`
	Arguments []byte `json:"arguments"`
}

func encodeCalls(calls []carrel.ToolCall) ([]byte, error) {
	if len(calls) == 0 {
		return nil, nil
	}
	kept := make([]storedCall, len(calls))
	for i, c := range calls {
		kept[i] = storedCall{ID: []byte(c.ID), Name: []byte(c.Name), Arguments: c.Args}
	}
	return json.Marshal(kept)
}

func decodeCalls(b []byte) ([]carrel.ToolCall, error) {
	if len(b) == 0 {
		return nil, nil
	}
	var kept []storedCall
	if err := json.Unmarshal(b, &kept); err != nil {
		return nil, err
	}
	calls := make([]carrel.ToolCall, len(kept))
	for i, c := range kept {
		calls[i] = carrel.ToolCall{ID: string(c.ID), Name: string(c.Name), Args: c.Arguments}
	}
	return calls, nil
}

// row is a message ready to be inserted, sharing no memory with the caller's.
type row struct {
	role          carrel.Role
	content, call string
	toolCalls     []byte
	size          int64
}

func rowsOf(messages []carrel.Message) ([]row, error) {
	rows := make([]row, len(messages))
	for i, m := range messages {
		calls, err := encodeCalls(m.ToolCalls)
		if err != nil {
			return nil, err
		}
		rows[i] = row{role: m.Role, content: m.Content, call: m.ToolCallID, toolCalls: calls, size: m.Size()}
	}
	return rows, nil
}

// Commit implements store.Histories.
func (s *Store) Commit(ctx context.Context, c store.Commit) (store.Committed, error) {
	const op = "sqlite.Commit"
	// Encoded here and not in the writer: callers do this in parallel, and the
	// write may outlast a caller whose context ends.
	var messages []carrel.Message
	if len(c.Turns) > 0 {
		messages = c.Turns[0].Messages
	}
	rows, err := rowsOf(messages)
	if err != nil {
		return store.Committed{}, classify(op, err)
	}
	if c.System != nil {
		system := *c.System
		c.System = &system
	}
	err = change(ctx, s, op, func(ctx context.Context, q *session) error {
		now, err := current(ctx, q, c.Touch.Key)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		if now.generation != c.Generation {
			return carrel.Fail(op, abi.ScopeClosed, "the history that this turn was built upon has ended")
		}
		if now.generation == 0 {
			now.nextSeq = 1
			if now.generation, err = touch(ctx, q, op, c.Touch); err != nil {
				return err
			}
		}
		if c.System != nil {
			if err := setSystem(ctx, q, now.generation, *c.System, c.At); err != nil {
				return err
			}
		}
		return appendTurn(ctx, q, now, rows, c.At)
	})
	return store.Committed{}, err
}

func setSystem(ctx context.Context, q *session, generation int64, text string, at time.Time) error {
	var kept any // an empty one is none
	count := 0
	if text != "" {
		kept, count = []byte(text), 1
	}
	_, err := q.exec(ctx, `UPDATE histories SET
		messages = messages - (system IS NOT NULL) + ?,
		bytes = bytes - coalesce(length(system), 0) + ?,
		system = ?, system_at = ? WHERE generation = ?`,
		count, len(text), kept, at.UnixMicro(), generation)
	return err
}

func appendTurn(ctx context.Context, q *session, now state, rows []row, at time.Time) error {
	size := int64(0)
	turn := now.turns
	if len(rows) > 0 {
		turn++
	}
	for i, m := range rows {
		// An empty slice may arrive as NULL, and neither column has NULLs.
		_, err := q.exec(ctx, `INSERT INTO messages (generation, seq, turn, role, content, tool_calls, tool_call_id, at)
			VALUES (?, ?, ?, ?, CAST(? AS BLOB), ?, CAST(? AS BLOB), ?)`,
			now.generation, now.nextSeq+int64(i), turn, m.role, m.content, m.toolCalls, m.call, at.UnixMicro())
		if err != nil {
			return err
		}
		size += m.size
	}
	_, err := q.exec(ctx, `UPDATE histories SET next_seq = next_seq + ?1, messages = messages + ?1, last_turn = ?2,
		bytes = bytes + ?3, last_used_at = max(last_used_at, ?4) WHERE generation = ?5`,
		len(rows), turn, size, at.UnixMicro(), now.generation)
	return err
}

// The primary key is the order in both directions, so that LIMIT stops the
// scan and nothing is sorted.
const (
	selectMessage  = "SELECT seq, turn, role, content, tool_calls, tool_call_id, at FROM messages "
	newestMessages = selectMessage + "WHERE generation = ? ORDER BY seq DESC LIMIT ?"
	laterMessages  = selectMessage + "WHERE generation = ? AND seq > ? ORDER BY seq LIMIT ?"
)

func scanMessage(row scanner) (m store.StoredMessage, err error) {
	var content, calls, call []byte
	if err := row.Scan(&m.Seq, &m.Turn, &m.Role, &content, &calls, &call, instant{&m.At}); err != nil {
		return m, err
	}
	m.Content, m.ToolCallID = string(content), string(call)
	m.ToolCalls, err = decodeCalls(calls)
	return m, err
}

// View implements store.Histories.
func (s *Store) View(ctx context.Context, k carrel.MemoryKey, limit store.ViewLimit) (store.View, error) {
	return snapshot(ctx, s, "sqlite.View", func(ctx context.Context, q *session) (v store.View, err error) {
		err = q.one(ctx, "SELECT h.generation, coalesce(h.system, x'') FROM live h "+whereKey, keyArgs(k), &v.Generation, &v.System)
		if errors.Is(err, sql.ErrNoRows) {
			return v, nil
		}
		if err != nil || limit.Messages <= 0 {
			return v, err
		}
		newest, err := list(ctx, q, scanMessage, newestMessages, v.Generation, limit.Messages)
		if err != nil {
			return v, err
		}
		for _, m := range slices.Backward(newest) {
			if n := len(v.Recent); n == 0 || v.Recent[n-1].N != m.Turn {
				v.Recent = append(v.Recent, carrel.Turn{N: m.Turn})
			}
			last := &v.Recent[len(v.Recent)-1]
			last.Messages = append(last.Messages, m.Message)
		}
		return v, nil
	})
}

// Messages implements store.Histories.
func (s *Store) Messages(ctx context.Context, k carrel.MemoryKey, generation, after int64, limit int) ([]store.StoredMessage, error) {
	const op = "sqlite.Messages"
	return snapshot(ctx, s, op, func(ctx context.Context, q *session) ([]store.StoredMessage, error) {
		system := store.StoredMessage{Message: carrel.Message{Role: carrel.RoleSystem}}
		err := q.one(ctx, "SELECT coalesce(h.system, x''), h.system_at FROM live h "+whereKey+" AND h.generation = ?",
			append(keyArgs(k), generation), &system.Content, instant{&system.At})
		if err != nil {
			return nil, missing(op, err)
		}
		var before []store.StoredMessage
		if after < 0 && limit > 0 && system.Content != "" {
			before = append(before, system)
		}
		rest, err := list(ctx, q, scanMessage, laterMessages, generation, max(after, 0), atMost(limit-len(before)))
		return append(before, rest...), err
	})
}
