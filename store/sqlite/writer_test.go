package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/store"
	"github.com/carrelhost/carrel/store/sqlite"
)

func hold(t *testing.T, s *sqlite.Store) (release func()) {
	t.Helper()
	free := must(s.Hold())(t)
	return func() {
		if err := free(); err != nil {
			t.Error(err)
		}
	}
}

// queue starts f and returns when what it writes is queued behind n others.
func queue(s *sqlite.Store, n int, f func() error) (outcome <-chan error) {
	done := make(chan error, 1)
	go func() { done <- f() }()
	for s.Queued() <= n {
		runtime.Gosched()
	}
	return done
}

func createTenant(ctx context.Context, s *sqlite.Store, id carrel.TenantID) error {
	return s.CreateTenant(ctx, store.Tenant{ID: id, CreatedAt: noon})
}

func TestAFailingOperationFailsAloneInItsBatch(t *testing.T) {
	ctx := context.Background()
	s := open(t, sqlite.Config{Path: newPath(t)})
	if err := createTenant(ctx, s, "taken"); err != nil {
		t.Fatal(err)
	}
	release := hold(t, s)
	var outcomes []<-chan error
	for i := range 50 {
		id := carrel.TenantID(fmt.Sprintf("t%02d", i))
		if i%5 == 0 {
			id = "taken"
		}
		outcomes = append(outcomes, queue(s, i, func() error { return createTenant(ctx, s, id) }))
	}
	// Half done when it fails: the plugin is created, its version is refused.
	outcomes = append(outcomes, queue(s, 50, func() error {
		v := store.Version{Tenant: "taken", Plugin: "chat", Digest: carrel.Digest{1}}
		_, _, err := s.PutVersion(ctx, v, nil, store.PluginLimits{Plugins: 1})
		return err
	}))
	release()
	for i, outcome := range outcomes {
		err := <-outcome
		switch {
		case i == 50:
			wantCode(t, err, abi.QuotaExceeded)
		case i%5 == 0:
			if !errors.Is(err, store.ErrExists) {
				t.Errorf("operation %d: %v, want ErrExists", i, err)
			}
		case err != nil:
			t.Errorf("operation %d: %v", i, err)
		}
	}
	if list := must(s.ListTenants(ctx, "", 100))(t); len(list) != 41 {
		t.Errorf("there are %d tenants, want 41", len(list))
	}
	_, err := s.Plugin(ctx, "taken", "chat")
	wantCode(t, err, abi.NotFound)
}

func TestAnOperationSeesThoseBeforeItInItsBatch(t *testing.T) {
	ctx := context.Background()
	s := open(t, sqlite.Config{Path: newPath(t)})
	release := hold(t, s)
	first := queue(s, 0, func() error { return createTenant(ctx, s, acme) })
	second := queue(s, 1, func() error { return createTenant(ctx, s, acme) })
	key := queue(s, 2, func() error { return s.CreateKey(ctx, store.APIKey{ID: "k", Tenant: acme, Role: carrel.RoleOwner}) })
	release()
	if err := <-first; err != nil {
		t.Error(err)
	}
	if err := <-second; !errors.Is(err, store.ErrExists) {
		t.Errorf("the second is %v, want ErrExists", err)
	}
	if err := <-key; err != nil {
		t.Error(err)
	}
}

func TestACallerWhoseContextEndsDoesNotWaitAndItsWriteIsSkipped(t *testing.T) {
	s := open(t, sqlite.Config{Path: newPath(t)})
	release := hold(t, s)
	ctx, cancel := context.WithCancel(context.Background())
	outcome := queue(s, 0, func() error { return createTenant(ctx, s, acme) })
	cancel()
	err := <-outcome // although the writer is still held
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v, want context.Canceled", err)
	}
	wantCode(t, err, abi.Canceled)
	release()
	// This is behind it, so that one has been dealt with.
	if err := createTenant(context.Background(), s, "other"); err != nil {
		t.Fatal(err)
	}
	_, err = s.Tenant(context.Background(), acme)
	wantCode(t, err, abi.NotFound)
}

