package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/store"
	"github.com/carrelhost/carrel/store/sqlite"
	"github.com/carrelhost/carrel/store/storetest"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(crashEnv); path != "" {
		os.Exit(commitUntilKilled(path))
	}
	goleak.VerifyTestMain(m)
}

func TestContract(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store {
		s, err := sqlite.Open(context.Background(), sqlite.Config{Path: newPath(t)})
		if err != nil {
			t.Fatal(err)
		}
		return s
	})
}

const acme carrel.TenantID = "acme"

var noon = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

func newPath(t testing.TB) string { return filepath.Join(t.TempDir(), "host.db") }

// open closes the store when the test ends; closing it before is fine.
func open(t testing.TB, c sqlite.Config) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeStore(t, s) })
	return s
}

func closeStore(t testing.TB, s *sqlite.Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func must[T any](v T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func wantCode(t testing.TB, err error, want abi.Code) {
	t.Helper()
	if got := carrel.CodeOf(err); got != want {
		t.Errorf("code is %v, want %v (error: %v)", got, want, err)
	}
}

// keyOf returns the n-th key and its handle.
func keyOf(n int) (carrel.MemoryKey, carrel.Handle) {
	k := carrel.MemoryKey{Tenant: acme, Namespace: "chat", Kind: carrel.KindExplicit, ID: carrel.MemoryID(fmt.Sprint(n))}
	d := carrel.DigestOf([]byte(k.ID))
	return k, carrel.Handle(d[:16])
}

func commitOf(n int, generation int64, contents ...string) store.Commit {
	k, h := keyOf(n)
	c := store.Commit{
		Touch: store.Touch{
			Scope:  store.ScopeInstance{ID: "r", Tenant: acme, Scope: carrel.ScopeRequest, Node: "run-1", OpenedAt: noon},
			Key:    k,
			Handle: h,
			Plugin: "chat",
			By:     store.Toucher{Key: "k"},
			At:     noon,
		},
		Generation: generation,
		At:         noon,
	}
	if len(contents) > 0 {
		c.Turns = []store.NewTurn{{}}
	}
	for i, text := range contents {
		role := carrel.RoleUser
		if i%2 == 1 {
			role = carrel.RoleAssistant
		}
		c.Turns[0].Messages = append(c.Turns[0].Messages, carrel.Message{Role: role, Content: text})
	}
	return c
}

func commit(t testing.TB, s *sqlite.Store, c store.Commit) {
	t.Helper()
	if err := tryCommit(t.Context(), s, c); err != nil {
		t.Fatal(err)
	}
}

func TestReopeningKeepsEverything(t *testing.T) {
	ctx := context.Background()
	path := newPath(t)
	s := open(t, sqlite.Config{Path: path})
	if err := s.CreateTenant(ctx, store.Tenant{ID: acme, CreatedAt: noon}); err != nil {
		t.Fatal(err)
	}
	module := []byte("module")
	v := store.Version{Tenant: acme, Plugin: "chat", Digest: carrel.DigestOf(module), Manifest: []byte("{}"), Report: []byte("{}"), CreatedAt: noon}
	if _, _, err := s.PutVersion(ctx, v, module, store.PluginLimits{Plugins: 1, Versions: 1}); err != nil {
		t.Fatal(err)
	}
	must(s.Activate(ctx, acme, "chat", v.Digest, store.ScopeInstance{ID: "app", Node: "run-1", OpenedAt: noon}))(t)
	commit(t, s, commitOf(1, 0, "hello", "hi"))
	k, h := keyOf(1)
	everything := func(s *sqlite.Store) []any {
		return []any{
			must(s.HostSecret(ctx))(t),
			must(s.Tenant(ctx, acme))(t),
			must(s.Plugin(ctx, acme, "chat"))(t),
			must(s.Version(ctx, acme, "chat", carrel.VersionRef{}))(t),
			must(s.Module(ctx, acme, "chat", v.Digest))(t),
			must(s.History(ctx, acme, h, &store.Toucher{Key: "k"}, store.Cutoff{}))(t),
			must(s.View(ctx, k, store.ViewLimit{Messages: 10}))(t),
			must(s.Orphans(ctx, "run-2", 10))(t),
			must(s.ListScopes(ctx, carrel.ScopeApplication, "", 10))(t),
		}
	}
	before := everything(s)
	closeStore(t, s)
	if _, err := os.Stat(path + "-wal"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a closed store leaves its log behind: %v", err)
	}

	again := open(t, sqlite.Config{Path: path})
	if d := cmp.Diff(before, everything(again)); d != "" {
		t.Errorf("after reopening (-before +after):\n%s", d)
	}
	must(again.DeleteHistory(ctx, k, store.Deletion{Reason: carrel.ReasonDeleted, At: noon}))(t)
	commit(t, again, commitOf(1, 0, "anew", "yes"))
	if was, now := before[5].(store.History).Generation, must(again.View(ctx, k, store.ViewLimit{}))(t).Generation; now <= was {
		t.Errorf("generation %d came after %d", now, was)
	}
}

func TestNobodyElseMayReadTheFiles(t *testing.T) {
	path := newPath(t)
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o644); err != nil { // WriteFile alone is subject to the umask
		t.Fatal(err)
	}
	s := open(t, sqlite.Config{Path: path})
	commit(t, s, commitOf(1, 0, "hello", "hi"))
	for _, suffix := range []string{"", "-wal", "-shm"} {
		info, err := os.Stat(path + suffix)
		if err != nil {
			t.Fatal(err)
		}
		if mode := info.Mode().Perm(); mode != 0o600 {
			t.Errorf("%s has mode %o", path+suffix, mode)
		}
	}
}

func TestAPathMayHoldAnyCharacters(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a b?c#d%41&mode=ro;é.db")
	s := open(t, sqlite.Config{Path: path})
	commit(t, s, commitOf(1, 0, "hello", "hi"))
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
}

func TestOpenReportsEveryFaultOfItsConfig(t *testing.T) {
	_, err := sqlite.Open(context.Background(), sqlite.Config{Queue: -1, BatchMax: -2, Readers: -3})
	if err == nil {
		t.Fatal("Open succeeded")
	}
	joined, ok := errors.Unwrap(err).(interface{ Unwrap() []error })
	if !ok || len(joined.Unwrap()) != 4 {
		t.Errorf("error is %v, want four faults", err)
	}
}

func TestOpenFailsOnWhatIsNoDatabase(t *testing.T) {
	path := newPath(t)
	if err := os.WriteFile(path, []byte("this is a text, and long enough not to be taken for an empty database file"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := sqlite.Open(context.Background(), sqlite.Config{Path: path}); err == nil {
		t.Error("Open succeeded")
	}
	if _, err := sqlite.Open(context.Background(), sqlite.Config{Path: filepath.Join(t.TempDir(), "no", "such", "directory.db")}); err == nil {
		t.Error("Open in a missing directory succeeded")
	}
}

func tryCommit(ctx context.Context, s *sqlite.Store, c store.Commit) error {
	_, err := s.Commit(ctx, c)
	return err
}
