package sqlite_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/store"
	"github.com/carrelhost/carrel/store/sqlite"
)

// BenchmarkCloseScope measures the close of an application scope with many
// histories of two messages each, and how long writes of others wait that are
// made one after another from its beginning until every byte of it is gone.
func BenchmarkCloseScope(b *testing.B) {
	for _, histories := range []int{10_000, 60_000} {
		b.Run(fmt.Sprintf("histories=%d", histories), func(b *testing.B) {
			ctx := context.Background()
			s := open(b, sqlite.Config{Path: newPath(b)})
			if err := createTenant(ctx, s, acme); err != nil {
				b.Fatal(err)
			}
			v, module := fixtureVersion()
			if _, _, err := s.PutVersion(ctx, v, module, store.PluginLimits{Plugins: 1, Versions: 1}); err != nil {
				b.Fatal(err)
			}
			var closing, worst, all time.Duration
			for n := range b.N {
				b.StopTimer()
				app := store.ScopeInstance{ID: carrel.ScopeID(fmt.Sprint("app", n)), Tenant: acme, Scope: carrel.ScopeApplication, Node: "run-1", OpenedAt: noon}
				must(s.Activate(ctx, acme, "chat", v.Digest, app))(b)
				fillScope(b, s, app, histories)
				b.StartTimer()
				start := time.Now()
				closed := make(chan time.Duration, 1)
				go func() {
					if n := len(must(s.CloseScope(ctx, app.ID, carrel.ReasonPluginRemoved, noon))(b)); n != histories {
						b.Errorf("%d histories ended", n)
					}
					closed <- time.Since(start)
				}()
				for done := false; !done; {
					begun := time.Now()
					if err := s.Check(ctx); err != nil {
						b.Fatal(err)
					}
					worst = max(worst, time.Since(begun))
					done = len(closed) > 0 && must(s.Count(ctx, "closings"))(b) == 0
				}
				closing += <-closed
				all += time.Since(start)
			}
			b.ReportMetric(float64(closing.Milliseconds())/float64(b.N), "close-ms")
			b.ReportMetric(float64(worst.Microseconds())/1000, "worst-wait-ms")
			b.ReportMetric(float64(all.Milliseconds())/float64(b.N), "gone-ms")
		})
	}
}

// fillScope leaves n histories of two messages in an application scope.
func fillScope(tb testing.TB, s *sqlite.Store, app store.ScopeInstance, n int) {
	tb.Helper()
	text := strings.Repeat("a sentence of a chat. ", 10)
	slots := make(chan error, 256)
	for range cap(slots) {
		slots <- nil
	}
	for i := range n {
		if err := <-slots; err != nil {
			tb.Fatal(err)
		}
		go func() {
			c := commitOf(i, 0, text, text)
			c.Touch.Scope = app
			slots <- tryCommit(context.Background(), s, c)
		}()
	}
	for range cap(slots) {
		if err := <-slots; err != nil {
			tb.Fatal(err)
		}
	}
}

// BenchmarkRequest measures what a request with a default memory id costs: a
// turn of two messages in a history of its own, and the close that ends it.
func BenchmarkRequest(b *testing.B) {
	for _, callers := range []int{1, 64} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			ctx := context.Background()
			s := open(b, sqlite.Config{Path: newPath(b)})
			text := strings.Repeat("a sentence of a chat. ", 10)
			var next atomic.Int64
			var all sync.WaitGroup
			b.ResetTimer()
			for range callers {
				all.Go(func() {
					for n := next.Add(1); n <= int64(b.N); n = next.Add(1) {
						c := commitOf(int(n), 0, text, text)
						c.Touch.Scope.ID = carrel.ScopeID(fmt.Sprint("r", n))
						err := tryCommit(ctx, s, c)
						if err == nil {
							_, err = s.CloseScope(ctx, c.Touch.Scope.ID, carrel.ReasonScopeClosed, noon)
						}
						if err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			all.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "requests/s")
		})
	}
}
