package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/store"
	"github.com/carrelhost/carrel/store/sqlite"
)

func requestScope(id carrel.ScopeID) store.ScopeInstance {
	return store.ScopeInstance{ID: id, Tenant: acme, Scope: carrel.ScopeRequest, Node: "run-1", OpenedAt: noon}
}

// named is a first turn under a memory id.
func named(id carrel.MemoryID, si store.ScopeInstance, by store.Toucher, contents ...string) store.Commit {
	c := inScope(commitOf(0, 0, contents...), si)
	c.Touch.Key.ID = id
	d := carrel.DigestOf([]byte(id))
	c.Touch.Handle, c.Touch.By = carrel.Handle(d[:16]), by
	return c
}

func generationOf(t testing.TB, s *sqlite.Store, k carrel.MemoryKey) int64 {
	t.Helper()
	return must(s.View(t.Context(), k, store.ViewLimit{}))(t).Generation
}

// say appends a turn to what a key has.
func say(t testing.TB, s *sqlite.Store, k carrel.MemoryKey, change func(*store.Commit), contents ...string) {
	t.Helper()
	c := named(k.ID, requestScope("say"), store.Toucher{Key: "k"}, contents...)
	c.Generation = generationOf(t, s, k)
	if change != nil {
		change(&c)
	}
	commit(t, s, c)
}

// everything is all that can be read of a tenant's histories.
func everything(t testing.TB, s *sqlite.Store) map[carrel.MemoryID][]store.StoredMessage {
	t.Helper()
	all := make(map[carrel.MemoryID][]store.StoredMessage)
	for _, h := range must(s.ListHistories(t.Context(), store.HistoryFilter{Tenant: acme, Limit: 1_000_000}))(t) {
		all[h.Key.ID] = must(s.Messages(t.Context(), h.Key, h.Generation, -1, store.MessageLimit{Messages: 1_000_000}))(t).Messages
	}
	return all
}

// deletions leaves content of every kind, and deletes it in every way. Rows of
// what lives and of what goes lie between one another.
func deletions(t *testing.T, s *sqlite.Store, dir string) canaries {
	t.Helper()
	ctx := t.Context()
	c := canaries{}
	keep, gone := requestScope("keep"), requestScope("gone")
	ada := store.Toucher{Key: "k", Subject: carrel.Subject(c.new("subject"))}
	user, answer := c.new("user message"), c.new("answer")
	system, args := c.new("system message"), c.new("tool call arguments")
	for n := range 300 {
		filler := strings.Repeat(fmt.Sprintf("what lives, %d. ", n), n%60)
		commit(t, s, named(carrel.MemoryID(fmt.Sprintf("kept-%d", n)), keep, store.Toucher{Key: "k"}, filler, "yes"))
		turn := named(carrel.MemoryID(fmt.Sprintf("gone-%d", n)), gone, store.Toucher{Key: "k"}, filler+user, "", answer+filler)
		said := system + filler
		turn.System = &said
		turn.Turns[0].Messages[1].ToolCalls = []carrel.ToolCall{{ID: "c", Name: "f", Args: []byte(`{"a":"` + args + filler + `"}`)}}
		commit(t, s, turn)
	}
	erased := named(carrel.MemoryID(c.new("memory id of an erased history")), keep, ada, c.new("message of an erased history"))
	erased.Touch.Key.Kind, erased.Touch.Key.Owner = carrel.KindPlugin, carrel.Owner("subject:"+ada.Subject)
	commit(t, s, erased)
	ses := fixtureSession("ses_ada")
	ses.Owner, ses.Metadata = ada, []byte(`{"m":"`+c.new("metadata of an erased session")+`"}`)
	if err := s.CreateSession(ctx, ses, 1); err != nil {
		t.Fatal(err)
	}
	claim := store.Claim{ID: [32]byte{1}, Tenant: acme, Subject: ada.Subject, Node: "run-1", At: noon}
	must(s.Claim(ctx, claim, someClaims))(t)
	if err := s.Answer(ctx, store.Answer{Claim: claim.ID, Sealed: []byte(c.new("answer of a claim")), At: noon}); err != nil {
		t.Fatal(err)
	}
	kept, _ := keyOf(0)
	kept.ID = "kept-7"
	said, turn, trimmed := c.new("replaced system message"), c.new("deleted turn"), c.new("trimmed turn")
	say(t, s, kept, func(c *store.Commit) { c.System = &said }, turn)
	trim := kept
	trim.ID = "kept-8"
	say(t, s, trim, nil, trimmed)
	long := named("long", keep, store.Toucher{Key: "k"}, bytesOf(c.new("message of a long history"), 5000)...)
	commit(t, s, long)

	for what, n := range c.found(t, dir) {
		if n == 0 {
			t.Fatalf("the %s is in no file while it is there", what)
		}
	}
	replacement := "another system message"
	say(t, s, kept, func(c *store.Commit) { c.System = &replacement }, "more")
	if err := s.DeleteTurn(ctx, kept, generationOf(t, s, kept), 2); err != nil {
		t.Fatal(err)
	}
	say(t, s, trim, func(c *store.Commit) { c.Most = 1 }, "only this is left")
	must(s.EraseSubject(ctx, acme, ada.Subject, noon, 1000))(t)
	must(s.DeleteHistory(ctx, long.Touch.Key, store.Deletion{Reason: carrel.ReasonDeleted, At: noon}))(t)
	if evicted := must(s.CloseScope(ctx, gone.ID, carrel.ReasonScopeClosed, noon))(t); len(evicted) != 300 {
		t.Fatalf("%d histories ended", len(evicted))
	}
	return c
}

