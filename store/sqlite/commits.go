package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/store"
)

// row is a message ready to be inserted, sharing no memory with the caller's.
type row struct {
	role          carrel.Role
	content, call string
	toolCalls     []byte
	size          int64
}

// turn is a store.NewTurn ready to be inserted.
type turn struct {
	rows   []row
	origin carrel.Origin
	at     time.Time
}

// encode leaves turns without messages out: there is nothing to store.
func encode(turns []store.NewTurn, at time.Time) ([]turn, error) {
	var encoded []turn
	for _, t := range turns {
		if len(t.Messages) == 0 {
			continue
		}
		if t.At.IsZero() {
			t.At = at
		}
		rows := make([]row, len(t.Messages))
		for i, m := range t.Messages {
			calls, err := encodeCalls(m.ToolCalls)
			if err != nil {
				return nil, err
			}
			rows[i] = row{role: m.Role, content: m.Content, call: m.ToolCallID, toolCalls: calls, size: m.Size()}
		}
		encoded = append(encoded, turn{rows, t.Origin, t.At})
	}
	return encoded, nil
}

// Commit implements store.Histories.
func (s *Store) Commit(ctx context.Context, c store.Commit) (store.Committed, error) {
	const op = "sqlite.Commit"
	// Encoded and copied here and not in the writer: callers do this in
	// parallel, and the write may outlast a caller whose context ends.
	seeds, err := encode(c.Seeds, c.At)
	if err != nil {
		return store.Committed{}, classify(op, err)
	}
	turns, err := encode(c.Turns, c.At)
	if err != nil {
		return store.Committed{}, classify(op, err)
	}
	if c.System != nil {
		system := *c.System
		c.System = &system
	}
	if c.Answer != nil {
		answer := *c.Answer
		answer.Sealed = bytes.Clone(answer.Sealed)
		c.Answer = &answer
	}
	var rows, size int64
	for _, t := range slices.Concat(seeds, turns) {
		rows += int64(len(t.rows))
		for _, m := range t.rows {
			size += m.size
		}
	}
	return writeWeighing(ctx, s, op, weightOf(rows, size), func(ctx context.Context, q *session) (store.Committed, error) {
		if err := q.weigh(rows, size); err != nil {
			return store.Committed{}, err
		}
		now, replaced, err := begin(ctx, q, op, c)
		if err != nil {
			return store.Committed{}, err
		}
		last, appended := now.lastTurn, turns
		if now.turnMessages() == 0 {
			appended = slices.Concat(seeds, turns)
		}
		if c.System != nil {
			if err := now.setSystem(ctx, q, *c.System, c.At); err != nil {
				return store.Committed{}, err
			}
		}
		if err := now.append(ctx, q, appended); err != nil {
			return store.Committed{}, err
		}
		trimmed, err := now.trim(ctx, q, min(c.DropTo, last), c.Most)
		if err != nil {
			return store.Committed{}, err
		}
		_, err = q.exec(ctx, `UPDATE histories SET next_seq = ?1, last_turn = ?2, messages = ?3, bytes = ?4,
			token_rate = iif(?5 = 0, token_rate, ?5), last_used_at = max(last_used_at, ?6) WHERE generation = ?7`,
			now.nextSeq, now.lastTurn, now.messages, now.bytes, c.TokenRate, c.At.UnixMicro(), now.generation)
		if err != nil {
			return store.Committed{}, err
		}
		done := store.Committed{Generation: now.generation, LastTurn: now.lastTurn, Trimmed: trimmed, Replaced: replaced}
		if c.Answer != nil {
			err = answer(ctx, q, *c.Answer, trimmed)
		}
		return done, err
	})
}

// begin returns the history that a commit changes, a new one if it was built
// upon none, and what that one has replaced.
func begin(ctx context.Context, q *session, op string, c store.Commit) (now state, replaced *carrel.Eviction, err error) {
	found, err := current(ctx, q, c.Touch.Key)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return now, nil, err
	}
	if !found.expired(c.Touch.Cutoff) {
		now = found
	}
	if now.generation != c.Generation {
		return now, nil, carrel.Fail(op, abi.ScopeClosed, "the history that this turn was built upon has ended")
	}
	if now.generation == 0 {
		touched, err := touch(ctx, q, op, c.Touch, found)
		return state{generation: touched.Generation, nextSeq: 1}, touched.Replaced, err
	}
	return now, nil, nil
}

