package invoke_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/store"
)

// way is how one operation of a store fails.
type way string

const (
	refused   way = "is refused"
	lost      way = "is done and its answer lost"
	cancelled way = "waits until its context ends, and is not done"
	late      way = "waits until its context ends, and is done"
)

var errLost = errors.New("the connection to the store broke")

// faulty is a store of which one operation fails.
type faulty struct {
	store.Store

	mu    sync.Mutex // guards what follows
	n     int        // operations since arm
	at    int        // the one that fails; 0 = none
	how   way
	leave context.CancelFunc // ends the context of the client's call
	hit   string             // the operation that failed
	done  bool               // although it failed, it was done
}

// arm makes the n-th operation from now fail.
func (s *faulty) arm(n int, how way) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n, s.at, s.how, s.hit, s.done = 0, n, how, "", false
}

// client says whose context ends when its operation hangs.
func (s *faulty) client(leave context.CancelFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leave = leave
}

// failed returns the operation that failed, "" if none has.
func (s *faulty) failed() (op string, done bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hit, s.done
}

// counted returns how many operations there were since arm.
func (s *faulty) counted() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.n
}

func (s *faulty) next(op string) (how way, leave context.CancelFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n++; s.n != s.at {
		return "", nil
	}
	s.hit, s.done = op, s.how == lost || s.how == late
	return s.how, s.leave
}

// through runs an operation, unless it is the one that fails.
func through[T any](ctx context.Context, s *faulty, op string, do func(context.Context) (T, error)) (T, error) {
	var none T
	how, leave := s.next(op)
	switch how {
	case refused:
		return none, carrel.Fail("faulty", abi.StorageFull, "the disk is full")
	case lost:
		if _, err := do(ctx); err != nil {
			return none, err
		}
		return none, errLost
	case cancelled, late:
		leave()
		if ctx.Done() == nil { // nothing would end it
			return do(ctx)
		}
		<-ctx.Done()
		if how == late {
			if _, err := do(context.WithoutCancel(ctx)); err != nil {
				return none, err
			}
		}
		return none, fmt.Errorf("faulty: %w", ctx.Err())
	default:
		return do(ctx)
	}
}

// only is through for operations that return nothing else.
func only(ctx context.Context, s *faulty, op string, do func(context.Context) error) error {
	_, err := through(ctx, s, op, func(ctx context.Context) (struct{}, error) { return struct{}{}, do(ctx) })
	return err
}

func (s *faulty) Version(ctx context.Context, t carrel.TenantID, p carrel.PluginName, ref carrel.VersionRef) (store.Version, error) {
	return through(ctx, s, "Version", func(ctx context.Context) (store.Version, error) { return s.Store.Version(ctx, t, p, ref) })
}

func (s *faulty) Module(ctx context.Context, t carrel.TenantID, p carrel.PluginName, d carrel.Digest) ([]byte, error) {
	return through(ctx, s, "Module", func(ctx context.Context) ([]byte, error) { return s.Store.Module(ctx, t, p, d) })
}

func (s *faulty) Plugin(ctx context.Context, t carrel.TenantID, p carrel.PluginName) (store.Plugin, error) {
	return through(ctx, s, "Plugin", func(ctx context.Context) (store.Plugin, error) { return s.Store.Plugin(ctx, t, p) })
}

func (s *faulty) Activate(ctx context.Context, t carrel.TenantID, p carrel.PluginName, d carrel.Digest, open store.ScopeInstance) (store.Plugin, error) {
	return through(ctx, s, "Activate", func(ctx context.Context) (store.Plugin, error) { return s.Store.Activate(ctx, t, p, d, open) })
}

func (s *faulty) Deactivate(ctx context.Context, t carrel.TenantID, p carrel.PluginName) (store.Plugin, error) {
	return through(ctx, s, "Deactivate", func(ctx context.Context) (store.Plugin, error) { return s.Store.Deactivate(ctx, t, p) })
}

func (s *faulty) View(ctx context.Context, k carrel.MemoryKey, l store.ViewLimit) (store.View, error) {
	return through(ctx, s, "View", func(ctx context.Context) (store.View, error) { return s.Store.View(ctx, k, l) })
}

func (s *faulty) Commit(ctx context.Context, c store.Commit) (store.Committed, error) {
	return through(ctx, s, "Commit", func(ctx context.Context) (store.Committed, error) { return s.Store.Commit(ctx, c) })
}

func (s *faulty) History(ctx context.Context, t carrel.TenantID, h carrel.Handle, by *store.Toucher, c store.Cutoff) (store.History, error) {
	return through(ctx, s, "History", func(ctx context.Context) (store.History, error) { return s.Store.History(ctx, t, h, by, c) })
}

