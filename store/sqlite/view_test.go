package sqlite_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/carrelhost/carrel/store"
	"github.com/carrelhost/carrel/store/sqlite"
)

func TestAViewReadsAsMuchOfALongHistoryAsOfAShortOne(t *testing.T) {
	s := open(t, sqlite.Config{Path: newPath(t), Readers: 1})
	const short, long = 100, 100_000
	fill := func(n, messages int) {
		generation := int64(0)
		k, _ := keyOf(n)
		for done := 0; done < messages; {
			turn := make([]string, min(1000, messages-done))
			for i := range turn {
				done++
				turn[i] = fmt.Sprintf("message %d of a history", done)
			}
			commit(t, s, commitOf(n, generation, turn...))
			generation = must(s.View(t.Context(), k, store.ViewLimit{Messages: 0}))(t).Generation
		}
	}
	fill(0, short)
	fill(1, long)
	pages := func(n, messages int, limit store.ViewLimit) int {
		k, _ := keyOf(n)
		return must(s.PagesRead(t.Context(), func() error {
			v, err := s.View(t.Context(), k, limit)
			if err != nil {
				return err
			}
			last := v.Recent[len(v.Recent)-1].Messages
			if len(last) != 20 || last[19].Content != fmt.Sprintf("message %d of a history", messages) {
				t.Errorf("the view of %d messages ends with %q", messages, last[len(last)-1].Content)
			}
			return nil
		}))(t)
	}
	size := int64(len(fmt.Sprintf("message %d of a history", long)))
	for name, limits := range map[string][2]store.ViewLimit{ // of the short history and of the long one
		"a limit on messages": {{Messages: 20}, {Messages: 20}},
		"a limit on bytes":    {{Messages: 20}, {Messages: long, Bytes: 20 * size}},
	} {
		pages(0, short, limits[0]) // reads the schema, once for the connection
		ofShort, ofLong := pages(0, short, limits[0]), pages(1, long, limits[1])
		t.Logf("with %s a view looks at %d pages of %d messages and at %d of %d", name, ofShort, short, ofLong, long)
		// A tree of 1000 times as many rows may be two levels higher.
		if ofShort == 0 || ofLong > ofShort+3 {
			t.Errorf("with %s a view looks at %d pages of %d messages and at %d of %d", name, ofShort, short, ofLong, long)
		}
	}
}

// What is allocated is counted, as what is read and thrown away shows in no
// answer.
func TestWhatExceedsTheBytesIsNotRead(t *testing.T) {
	s := open(t, sqlite.Config{Path: newPath(t), Readers: 1})
	k, _ := keyOf(1)
	large := strings.Repeat("x", 8<<20)
	commit(t, s, commitOf(1, 0, "one", large, large))
	generation := must(s.View(t.Context(), k, store.ViewLimit{}))(t).Generation
	for name, c := range map[string]struct {
		read func() (messages int, err error)
		want int
		more bool // it is read, for it is the first
	}{
		"a view": {func() (int, error) {
			v, err := s.View(t.Context(), k, store.ViewLimit{Messages: 100, Bytes: 1 << 20})
			return len(v.Recent), err
		}, 0, false},
		"a page": {func() (int, error) {
			p, err := s.Messages(t.Context(), k, generation, -1, store.MessageLimit{Messages: 100, Bytes: 1 << 20})
			return len(p.Messages), err
		}, 1, false},
		"a page that begins with it": {func() (int, error) {
			p, err := s.Messages(t.Context(), k, generation, 1, store.MessageLimit{Messages: 100, Bytes: 1 << 20})
			return len(p.Messages), err
		}, 1, true},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		n, err := c.read()
		runtime.ReadMemStats(&after)
		if n != c.want || err != nil {
			t.Fatalf("%s has %d messages, %v", name, n, err)
		}
		if got := after.TotalAlloc - before.TotalAlloc; got > uint64(len(large)) != c.more {
			t.Errorf("%s allocates %d bytes", name, got)
		}
	}
}
