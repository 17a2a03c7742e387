package sqlite_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/store"
	"github.com/carrelhost/carrel/store/sqlite"
)

// heavy messages are too many for a transaction that others share.
const heavy = 600

// Generations are numbers in the order in which histories begin, which is the
// order in which the writer took the commits that began them.
func TestLightWritesWaitForNoMoreThanOneHeavyOne(t *testing.T) {
	s := open(t, sqlite.Config{Path: newPath(t), BatchMax: 2})
	release := hold(t, s)
	var outcomes []<-chan error
	for _, name := range []int{101, 102, 103, 1, 2, 3, 4, 5} {
		messages := 2
		if name > 100 {
			messages = heavy
		}
		outcomes = append(outcomes, queue(s, len(outcomes), func() error {
			return tryCommit(context.Background(), s, imported(name, messages, "text"))
		}))
	}
	release()
	for _, outcome := range outcomes {
		if err := <-outcome; err != nil {
			t.Error(err)
		}
	}
	// What holds the writer is a light one, after which a heavy one comes.
	wantOrder(t, s, 101, 1, 2, 102, 3, 4, 103, 5)
}

// wantOrder wants histories to have begun in an order.
func wantOrder(t *testing.T, s *sqlite.Store, want ...int) {
	t.Helper()
	began := map[int]int64{}
	for _, n := range want {
		k, _ := keyOf(n)
		began[n] = must(s.View(context.Background(), k, store.ViewLimit{Messages: 0}))(t).Generation
	}
	got := slices.SortedFunc(slices.Values(want), func(a, b int) int { return int(began[a] - began[b]) })
	if !slices.Equal(got, want) {
		t.Errorf("they began in the order %v, want %v", got, want)
	}
}

func TestADeletionIsHeavyIfWhatItDeletesIs(t *testing.T) {
	ctx := context.Background()
	deletions := map[string]func(*sqlite.Store, int64) error{
		"of a history": func(s *sqlite.Store, _ int64) error {
			k, _ := keyOf(101)
			_, err := s.DeleteHistory(ctx, k, store.Deletion{Reason: carrel.ReasonDeleted, At: noon})
			return err
		},
		"of what a window drops": func(s *sqlite.Store, generation int64) error {
			c := commitOf(101, generation, "question", "answer")
			c.DropTo = heavy
			return tryCommit(ctx, s, c)
		},
		"of what is over the limit": func(s *sqlite.Store, generation int64) error {
			c := commitOf(101, generation, "question", "answer")
			c.Most = 2
			return tryCommit(ctx, s, c)
		},
		"with its scope": func(s *sqlite.Store, _ int64) error {
			_, err := s.CloseScope(ctx, commitOf(101, 0).Touch.Scope.ID, carrel.ReasonScopeClosed, noon)
			return err
		},
	}
	for name, do := range deletions {
		t.Run(name, func(t *testing.T) {
			s := open(t, sqlite.Config{Path: newPath(t)})
			generation := must(s.Commit(ctx, imported(101, heavy, "text")))(t).Generation
			release := hold(t, s)
			began, free := make(chan struct{}), make(chan struct{})
			outcomes := []<-chan error{
				queue(s, 0, func() error { return s.DoHeavy(func() {}) }), // follows what holds the writer
				queue(s, 1, func() error { return do(s, generation) }),
				queue(s, 2, func() error { return createTenant(ctx, s, "light") }),
				queue(s, 3, func() error {
					return s.DoHeavy(func() {
						close(began)
						<-free
					})
				}),
			}
			release()
			// The light one does not share its transaction with the deletion,
			// which goes to the end of the heavy ones.
			<-began
			k, _ := keyOf(101)
			if v := must(s.View(ctx, k, store.ViewLimit{Messages: 10}))(t); v.Stored != heavy {
				t.Errorf("%d messages are left while a light write was waiting", v.Stored)
			}
			if err := <-outcomes[2]; err != nil {
				t.Errorf("the light one: %v", err)
			}
			close(free)
			for _, n := range []int{0, 1, 3} {
				if err := <-outcomes[n]; err != nil {
					t.Errorf("write %d: %v", n, err)
				}
			}
			if v := must(s.View(ctx, k, store.ViewLimit{Messages: 10}))(t); v.Stored > 2 {
				t.Errorf("%d messages are left", v.Stored)
			}
		})
	}
}

