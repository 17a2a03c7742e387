package plugins

import (
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/carrelhost/carrel"
)

// Entry is a line of a plugin's log.
type Entry struct {
	Seq     int64 // rises by one with each line of the plugin, from 1
	At      time.Time
	Level   int // 0 debug to 3 error
	Request carrel.RequestID
	Method  string // Service.method
	Text    string
}

// Log keeps the newest lines that plugins wrote and that were written about
// them, in memory. It is safe for concurrent use.
type Log struct {
	lines int

	mu    sync.Mutex // guards rings
	rings *simplelru.LRU[plugin, *ring]
}

// ring is the log of one plugin, guarded by Log.mu.
type ring struct {
	last    int64
	entries []Entry // oldest first
}

// Bounds of what is kept.
const (
	maxLogPlugins = 1000
	maxLineBytes  = 4 << 10
)

// NewLog returns a log that keeps that many lines of each plugin.
func NewLog(lines int) (*Log, error) {
	rings, err := simplelru.NewLRU[plugin, *ring](maxLogPlugins, nil)
	return &Log{lines: lines, rings: rings}, err
}

// Add appends a line. Long ones are cut.
func (l *Log) Add(t carrel.TenantID, p carrel.PluginName, e Entry) {
	e.Text = cut(strings.ToValidUTF8(e.Text, "\uFFFD"))
	l.mu.Lock()
	defer l.mu.Unlock()
	r, ok := l.rings.Get(plugin{t, p})
	if !ok {
		r = &ring{}
		l.rings.Add(plugin{t, p}, r)
	}
	r.last++
	e.Seq = r.last
	if len(r.entries) == l.lines {
		copy(r.entries, r.entries[1:])
		r.entries = r.entries[:l.lines-1]
	}
	r.entries = append(r.entries, e)
}

func cut(s string) string {
	if len(s) <= maxLineBytes {
		return s
	}
	n := maxLineBytes
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}

// After returns up to limit lines with numbers above seq, oldest first. The
// caller owns them.
func (l *Log) After(t carrel.TenantID, p carrel.PluginName, seq int64, limit int) []Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	r, ok := l.rings.Get(plugin{t, p})
	if !ok {
		return nil
	}
	var out []Entry
	for _, e := range r.entries {
		if e.Seq > seq && len(out) < limit {
			out = append(out, e)
		}
	}
	return out
}

// Drop forgets a plugin's lines.
func (l *Log) Drop(t carrel.TenantID, p carrel.PluginName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rings.Remove(plugin{t, p})
}