func (s *faulty) ListHistories(ctx context.Context, f store.HistoryFilter) ([]store.History, error) {
	return through(ctx, s, "ListHistories", func(ctx context.Context) ([]store.History, error) { return s.Store.ListHistories(ctx, f) })
}

func (s *faulty) Messages(ctx context.Context, k carrel.MemoryKey, g, after int64, limit store.MessageLimit) (store.MessagePage, error) {
	return through(ctx, s, "Messages", func(ctx context.Context) (store.MessagePage, error) {
		return s.Store.Messages(ctx, k, g, after, limit)
	})
}

func (s *faulty) DeleteTurn(ctx context.Context, k carrel.MemoryKey, g, turn int64) error {
	return only(ctx, s, "DeleteTurn", func(ctx context.Context) error { return s.Store.DeleteTurn(ctx, k, g, turn) })
}

func (s *faulty) DeleteHistory(ctx context.Context, k carrel.MemoryKey, d store.Deletion) (carrel.Eviction, error) {
	return through(ctx, s, "DeleteHistory", func(ctx context.Context) (carrel.Eviction, error) { return s.Store.DeleteHistory(ctx, k, d) })
}

func (s *faulty) ExpireHistories(ctx context.Context, c store.Cutoff, at time.Time, limit int) ([]carrel.Eviction, error) {
	return through(ctx, s, "ExpireHistories", func(ctx context.Context) ([]carrel.Eviction, error) {
		return s.Store.ExpireHistories(ctx, c, at, limit)
	})
}

func (s *faulty) Touch(ctx context.Context, t store.Touch) (store.Touched, error) {
	return through(ctx, s, "Touch", func(ctx context.Context) (store.Touched, error) { return s.Store.Touch(ctx, t) })
}

func (s *faulty) CloseScope(ctx context.Context, id carrel.ScopeID, why carrel.EvictionReason, at time.Time) ([]carrel.Eviction, error) {
	return through(ctx, s, "CloseScope", func(ctx context.Context) ([]carrel.Eviction, error) { return s.Store.CloseScope(ctx, id, why, at) })
}

func (s *faulty) CreateSession(ctx context.Context, n store.Session, most int) error {
	return only(ctx, s, "CreateSession", func(ctx context.Context) error { return s.Store.CreateSession(ctx, n, most) })
}

func (s *faulty) OpenSession(ctx context.Context, i store.ScopeInstance) error {
	return only(ctx, s, "OpenSession", func(ctx context.Context) error { return s.Store.OpenSession(ctx, i) })
}

func (s *faulty) Session(ctx context.Context, t carrel.TenantID, id carrel.SessionID, by *store.Toucher) (store.Session, error) {
	return through(ctx, s, "Session", func(ctx context.Context) (store.Session, error) { return s.Store.Session(ctx, t, id, by) })
}

func (s *faulty) UseSession(ctx context.Context, t carrel.TenantID, id carrel.SessionID, at time.Time) error {
	return only(ctx, s, "UseSession", func(ctx context.Context) error { return s.Store.UseSession(ctx, t, id, at) })
}

func (s *faulty) ExpiredSessions(ctx context.Context, now time.Time, limit int) ([]store.Session, error) {
	return through(ctx, s, "ExpiredSessions", func(ctx context.Context) ([]store.Session, error) { return s.Store.ExpiredSessions(ctx, now, limit) })
}

func (s *faulty) Grant(ctx context.Context, t carrel.TenantID, p carrel.PluginName) (store.Grant, error) {
	return through(ctx, s, "Grant", func(ctx context.Context) (store.Grant, error) { return s.Store.Grant(ctx, t, p) })
}

func (s *faulty) EraseSubject(ctx context.Context, t carrel.TenantID, who carrel.Subject, at time.Time, limit int) (store.Erasure, error) {
	return through(ctx, s, "EraseSubject", func(ctx context.Context) (store.Erasure, error) {
		return s.Store.EraseSubject(ctx, t, who, at, limit)
	})
}

func (s *faulty) Claim(ctx context.Context, c store.Claim, most store.ClaimLimits) (store.Claimed, error) {
	return through(ctx, s, "Claim", func(ctx context.Context) (store.Claimed, error) { return s.Store.Claim(ctx, c, most) })
}

func (s *faulty) Answer(ctx context.Context, a store.Answer) error {
	return only(ctx, s, "Answer", func(ctx context.Context) error { return s.Store.Answer(ctx, a) })
}

func (s *faulty) ReleaseClaim(ctx context.Context, c store.Claim) error {
	return only(ctx, s, "ReleaseClaim", func(ctx context.Context) error { return s.Store.ReleaseClaim(ctx, c) })
}
