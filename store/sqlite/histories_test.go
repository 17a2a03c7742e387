package sqlite_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/store"
	"github.com/carrelhost/carrel/store/sqlite"
)

func TestEveryQueryOfHistoriesFindsThemInOrderByTheIndexMadeForIt(t *testing.T) {
	path := newPath(t)
	open(t, sqlite.Config{Path: path})
	db := must(sqlite.Raw(path))(t)
	defer func() { _ = db.Close() }()
	wants := map[string]struct {
		values int
		steps  []string
	}{
		"a history's view":             {6, []string{"SEARCH h USING INDEX sqlite_autoindex_histories_1 (tenant=? AND namespace=? AND kind=? AND owner=? AND memory=?)"}},
		"the newest messages":          {4, []string{"SEARCH messages USING PRIMARY KEY (generation=? AND seq<?)"}},
		"the oldest messages' weights": {2, []string{"SEARCH messages USING PRIMARY KEY (generation=? AND seq>?)"}},
		"the histories of a tenant":    {6, []string{"SEARCH h USING INDEX histories_tenant (tenant=? AND rowid>?)"}},
		"the histories of a namespace": {7, []string{"SEARCH h USING INDEX histories_namespace (tenant=? AND namespace=? AND rowid>?)"}},
		"the histories that one touched": {9, []string{
			"SEARCH t USING COVERING INDEX touchers_who (key_id=? AND subject=? AND generation>?)",
			"SEARCH h USING INTEGER PRIMARY KEY (rowid=?)",
		}},
		"expired histories":          {2, []string{"SEARCH h USING INDEX histories_idle (last_used_at<?)"}},
		"all histories, counted":     {0, []string{"SCAN h USING COVERING INDEX sqlite_autoindex_histories_2"}},
		"leaking histories, counted": {0, []string{"SEARCH h USING COVERING INDEX histories_leaking (kind=?)"}},
		"open scopes, counted":       {0, []string{"SCAN scopes USING COVERING INDEX scopes_kind"}},
	}
	// Whether a history has ended is asked of closings, of which there are
	// hardly ever any, for each that is found.
	live := []string{
		"CORRELATED SCALAR SUBQUERY 3", "SCAN c",
		"SEARCH t USING COVERING INDEX touches_handle (handle=? AND scope=?)",
	}
	for name, query := range sqlite.HistoryQueries {
		t.Run(name, func(t *testing.T) {
			want, ok := wants[name]
			if !ok {
				t.Fatal("give it its steps here")
			}
			if strings.Contains(query, "FROM live") || strings.Contains(query, "JOIN live") {
				want.steps = append(want.steps, live...)
			}
			rows, err := db.Query("EXPLAIN QUERY PLAN "+query, slices.Repeat([]any{1}, want.values)...)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = rows.Close() }()
			var steps []string
			for rows.Next() {
				var id, parent, unused int
				var step string
				if err := rows.Scan(&id, &parent, &unused, &step); err != nil {
					t.Fatal(err)
				}
				steps = append(steps, step)
			}
			if err := rows.Err(); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(want.steps, steps); d != "" {
				t.Errorf("the plan differs (-want +got):\n%s", d)
			}
		})
	}
}

// recount counts a history's messages and bytes from its rows. What tool calls
// consist of is in them as base64.
const recount = `SELECT count(m.seq) + (h.system IS NOT NULL), coalesce(length(h.system), 0)
	+ coalesce(sum(length(m.content) + length(m.tool_call_id) + coalesce((
		SELECT sum(length(p.value) / 4 * 3 - (p.value LIKE '%=') - (p.value LIKE '%=='))
		FROM json_each(CAST(m.tool_calls AS TEXT)) c JOIN json_each(c.value) p WHERE p.value IS NOT NULL), 0)), 0)
	FROM histories h LEFT JOIN messages m ON m.generation = h.generation WHERE h.generation = ?`

func TestCountsAreThoseOfTheRowsWhateverIsDeleted(t *testing.T) {
	ctx := context.Background()
	path := newPath(t)
	s := open(t, sqlite.Config{Path: path})
	db := must(sqlite.Raw(path))(t)
	defer func() { _ = db.Close() }()
	histories := 0
	rapid.Check(t, func(t *rapid.T) {
		check := func(err error) {
			if err != nil {
				t.Fatal(err)
			}
		}
		histories++
		k, handle := keyOf(histories)
		generation, last := int64(0), int64(0)
		text := rapid.StringN(0, 20, -1)
		for range rapid.IntRange(1, 12).Draw(t, "changes") {
			if last > 0 && rapid.IntRange(0, 3).Draw(t, "kind of change") == 0 {
				err := s.DeleteTurn(ctx, k, generation, rapid.Int64Range(1, last).Draw(t, "turn"))
				if carrel.CodeOf(err) != abi.NotFound {
					check(err)
				}
			} else {
				c := commitOf(histories, generation)
				for range rapid.IntRange(0, 3).Draw(t, "turns") {
					messages := []carrel.Message{{Role: carrel.RoleUser, Content: text.Draw(t, "user")}}
					for range rapid.IntRange(0, 2).Draw(t, "tools") {
						args := rapid.SliceOfN(rapid.Byte(), 0, 9).Draw(t, "arguments")
						messages = append(messages,
							carrel.Message{Role: carrel.RoleAssistant, ToolCalls: []carrel.ToolCall{
								{ID: text.Draw(t, "id"), Name: text.Draw(t, "name"), Args: args}, {ID: "other", Name: "no_arguments"},
							}},
							carrel.Message{Role: carrel.RoleTool, Content: text.Draw(t, "result"), ToolCallID: text.Draw(t, "call")})
					}
					c.Turns = append(c.Turns, store.NewTurn{Messages: messages})
				}
				system := text.Draw(t, "system")
				if rapid.Bool().Draw(t, "has system") {
					c.System = &system
				}
				c.DropTo = rapid.Int64Range(0, last).Draw(t, "drop to")
				c.Most = rapid.Int64Range(0, 12).Draw(t, "most")
				done, err := s.Commit(ctx, c)
				check(err)
				generation, last = done.Generation, done.LastTurn
			}
			var messages, bytes int64
			check(db.QueryRow(recount, generation).Scan(&messages, &bytes))
			h, err := s.History(ctx, acme, handle, nil, store.Cutoff{})
			check(err)
			if h.Messages != messages || h.Bytes != bytes {
				t.Fatalf("%d messages and %d bytes are counted, the rows have %d and %d", h.Messages, h.Bytes, messages, bytes)
			}
		}
	})
}
