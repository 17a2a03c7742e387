package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"math"
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
	newestMessages = selectMessage + "AND seq <= ?2 ORDER BY seq DESC LIMIT ?3"
	laterMessages  = selectMessage + "AND seq > ?2 ORDER BY seq LIMIT ?3"

	// Of a message whose content is longer than ?4 nothing is read that lies in
	// the row after that length.
	selectMessage = "SELECT seq, turn, role, " + fits + ", iif(" + fits + ", content, NULL), iif(" + fits + ", tool_calls, NULL), iif(" +
		fits + ", tool_call_id, NULL), iif(" + fits + ", at, 0), iif(" + fits + ", origin, '') FROM messages WHERE generation = ?1 "
	fits = "length(content) <= ?4"
)

// readRow is a message as it was read: whole, or no more than that it is there.
type readRow struct {
	store.StoredMessage
	whole bool
}

func scanMessage(s scanner) (m readRow, err error) {
	var content, calls, call []byte
	if err := s.Scan(&m.Seq, &m.Turn, &m.Role, &m.whole, &content, &calls, &call, instant{&m.At}, &m.Origin); err != nil {
		return m, err
	}
	m.Content, m.ToolCallID = string(content), string(call)
	m.ToolCalls, err = decodeCalls(calls)
	return m, err
}

// contentBytes returns a limit on bytes as queries for messages take it.
func contentBytes(limit int64) int64 {
	if limit <= 0 {
		return math.MaxInt64
	}
	return limit
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

// newestWithin returns the newest messages within limit, the newest first.
func newestWithin(ctx context.Context, q *session, generation int64, limit store.ViewLimit) (newest []store.StoredMessage, err error) {
	most := contentBytes(limit.Bytes)
	left := most
	err = each(ctx, q, func(s scanner) (bool, error) {
		m, err := scanMessage(s)
		if left -= m.Size(); err != nil || !m.whole || left < 0 {
			return false, err
		}
		newest = append(newest, m.StoredMessage)
		return true, nil
	}, newestMessages, generation, math.MaxInt64, limit.Messages, most)
	return newest, err
}

// Messages implements store.Histories.
func (s *Store) Messages(ctx context.Context, k carrel.MemoryKey, generation, after int64, limit store.MessageLimit) (store.MessagePage, error) {
	const op = "sqlite.Messages"
	return snapshot(ctx, s, op, func(ctx context.Context, q *session) (store.MessagePage, error) {
		system := store.StoredMessage{Message: carrel.Message{Role: carrel.RoleSystem}}
		err := q.one(ctx, "SELECT coalesce(h.system, x''), h.system_at FROM live h "+whereKey+" AND h.generation = ?"+unexpired,
			append(keyArgs(k), generation, expiry(limit.Cutoff)), &system.Content, instant{&system.At})
		if err != nil {
			return store.MessagePage{}, missing(op, err)
		}
		if after >= 0 || system.Content == "" {
			return messagesAfter(ctx, q, generation, after, limit, nil)
		}
		if limit.Messages <= 0 {
			return store.MessagePage{More: true}, nil
		}
		return messagesAfter(ctx, q, generation, after, limit, []store.StoredMessage{system})
	})
}

// messagesAfter returns a page that begins with the given messages.
func messagesAfter(ctx context.Context, q *session, generation, after int64, limit store.MessageLimit, begin []store.StoredMessage) (store.MessagePage, error) {
	page := store.MessagePage{Messages: begin}
	most := contentBytes(limit.Bytes)
	left := most
	for _, m := range begin {
		left -= m.Size()
	}
	large := int64(0) // the first message, if only its place was read
	err := each(ctx, q, func(s scanner) (bool, error) {
		m, err := scanMessage(s)
		if err != nil {
			return false, err
		}
		left -= m.Size()
		if n := len(page.Messages); n >= limit.Messages || n > 0 && (!m.whole || left < 0) {
			page.More = true
			return false, nil
		}
		if !m.whole {
			large, left = m.Seq, -1
		}
		page.Messages = append(page.Messages, m.StoredMessage)
		return true, nil
	}, laterMessages, generation, max(after, 0), atMost(limit.Messages-len(begin))+1, most)
	if err == nil && large > 0 {
		var m readRow
		m, err = first(ctx, q, scanMessage, laterMessages, generation, large-1, 1, int64(math.MaxInt64))
		page.Messages[0] = m.StoredMessage
	}
	return page, err
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