func TestAFullQueueBlocksUntilThereIsRoomOrTheContextEnds(t *testing.T) {
	s := open(t, sqlite.Config{Path: newPath(t), Queue: 1})
	release := hold(t, s)
	queued := queue(s, 0, func() error { return createTenant(context.Background(), s, "queued") })

	late, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
	defer cancel()
	err := createTenant(late, s, "late")
	wantCode(t, err, abi.Overloaded)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error is %v, want context.DeadlineExceeded", err)
	}

	canceled, cancel := context.WithCancel(context.Background())
	gone := make(chan error, 1)
	go func() { gone <- createTenant(canceled, s, "gone") }()
	cancel()
	wantCode(t, <-gone, abi.Canceled)

	waiting := make(chan error, 1)
	go func() { waiting <- createTenant(context.Background(), s, "waiting") }()
	release()
	for _, outcome := range []<-chan error{queued, waiting} {
		if err := <-outcome; err != nil {
			t.Error(err)
		}
	}
	var ids []carrel.TenantID
	for _, tenant := range must(s.ListTenants(context.Background(), "", 10))(t) {
		ids = append(ids, tenant.ID)
	}
	if len(ids) != 2 || ids[0] != "queued" || ids[1] != "waiting" {
		t.Errorf("tenants are %v", ids)
	}
}

func TestReadsDoNotWaitForTheWriter(t *testing.T) {
	ctx := context.Background()
	s := open(t, sqlite.Config{Path: newPath(t)})
	commit(t, s, commitOf(1, 0, "hello", "hi"))
	release := hold(t, s)
	defer release()
	k, _ := keyOf(1)
	if v := must(s.View(ctx, k, store.ViewLimit{Messages: 10}))(t); len(v.Recent) != 1 {
		t.Errorf("view is %+v", v)
	}
}

func TestCloseWaitsForWhatIsQueued(t *testing.T) {
	path := newPath(t)
	s := open(t, sqlite.Config{Path: path, BatchMax: 3})
	release := hold(t, s)
	var outcomes []<-chan error
	for i := range 10 {
		outcomes = append(outcomes, queue(s, i, func() error {
			return createTenant(context.Background(), s, carrel.TenantID(fmt.Sprintf("t%d", i)))
		}))
	}
	closed := make(chan error, 1)
	go func() { closed <- s.Close() }()
	select {
	case err := <-closed:
		t.Fatalf("Close returned %v while writes were queued", err)
	default:
	}
	release()
	for _, outcome := range outcomes {
		if err := <-outcome; err != nil {
			t.Error(err)
		}
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if list := must(open(t, sqlite.Config{Path: path}).ListTenants(context.Background(), "", 100))(t); len(list) != 10 {
		t.Errorf("%d tenants are there after Close, want 10", len(list))
	}
}

func TestCloseEndsTheWaitForRoomInTheQueue(t *testing.T) {
	s := open(t, sqlite.Config{Path: newPath(t), Queue: 1})
	release := hold(t, s)
	queued := queue(s, 0, func() error { return createTenant(context.Background(), s, "queued") })
	waiting := make(chan error, 1)
	go func() { waiting <- createTenant(context.Background(), s, "waiting") }()
	closed := make(chan error, 1)
	go func() { closed <- s.Close() }()
	if err := <-waiting; err == nil {
		t.Error("a write succeeded that had no room before Close")
	}
	release()
	if err := <-queued; err != nil {
		t.Error(err)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

func TestWhatACallerChangesAfterItsContextEndedIsNotWritten(t *testing.T) {
	s := open(t, sqlite.Config{Path: newPath(t)})
	release := hold(t, s)
	ctx, cancel := context.WithCancel(context.Background())
	c := commitOf(1, 0, "hello", "hi")
	system := "S"
	c.System = &system
	c.Turns[0].Messages[1].ToolCalls = []carrel.ToolCall{{ID: "c", Name: "f", Args: []byte(`{}`)}}
	turn := queue(s, 0, func() error { return tryCommit(ctx, s, c) })
	module := []byte("module")
	v := store.Version{Tenant: acme, Plugin: "chat", Manifest: []byte("{}"), Report: []byte("{}")}
	version := queue(s, 1, func() error {
		_, _, err := s.PutVersion(ctx, v, module, store.PluginLimits{Plugins: 1, Versions: 1})
		return err
	})
	cancel()
	wantCode(t, <-turn, abi.Canceled)
	wantCode(t, <-version, abi.Canceled)
	go release()
	// The race detector sees it if the writer still reads these.
	system = "changed"
	c.Turns[0].Messages[0].Content = "changed"
	c.Turns[0].Messages[1].ToolCalls[0].Args[0] = '!'
	module[0], v.Manifest[0], v.Report[0] = '!', '!', '!'
	if err := s.Check(context.Background()); err != nil {
		t.Error(err)
	}
}