func bytesOf(text string, n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = text
	}
	return all
}

func TestAScrubLeavesNoByteOfWhatWasDeleted(t *testing.T) {
	ctx := t.Context()
	path := newPath(t)
	s := open(t, sqlite.Config{Path: path})
	if err := createTenant(ctx, s, acme); err != nil {
		t.Fatal(err)
	}
	c := deletions(t, s, filepath.Dir(path))
	before := everything(t, s)
	if last := must(s.LastScrub(ctx))(t); !last.Due || !last.At.IsZero() {
		t.Errorf("before the scrub: %+v", last)
	}

	// Others read and write all the while.
	scrubbed := make(chan struct{})
	var busy sync.WaitGroup
	for r := range 3 {
		busy.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-scrubbed:
					return
				default:
				}
				k, _ := keyOf(0)
				k.ID = carrel.MemoryID(fmt.Sprintf("kept-%d", n%300))
				if v, err := s.View(ctx, k, store.ViewLimit{Messages: 10}); err != nil || v.Generation == 0 {
					t.Errorf("a reader has %+v, %v", v, err)
					return
				}
				if r > 0 {
					continue
				}
				id := carrel.MemoryID(fmt.Sprintf("new-%d", n))
				if err := tryCommit(ctx, s, named(id, requestScope("keep"), store.Toucher{Key: "k"}, "new", "yes")); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	done, err := s.Scrub(ctx, noon.Add(time.Hour))
	close(scrubbed)
	busy.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if !done.At.Equal(noon.Add(time.Hour)) || done.Took <= 0 || done.Due {
		t.Errorf("the scrub is %+v", done)
	}
	if last := must(s.LastScrub(ctx))(t); last != done {
		t.Errorf("the last scrub is %+v, want %+v", last, done)
	}
	for what, n := range c.found(t, filepath.Dir(path)) {
		if n > 0 {
			t.Errorf("the %s is in the files %d times", what, n)
		}
	}
	after := everything(t, s)
	if d := cmp.Diff(before, after, cmp.FilterPath(func(p cmp.Path) bool {
		i, ok := p.Last().(cmp.MapIndex)
		return ok && strings.HasPrefix(i.Key().String(), "new-")
	}, cmp.Ignore())); d != "" {
		t.Errorf("what lives has changed (-before +after):\n%s", d)
	}
	var sound string
	if err := s.Pragma(ctx, "integrity_check", &sound); err != nil || sound != "ok" {
		t.Errorf("the database is %q, %v", sound, err)
	}
	var memory int
	if err := s.Pragma(ctx, "temp_store", &memory); err != nil || memory != 2 {
		t.Errorf("temporaries are kept by %d, want 2, memory; %v", memory, err)
	}
}

