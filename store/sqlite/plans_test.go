package sqlite_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
)

// planOf returns the steps by which SQLite would run a query.
func planOf(t *testing.T, db *sql.DB, query string) (steps []string) {
	t.Helper()
	values := strings.Count(query, "?")
	for n := 9; n > 0; n-- {
		if strings.Contains(query, fmt.Sprintf("?%d", n)) {
			values = n
			break
		}
	}
	args := make([]any, values)
	for i := range args {
		args[i] = 1
	}
	rows, err := db.Query("EXPLAIN QUERY PLAN "+query, args...)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var id, parent, unused int
		var step string
		if err := rows.Scan(&id, &parent, &unused, &step); err != nil {
			t.Fatal(err)
		}
		t.Log(step)
		steps = append(steps, step)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return steps
}

// dumpOf returns every value of a table, one after another.
func dumpOf(ctx context.Context, db *sql.DB, table string) (dump []byte, err error) {
	rows, err := db.QueryContext(ctx, "SELECT * FROM "+table)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	columns, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	values, into := make([]sql.RawBytes, len(columns)), make([]any, len(columns))
	for i := range values {
		into[i] = &values[i]
	}
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return nil, err
		}
		for _, v := range values {
			dump = append(append(dump, v...), 0)
		}
	}
	return dump, rows.Err()
}
