package sqlite_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/store"
	"github.com/carrelhost/carrel/store/sqlite"
)

// BenchmarkCommit measures acknowledged, durable turns of two messages, each
// writer to a history of its own.
func BenchmarkCommit(b *testing.B) {
	for _, writers := range []int{1, 64} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			s := open(b, sqlite.Config{Path: newPath(b)})
			text := strings.Repeat("a sentence of a chat. ", 10)
			generations := make([]int64, writers)
			for w := range writers {
				commit(b, s, commitOf(w, 0, text, text))
				k, _ := keyOf(w)
				generations[w] = must(s.View(context.Background(), k, store.ViewLimit{Messages: 0}))(b).Generation
			}
			took := make([]time.Duration, b.N)
			var next atomic.Int64
			var all sync.WaitGroup
			b.ResetTimer()
			for w := range writers {
				all.Go(func() {
					for i := next.Add(1) - 1; i < int64(b.N); i = next.Add(1) - 1 {
						start := time.Now()
						if err := tryCommit(context.Background(), s, commitOf(w, generations[w], text, text)); err != nil {
							b.Error(err)
							return
						}
						took[i] = time.Since(start)
					}
				})
			}
			all.Wait()
			b.StopTimer()
			slices.Sort(took)
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "turns/s")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
		})
	}
}

// BenchmarkTurnOnLongHistory measures what one turn costs, the read of its
// window and its commit, on histories that differ in nothing but length.
func BenchmarkTurnOnLongHistory(b *testing.B) {
	text := strings.Repeat("a sentence of a chat. ", 10)
	for _, messages := range []int{100, 100_000} {
		b.Run(fmt.Sprintf("messages=%d", messages), func(b *testing.B) {
			ctx := context.Background()
			s := open(b, sqlite.Config{Path: newPath(b)})
			k, _ := keyOf(1)
			generation := stage(b, s, 1, messages, text)
			b.ResetTimer()
			for range b.N {
				v := must(s.View(ctx, k, store.ViewLimit{Messages: 20}))(b)
				if v.Stored < int64(messages) {
					b.Fatalf("the history has %d messages", v.Stored)
				}
				if err := tryCommit(ctx, s, commitOf(1, generation, text, text)); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N), "µs/turn")
		})
	}
}

// stage makes the n-th key's history, of turns of two messages, in few
// commits.
func stage(tb testing.TB, s *sqlite.Store, n, messages int, text string) (generation int64) {
	tb.Helper()
	turn := store.NewTurn{Messages: []carrel.Message{
		{Role: carrel.RoleUser, Content: text}, {Role: carrel.RoleAssistant, Content: text},
	}}
	for left := messages / 2; left > 0; {
		c := commitOf(n, generation)
		c.Turns = slices.Repeat([]store.NewTurn{turn}, min(left, 1000))
		left -= len(c.Turns)
		generation = must(s.Commit(context.Background(), c))(tb).Generation
	}
	return generation
}
