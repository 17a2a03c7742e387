package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"slices"

	"github.com/carrelhost/carrel"
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

// The primary key is the order in both directions, so that LIMIT stops the
// scan and nothing is sorted.
const (
	selectMessage  = "SELECT seq, turn, role, content, tool_calls, tool_call_id, at, origin FROM messages "
	newestMessages = selectMessage + "WHERE generation = ? ORDER BY seq DESC LIMIT ?"
	laterMessages  = selectMessage + "WHERE generation = ? AND seq > ? ORDER BY seq LIMIT ?"
)

func scanMessage(row scanner) (m store.StoredMessage, err error) {
	var content, calls, call []byte
	if err := row.Scan(&m.Seq, &m.Turn, &m.Role, &content, &calls, &call, instant{&m.At}, &m.Origin); err != nil {
		return m, err
	}
	m.Content, m.ToolCallID = string(content), string(call)
	m.ToolCalls, err = decodeCalls(calls)
	return m, err
}

const viewed = `SELECT h.generation, coalesce(h.system, x''), h.last_turn, h.messages - (h.system IS NOT NULL), h.token_rate
	FROM live h ` + whereKey + unexpired

// View implements store.Histories.
func (s *Store) View(ctx context.Context, k carrel.MemoryKey, limit store.ViewLimit) (store.View, error) {
	return snapshot(ctx, s, "sqlite.View", func(ctx context.Context, q *session) (v store.View, err error) {
		err = q.one(ctx, viewed, append(keyArgs(k), expiry(limit.Cutoff)),
			&v.Generation, &v.System, &v.LastTurn, &v.Stored, &v.TokenRate)
		if errors.Is(err, sql.ErrNoRows) {
			return v, nil
		}
		if err != nil || limit.Messages <= 0 {
			return v, err
		}
		newest, err := newestWithin(ctx, q, v.Generation, limit)
		for _, m := range slices.Backward(newest) {
			if n := len(v.Recent); n == 0 || v.Recent[n-1].N != m.Turn {
				v.Recent = append(v.Recent, carrel.Turn{N: m.Turn})
			}
			last := &v.Recent[len(v.Recent)-1]
			last.Messages = append(last.Messages, m.Message)
		}
		return v, err
	})
}

// newestWithin returns the newest messages, the newest first, up to the one
// that exceeds a limit on bytes.
func newestWithin(ctx context.Context, q *session, generation int64, limit store.ViewLimit) (newest []store.StoredMessage, err error) {
	size := int64(0)
	err = each(ctx, q, func(row scanner) (bool, error) {
		m, err := scanMessage(row)
		if err != nil {
			return false, err
		}
		newest = append(newest, m)
		size += m.Size()
		return limit.Bytes <= 0 || size <= limit.Bytes, nil
	}, newestMessages, generation, limit.Messages)
	return newest, err
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

// DeleteTurn implements store.Histories.
func (s *Store) DeleteTurn(ctx context.Context, k carrel.MemoryKey, generation, turn int64) error {
	const op = "sqlite.DeleteTurn"
	return change(ctx, s, op, func(ctx context.Context, q *session) error {
		now, err := current(ctx, q, k)
		if err != nil {
			return missing(op, err)
		}
		if now.generation != generation {
			return carrel.FailNotFound(op)
		}
		begin, err := turnStart(ctx, q, now, turn)
		if err != nil {
			return err
		}
		doomed := span{first: begin}
		err = each(ctx, q, func(row scanner) (bool, error) {
			m, err := scanWeight(row)
			if err != nil || m.turn != turn {
				return false, err
			}
			doomed.add(m)
			return true, nil
		}, weights, generation, begin)
		if err != nil {
			return err
		}
		if doomed.messages == 0 {
			return carrel.FailNotFound(op)
		}
		if err := now.drop(ctx, q, doomed); err != nil {
			return err
		}
		_, err = q.exec(ctx, "UPDATE histories SET messages = ?, bytes = ? WHERE generation = ?", now.messages, now.bytes, generation)
		return err
	})
}

// turnStart returns the least seq from which no turn is before the given one.
// Turns rise with seqs, so it halves: no index has turns, and a long history
// is not walked while other writes wait.
func turnStart(ctx context.Context, q *session, now state, turn int64) (int64, error) {
	low, high := int64(1), now.nextSeq
	for low < high {
		middle := low + (high-low)/2
		var seq, there int64
		err := q.one(ctx, "SELECT seq, turn FROM messages WHERE generation = ? AND seq >= ? ORDER BY seq LIMIT 1",
			[]any{now.generation, middle}, &seq, &there)
		switch {
		case errors.Is(err, sql.ErrNoRows), err == nil && there >= turn:
			high = middle
		case err != nil:
			return 0, err
		default:
			low = seq + 1
		}
	}
	return low, nil
}

// weights picks what is needed to count messages that are to be deleted,
// without their contents: those from a seq on, the oldest first.
const weights = `SELECT seq, turn, length(content) + length(tool_call_id), tool_calls FROM messages
	WHERE generation = ? AND seq >= ? ORDER BY seq`

// weight is a message as limits count it.
type weight struct{ seq, turn, bytes int64 }

func scanWeight(row scanner) (m weight, err error) {
	var encoded []byte
	if err := row.Scan(&m.seq, &m.turn, &m.bytes, &encoded); err != nil {
		return m, err
	}
	calls, err := decodeCalls(encoded)
	m.bytes += carrel.Message{ToolCalls: calls}.Size()
	return m, err
}

// span is messages that lie together.
type span struct{ first, last, messages, bytes int64 }

func (s *span) add(m weight) {
	s.last = m.seq
	s.messages++
	s.bytes += m.bytes
}