// setSystem leaves the counts to be written.
func (now *state) setSystem(ctx context.Context, q *session, text string, at time.Time) error {
	var kept any // an empty one is none
	if text != "" {
		kept = []byte(text)
		now.messages++
	}
	if now.system > 0 {
		now.messages--
		if err := markDeleted(ctx, q); err != nil {
			return err
		}
	}
	now.bytes += int64(len(text)) - now.system
	now.system = int64(len(text))
	_, err := q.exec(ctx, "UPDATE histories SET system = ?, system_at = ? WHERE generation = ?", kept, at.UnixMicro(), now.generation)
	return err
}

// append leaves the counts to be written.
func (now *state) append(ctx context.Context, q *session, turns []turn) error {
	var args []any // of the rows that are not inserted yet
	for _, t := range turns {
		now.lastTurn++
		for _, m := range t.rows {
			args = append(args,
				now.generation, now.nextSeq, now.lastTurn, m.role, m.content, m.toolCalls, m.call, t.at.UnixMicro(), t.origin)
			now.nextSeq++
			now.messages++
			now.bytes += m.size
			if len(args) < rowsAtOnce*messageColumns {
				continue
			}
			if _, err := q.exec(ctx, insertMessages, args...); err != nil {
				return err
			}
			args = args[:0]
		}
	}
	for row := range slices.Chunk(args, messageColumns) {
		if _, err := q.exec(ctx, insertMessage, row...); err != nil {
			return err
		}
	}
	return nil
}

// Messages are inserted rowsAtOnce at a time while there are as many: a long
// history costs half of what it does one by one.
const (
	rowsAtOnce     = 16
	messageColumns = 9
	// An empty slice may arrive as NULL, and neither column has NULLs.
	messageValues = "(?, ?, ?, ?, CAST(? AS BLOB), ?, CAST(? AS BLOB), ?, ?)"
	insertMessage = `INSERT INTO messages (generation, seq, turn, role, content, tool_calls, tool_call_id, at, origin)
		VALUES ` + messageValues
	fourMore       = ", " + messageValues + ", " + messageValues + ", " + messageValues + ", " + messageValues
	insertMessages = insertMessage + ", " + messageValues + ", " + messageValues + ", " + messageValues + fourMore + fourMore + fourMore
)

// trim deletes the turns up to dropTo, and then whole turns, the oldest first,
// until at most so many messages are left or only the newest turn is; most 0
// is no bound. It returns how many messages that took beyond dropTo, reads no
// more than one message beyond what it deletes, and leaves the counts to be
// written.
func (now *state) trim(ctx context.Context, q *session, dropTo, most int64) (trimmed int64, err error) {
	if most <= 0 {
		most = math.MaxInt64
	}
	if dropTo <= 0 && now.messages <= most {
		return 0, nil
	}
	var newest int64
	err = q.one(ctx, "SELECT turn FROM messages WHERE generation = ? ORDER BY seq DESC LIMIT 1", []any{now.generation}, &newest)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	var doomed span
	trimming := int64(0) // the turn that is deleted for the sake of most
	err = each(ctx, q, func(row scanner) (bool, error) {
		m, err := scanWeight(row)
		if err != nil {
			return false, err
		}
		if m.turn > dropTo && m.turn != trimming {
			if m.turn == newest || now.messages-doomed.messages <= most {
				return false, nil
			}
			trimming = m.turn
		}
		if m.turn > dropTo {
			trimmed++
		}
		doomed.add(m)
		return true, nil
	}, weights, now.generation, 0)
	if err != nil || doomed.messages == 0 {
		return 0, err
	}
	return trimmed, now.drop(ctx, q, doomed)
}

// drop leaves the counts to be written.
func (now *state) drop(ctx context.Context, q *session, doomed span) error {
	if err := q.weigh(doomed.messages, doomed.bytes); err != nil {
		return err
	}
	_, err := q.exec(ctx, "DELETE FROM messages WHERE generation = ? AND seq BETWEEN ? AND ?", now.generation, doomed.first, doomed.last)
	if err != nil {
		return err
	}
	now.messages -= doomed.messages
	now.bytes -= doomed.bytes
	return markDeleted(ctx, q)
}

// answer gives a claim its answer, unless it has one, was interrupted or is
// gone.
func answer(ctx context.Context, q *session, a store.Answer, trimmed int64) error {
	_, err := q.exec(ctx, `UPDATE claims SET sealed = coalesce(?, x''), trimmed = ?, at = ?
		WHERE id = ? AND sealed IS NULL AND interrupted = 0`, a.Sealed, trimmed, a.At.UnixMicro(), a.Claim[:])
	return err
}
