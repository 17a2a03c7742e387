package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"

	_ "modernc.org/sqlite" // the driver of the peers

	"github.com/carrelhost/carrel"
)

// peer is another way to keep chat histories in SQLite.
type peer interface {
	// append reads what a turn needs and stores the turn.
	append(ctx context.Context, id string) error
	close() error
}

// connect opens a database with the settings that Carrel's has.
func (b *bench) connect(name string) (*sql.DB, error) {
	path, err := b.path(name)
	if err != nil {
		return nil, err
	}
	dsn := url.URL{Scheme: "file", Path: path, RawQuery: url.Values{
		"_txlock": {"immediate"},
		"_pragma": {"busy_timeout(30000)", "journal_mode(WAL)", "synchronous(FULL)", "secure_delete(ON)"},
	}.Encode()}
	return sql.Open("sqlite", dsn.String())
}

// pool stores messages as rows, in a transaction for each turn.
type pool struct{ db *sql.DB }

func newPool(ctx context.Context, b *bench) (peer, error) {
	db, err := b.connect("pool")
	if err != nil {
		return nil, err
	}
	_, err = db.ExecContext(ctx, `CREATE TABLE messages (id TEXT, seq INTEGER, role TEXT, content TEXT, PRIMARY KEY (id, seq)) WITHOUT ROWID`)
	return pool{db}, err
}

func (p pool) append(ctx context.Context, id string) error {
	tx, err := p.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	last, err := p.read(ctx, tx, id)
	for i, m := range turn() {
		if err == nil {
			_, err = tx.ExecContext(ctx, "INSERT INTO messages VALUES (?, ?, ?, ?)", id, last+1+i, m.Role, m.Content)
		}
	}
	if err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// read reads a window and returns the number of its last message.
func (p pool) read(ctx context.Context, tx *sql.Tx, id string) (last int, err error) {
	rows, err := tx.QueryContext(ctx, "SELECT seq, role, content FROM messages WHERE id = ? ORDER BY seq DESC LIMIT ?", id, window)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var seq int
		var role, content string
		if err := rows.Scan(&seq, &role, &content); err != nil {
			return 0, err
		}
		last = max(last, seq)
	}
	return last, rows.Err()
}

func (p pool) close() error { return p.db.Close() }

// listed stores a history as one value.
type listed struct{ db *sql.DB }

func newList(ctx context.Context, b *bench) (peer, error) {
	db, err := b.connect("list")
	if err != nil {
		return nil, err
	}
	_, err = db.ExecContext(ctx, "CREATE TABLE memories (id TEXT PRIMARY KEY, messages BLOB) WITHOUT ROWID")
	return listed{db}, err
}

func (l listed) append(ctx context.Context, id string) error {
	tx, err := l.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	var kept []byte
	var messages []carrel.Message
	switch err = tx.QueryRowContext(ctx, "SELECT messages FROM memories WHERE id = ?", id).Scan(&kept); {
	case err == nil:
		err = json.Unmarshal(kept, &messages)
	case errors.Is(err, sql.ErrNoRows):
		err = nil
	}
	if err == nil {
		kept, err = json.Marshal(append(messages, turn()...))
	}
	if err == nil {
		_, err = tx.ExecContext(ctx, "INSERT INTO memories VALUES (?1, ?2) ON CONFLICT DO UPDATE SET messages = ?2", id, kept)
	}
	if err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// fill makes a history of so many messages.
func (l listed) fill(ctx context.Context, id string, messages int) error {
	var all []carrel.Message
	for len(all) < messages {
		all = append(all, turn()...)
	}
	kept, err := json.Marshal(all)
	if err != nil {
		return err
	}
	if _, err := l.db.ExecContext(ctx, "INSERT INTO memories VALUES (?, ?)", id, kept); err != nil {
		return fmt.Errorf("fill: %w", err)
	}
	return nil
}

func (l listed) close() error { return l.db.Close() }