func TestATransactionEndsWhenItIsHeavy(t *testing.T) {
	s := open(t, sqlite.Config{Path: newPath(t)})
	release := hold(t, s)
	var outcomes []<-chan error
	for n := range 6 { // none of them is heavy, but together they are
		outcomes = append(outcomes, queue(s, n, func() error {
			return tryCommit(context.Background(), s, imported(n, 120, "text"))
		}))
	}
	waits := make(chan struct{})
	last := queue(s, 6, func() error { return s.Do(func() { <-waits }) })
	release()
	for _, outcome := range outcomes[:5] { // although the last one of the batch has not ended
		if err := <-outcome; err != nil {
			t.Error(err)
		}
	}
	close(waits)
	for _, outcome := range []<-chan error{outcomes[5], last} {
		if err := <-outcome; err != nil {
			t.Error(err)
		}
	}
}

// What is queued after its caller has given a commit up finds it done or never
// done, although it overtakes it.
func TestAHeavyCommitThatWasGivenUpIsNotDoneAfterWhatOvertookIt(t *testing.T) {
	s := open(t, sqlite.Config{Path: newPath(t)})
	release := hold(t, s)
	ctx, cancel := context.WithCancel(context.Background())
	outcome := queue(s, 0, func() error { return tryCommit(ctx, s, imported(1, heavy, "text")) })
	cancel()
	wantCode(t, <-outcome, abi.Canceled)
	release()
	k, _ := keyOf(1)
	commit(t, s, commitOf(2, 0, "light"))              // overtakes it
	commit(t, s, imported(3, heavy, "of another key")) // is behind it
	if v := must(s.View(context.Background(), k, store.ViewLimit{Messages: 1}))(t); v.Generation != 0 {
		t.Errorf("it was done: %+v", v)
	}
}

func TestManyMessagesAreStoredLikeFew(t *testing.T) {
	ctx := context.Background()
	for _, messages := range []int{1, 15, 16, 17, 31, 32, 33, 160} {
		t.Run(fmt.Sprintf("%d messages", messages), func(t *testing.T) {
			path := newPath(t)
			s := open(t, sqlite.Config{Path: path})
			c := commitOf(1, 0)
			var want []string
			for n := range messages { // turns of one, two and three messages
				if turn := n % 6; turn == 0 || turn == 1 || turn == 3 {
					c.Turns = append(c.Turns, store.NewTurn{
						At: noon.Add(time.Duration(n) * time.Second), Origin: []carrel.Origin{carrel.OriginImport, carrel.OriginModel}[n%2],
					})
				}
				last := &c.Turns[len(c.Turns)-1]
				m := carrel.Message{Role: carrel.RoleUser, Content: fmt.Sprint("message ", n), ToolCallID: fmt.Sprint(n)}
				last.Messages = append(last.Messages, m)
				want = append(want, fmt.Sprintln(n+1, len(c.Turns), m.Role, m.Content, m.ToolCallID, last.At.UnixMicro(), last.Origin))
			}
			must(s.Commit(ctx, c))(t)
			db := must(sqlite.Raw(path))(t)
			defer db.Close() //nolint:errcheck // only read
			rows := must(db.QueryContext(ctx, "SELECT seq, turn, role, content, tool_call_id, at, origin FROM messages ORDER BY seq"))(t)
			defer rows.Close() //nolint:errcheck // its Err is asked
			var got []string
			for rows.Next() {
				var seq, turn, at int64
				var role, content, call, origin string
				if err := rows.Scan(&seq, &turn, &role, &content, &call, &at, &origin); err != nil {
					t.Fatal(err)
				}
				got = append(got, fmt.Sprintln(seq, turn, role, content, call, at, origin))
			}
			if err := rows.Err(); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Error(d)
			}
		})
	}
}
