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