// logSize is the size of the write-ahead log.
func logSize(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path + "-wal")
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

func TestAScrubWithNothingToDoEmptiesTheLogAndDoesNotRewriteTheDatabase(t *testing.T) {
	ctx := t.Context()
	path := newPath(t)
	s := open(t, sqlite.Config{Path: path})
	commit(t, s, commitOf(1, 0, bytesOf("hello", 100_000)...))
	version := func() (n int) { // which every VACUUM raises
		if err := s.Pragma(ctx, "schema_version", &n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := version()
	long := logSize(t, path)
	must(s.Scrub(ctx, noon))(t)
	if now := version(); now != before {
		t.Error("it was rewritten although nothing was deleted")
	}
	if now := logSize(t, path); now > long/10 {
		t.Errorf("the log has %d bytes, and had %d before", now, long)
	}
	must(s.CloseScope(ctx, "r", carrel.ReasonScopeClosed, noon))(t)
	must(s.Scrub(ctx, noon))(t)
	once := version()
	if once == before {
		t.Error("it was not rewritten although something was deleted")
	}
	must(s.Scrub(ctx, noon))(t)
	if now := version(); now != once {
		t.Error("it was rewritten twice for one deletion")
	}
}

func TestAScrubWaitsForWhatAReportHolds(t *testing.T) {
	ctx := t.Context()
	path := newPath(t)
	s := open(t, sqlite.Config{Path: path})
	c := canaries{}
	commit(t, s, named("1", requestScope("r"), store.Toucher{Key: "k"}, bytesOf(c.new("message"), 3000)...))
	release := s.HoldClosing("r")
	must(s.CloseScope(ctx, "r", carrel.ReasonScopeClosed, noon))(t)
	outcome := make(chan error, 1)
	go func() {
		_, err := s.Scrub(ctx, noon)
		outcome <- err
	}()
	s.AwaitScrub()
	select {
	case err := <-outcome:
		t.Fatalf("it ended before the deleting could begin: %v", err)
	default:
	}
	release()
	if err := <-outcome; err != nil {
		t.Fatal(err)
	}
	if n := c.found(t, filepath.Dir(path))["message"]; n > 0 {
		t.Errorf("the message is in the files %d times", n)
	}
}

func TestAScrubThatWaitsEndsWithTheStoreAndWithItsCaller(t *testing.T) {
	for name, end := range map[string]func(s *sqlite.Store, cancel func()) error{
		"its caller": func(_ *sqlite.Store, cancel func()) error { cancel(); return nil },
		"the store":  func(s *sqlite.Store, _ func()) error { return s.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			s := open(t, sqlite.Config{Path: newPath(t)})
			commit(t, s, named("1", requestScope("r"), store.Toucher{Key: "k"}, bytesOf("hello", 3000)...))
			s.HoldClosing("r")
			must(s.CloseScope(ctx, "r", carrel.ReasonScopeClosed, noon))(t)
			outcome := make(chan error, 1)
			go func() {
				_, err := s.Scrub(ctx, noon)
				outcome <- err
			}()
			s.AwaitScrub()
			if err := end(s, cancel); err != nil {
				t.Fatal(err)
			}
			if err := <-outcome; err == nil {
				t.Error("it succeeded")
			}
		})
	}
}

func TestAReaderOfAnOldStateMakesAScrubFailForNow(t *testing.T) {
	ctx := t.Context()
	path := newPath(t)
	s := open(t, sqlite.Config{Path: path})
	if err := s.SetBusyTimeout(50); err != nil {
		t.Fatal(err)
	}
	c := canaries{}
	commit(t, s, commitOf(1, 0, c.new("message"), "hi"))
	db := must(sqlite.Raw(path))(t)
	defer func() { _ = db.Close() }()
	backup := must(db.Conn(ctx))(t)
	defer func() { _ = backup.Close() }()
	for _, query := range []string{"BEGIN", "SELECT count(*) FROM messages"} {
		if _, err := backup.ExecContext(ctx, query); err != nil {
			t.Fatal(err)
		}
	}
	if done := must(s.Scrub(ctx, noon.Add(-time.Hour)))(t); done.Due { // nothing was deleted: the log may stay
		t.Errorf("a scrub with nothing to do is %+v", done)
	}
	must(s.CloseScope(ctx, "r", carrel.ReasonScopeClosed, noon))(t)
	_, err := s.Scrub(ctx, noon)
	wantCode(t, err, abi.Overloaded)
	if last := must(s.LastScrub(ctx))(t); !last.Due || !last.At.Before(noon) {
		t.Errorf("after a scrub that failed: %+v", last)
	}
	commit(t, s, commitOf(2, 0, "writes", "go on"))
	if _, err := backup.ExecContext(ctx, "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	if done := must(s.Scrub(ctx, noon))(t); done.Due {
		t.Errorf("the scrub is %+v", done)
	}
	if n := c.found(t, filepath.Dir(path))["message"]; n > 0 {
		t.Errorf("the message is in the files %d times", n)
	}
}

func TestScrubsOfOneAndOfTwoStoresAtOnce(t *testing.T) {
	ctx := t.Context()
	var stores []*sqlite.Store
	for range 2 {
		s := open(t, sqlite.Config{Path: newPath(t)})
		fill(t, s, requestScope("keep"), 50)
		commit(t, s, inScope(commitOf(99, 0, "hello", "hi"), requestScope("r")))
		must(s.CloseScope(ctx, "r", carrel.ReasonScopeClosed, noon))(t)
		stores = append(stores, s)
	}
	var all sync.WaitGroup
	for i := range 6 {
		all.Go(func() {
			if done, err := stores[i%2].Scrub(ctx, noon); err != nil || done.Due {
				t.Errorf("%+v, %v", done, err)
			}
		})
	}
	all.Wait()
	for _, s := range stores {
		wantRows(t, s, map[string]int{"histories": 50, "messages": 100})
	}
}

func TestClosingDuringAScrubLosesNothing(t *testing.T) {
	ctx := t.Context()
	path := newPath(t)
	s := open(t, sqlite.Config{Path: path})
	fill(t, s, requestScope("keep"), 50)
	commit(t, s, inScope(commitOf(99, 0, "hello", "hi"), requestScope("r")))
	must(s.CloseScope(ctx, "r", carrel.ReasonScopeClosed, noon))(t)
	release := hold(t, s)
	scrub := queue(s, 0, func() error {
		_, err := s.Scrub(ctx, noon)
		return err
	})
	closed := make(chan error, 1)
	go func() { closed <- s.Close() }()
	release()
	if err := errors.Join(<-scrub, <-closed); err != nil {
		t.Error(err)
	}
	wantRows(t, open(t, sqlite.Config{Path: path}), map[string]int{"histories": 50, "messages": 100})
}

func TestAScrubIsTimedByTheStoresClock(t *testing.T) {
	clock := noon
	s := open(t, sqlite.Config{Path: newPath(t), Now: func() time.Time {
		clock = clock.Add(1500 * time.Microsecond)
		return clock
	}})
	done := must(s.Scrub(t.Context(), noon))(t)
	if last := must(s.LastScrub(t.Context()))(t); done.Took != 1500*time.Microsecond || last.Took != done.Took {
		t.Errorf("it took %v, kept is %v", done.Took, last.Took)
	}
}
