package sqlite_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/store"
	"github.com/carrelhost/carrel/store/sqlite"
)

// BenchmarkScrub measures a scrub after one short history was deleted, which
// all writes wait for, by how much is stored beside it.
func BenchmarkScrub(b *testing.B) {
	text := strings.Repeat("a sentence of a chat. ", 30)
	for _, megabytes := range []int{50, 200} {
		b.Run(fmt.Sprintf("MB=%d", megabytes), func(b *testing.B) {
			ctx := context.Background()
			s := open(b, sqlite.Config{Path: newPath(b)})
			stage(b, s, 1, megabytes<<20/len(text), text)
			k, _ := keyOf(2)
			b.ResetTimer()
			var took time.Duration
			for range b.N {
				commit(b, s, commitOf(2, 0, text, text))
				must(s.DeleteHistory(ctx, k, store.Deletion{Reason: carrel.ReasonDeleted, At: noon}))(b)
				took += must(s.Scrub(ctx, noon))(b).Took
			}
			b.ReportMetric(float64(took.Milliseconds())/float64(b.N), "scrub-ms")
			b.ReportMetric(float64(took.Milliseconds())/float64(b.N)/float64(megabytes)*100, "ms/100MB")
		})
	}
}
