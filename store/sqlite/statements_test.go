package sqlite_test

import (
	"fmt"
	"testing"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/store/sqlite"
)

// What every request pays, and what a close pays for each of its histories.
// Four of each are the transaction's.
func TestRequestsCostFewStatements(t *testing.T) {
	s := open(t, sqlite.Config{Path: newPath(t), EvictionRecords: 10})
	chat := func(r carrel.ScopeID, n int) func() error {
		return func() error {
			c := commitOf(n, 0, "hello", "hi")
			c.Touch.Scope.ID = r
			return tryCommit(t.Context(), s, c)
		}
	}
	closing := func(r carrel.ScopeID, histories int) func() error {
		return func() error {
			evicted, err := s.CloseScope(t.Context(), r, carrel.ReasonScopeClosed, noon)
			if err == nil && len(evicted) != histories {
				err = fmt.Errorf("%d histories ended", len(evicted))
			}
			return err
		}
	}
	costs := func(what string, most int64, do func() error) {
		t.Helper()
		if n := must(s.Statements(do))(t); n > most {
			t.Errorf("%s takes %d statements, want at most %d", what, n, most)
		}
	}
	const histories = 40
	for n := range histories {
		if err := chat("many", n)(); err != nil {
			t.Fatal(err)
		}
	}
	costs("the close of many histories", 10+2*histories, closing("many", histories))
	// By now the oldest records have to make room.
	costs("the first turn of a request", 14, chat("one", 0))
	costs("the close of one history", 12, closing("one", 1))
}
