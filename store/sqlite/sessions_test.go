package sqlite_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/store"
	"github.com/carrelhost/carrel/store/sqlite"
)

func TestAfterARestartSocketsAreOrphansAndHTTPSessionsGoOn(t *testing.T) {
	ctx := context.Background()
	path := newPath(t)
	s := open(t, sqlite.Config{Path: path})
	if err := createTenant(ctx, s, acme); err != nil {
		t.Fatal(err)
	}
	for _, id := range []carrel.SessionID{"ses_http", "ses_closed"} {
		if err := s.CreateSession(ctx, fixtureSession(id), 2); err != nil {
			t.Fatal(err)
		}
	}
	socket := store.ScopeInstance{ID: "ses_ws", Tenant: acme, Node: "run-1", OpenedAt: noon}
	if err := s.OpenSession(ctx, socket); err != nil {
		t.Fatal(err)
	}
	for n, id := range []carrel.SessionID{"ses_http", "ses_ws", "ses_closed"} {
		commit(t, s, fixtureSessionTurn(n, id))
	}
	must(s.CloseScope(ctx, "ses_closed", carrel.ReasonScopeClosed, noon))(t)
	if err := s.SetGrant(ctx, acme, "chat", fixtureGrant()); err != nil {
		t.Fatal(err)
	}
	everything := func(s *sqlite.Store) []any {
		return []any{
			must(s.Session(ctx, acme, "ses_http", nil))(t),
			must(s.Session(ctx, acme, "ses_closed", nil))(t),
			must(s.ListSessions(ctx, acme, nil, "", 10))(t),
			must(s.ListScopes(ctx, carrel.ScopeSession, "", 10))(t),
			must(s.Grant(ctx, acme, "chat"))(t),
		}
	}
	before := everything(s)
	closeStore(t, s)

	s = open(t, sqlite.Config{Path: path})
	if d := cmp.Diff(before, everything(s)); d != "" {
		t.Errorf("after reopening (-before +after):\n%s", d)
	}
	socket.Scope = carrel.ScopeSession
	if d := cmp.Diff([]store.ScopeInstance{socket}, must(s.Orphans(ctx, "run-2", 10))(t)); d != "" {
		t.Errorf("orphans differ (-want +got):\n%s", d)
	}
	if evicted := must(s.CloseScope(ctx, "ses_ws", carrel.ReasonScopeClosed, noon))(t); len(evicted) != 1 {
		t.Errorf("closing the orphan evicted %v", evicted)
	}
	if err := s.UseSession(ctx, acme, "ses_http", noon); err != nil {
		t.Error(err)
	}
	key, _ := keyOf(0)
	generation := must(s.View(ctx, key, store.ViewLimit{Messages: 0}))(t).Generation
	next := fixtureSessionTurn(0, "ses_http")
	next.Generation = generation
	commit(t, s, next)
	if evicted := must(s.CloseScope(ctx, "ses_http", carrel.ReasonScopeClosed, noon))(t); len(evicted) != 1 || evicted[0].Key != key {
		t.Errorf("closing the session evicted %v", evicted)
	}
	wantCode(t, tryCommit(ctx, s, next), abi.ScopeClosed)
}

func TestNoQueryOfSessionsOrOrphansWalksATable(t *testing.T) {
	path := newPath(t)
	open(t, sqlite.Config{Path: path})
	db := must(sqlite.Raw(path))(t)
	defer func() { _ = db.Close() }()
	// Sorting is allowed where only what is returned is sorted.
	for query, want := range map[string]struct {
		values  []any // as the store binds them
		indexes []string
		sorts   bool
	}{
		"the open sessions of a tenant, counted": {values: []any{acme}, indexes: []string{"sessions_tenant"}},
		"the open sessions of a tenant":          {values: []any{acme, "", 10}, indexes: []string{"sessions_tenant"}},
		"the open sessions of an owner":          {values: []any{acme, "key", "ada", "", 10}, indexes: []string{"sessions_owner"}},
		"expired sessions":                       {values: []any{0, 10}, indexes: []string{"sessions_expiry"}},
		"sessions to forget":                     {values: []any{0}, indexes: []string{"PRIMARY", "sessions_kept"}},
		"orphans": {
			values:  []any{"run-1", 10},
			indexes: []string{"scopes_kind", "scopes_kind", "scopes_socket", "scopes_socket", "sqlite_autoindex_plugins_1"},
			sorts:   true,
		},
	} {
		t.Run(query, func(t *testing.T) {
			sql, ok := sqlite.Queries[query]
			if !ok {
				t.Fatal("there is no such query")
			}
			rows, err := db.Query("EXPLAIN QUERY PLAN "+sql, want.values...)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = rows.Close() }()
			var indexes []string
			for rows.Next() {
				var id, parent, unused int
				var step string
				if err := rows.Scan(&id, &parent, &unused, &step); err != nil {
					t.Fatal(err)
				}
				t.Log(step)
				words := strings.Fields(step)
				switch {
				case words[0] == "SEARCH" && slices.Contains(words, "INDEX"):
					indexes = append(indexes, words[slices.Index(words, "INDEX")+1])
				case words[0] == "SEARCH" && slices.Contains(words, "PRIMARY"):
					indexes = append(indexes, "PRIMARY")
				case words[0] == "SEARCH", words[0] == "SCAN":
					t.Errorf("a table is walked: %s", step)
				case strings.Contains(step, "TEMP B-TREE") && !want.sorts:
					t.Errorf("what is found is sorted: %s", step)
				}
			}
			if err := rows.Err(); err != nil {
				t.Fatal(err)
			}
			slices.Sort(indexes)
			if d := cmp.Diff(want.indexes, indexes); d != "" {
				t.Errorf("indexes differ (-want +got):\n%s", d)
			}
		})
	}
	if len(sqlite.Queries) != 6 {
		t.Errorf("there are %d queries: give the new one its indexes here", len(sqlite.Queries))
	}
}
