package sqlite_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/store"
	"github.com/carrelhost/carrel/store/sqlite"
)

// imported is a commit of a whole history of so many messages.
func imported(n, messages int, text string) store.Commit {
	turn := store.NewTurn{Messages: []carrel.Message{
		{Role: carrel.RoleUser, Content: text}, {Role: carrel.RoleAssistant, Content: text},
	}}
	c := commitOf(n, 0)
	c.Turns = slices.Repeat([]store.NewTurn{turn}, messages/2)
	return c
}

// BenchmarkCommitBesideImports measures turns of two messages, one after
// another, while others import histories of 10,000 messages.
func BenchmarkCommitBesideImports(b *testing.B) {
	for _, importers := range []int{0, 1, 4} {
		b.Run(fmt.Sprintf("importers=%d", importers), func(b *testing.B) {
			ctx := context.Background()
			s := open(b, sqlite.Config{Path: newPath(b)})
			text := strings.Repeat("a sentence of a chat. ", 5)
			commit(b, s, commitOf(1, 0, text, text))
			k, _ := keyOf(1)
			generation := must(s.View(ctx, k, store.ViewLimit{Messages: 0}))(b).Generation
			var others sync.WaitGroup
			stop := make(chan struct{})
			var mu sync.Mutex // guards count
			count := 0
			for w := range importers {
				others.Go(func() {
					for n := 0; ; n++ {
						select {
						case <-stop:
							return
						default:
						}
						if err := tryCommit(ctx, s, imported(1000*(w+1)+n, 10_000, text)); err != nil {
							b.Error(err)
							return
						}
						mu.Lock()
						count++
						mu.Unlock()
					}
				})
			}
			took := make([]time.Duration, 0, b.N)
			b.ResetTimer()
			for range b.N {
				start := time.Now()
				if err := tryCommit(ctx, s, commitOf(1, generation, text, text)); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(start))
			}
			b.StopTimer()
			close(stop)
			others.Wait()
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
			b.ReportMetric(float64(took[len(took)-1].Microseconds())/1000, "max-ms")
			b.ReportMetric(float64(count)/b.Elapsed().Seconds(), "imports/s")
		})
	}
}
