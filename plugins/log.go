package plugins

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/host/sandbox/module"
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

	mu      sync.Mutex                                  // guards what follows
	tenants *simplelru.LRU[carrel.TenantID, *tenantLog] // by when a line was last added
	bytes   int                                         // of all of them
}

// tenantLog is the logs of one tenant's plugins, guarded by Log.mu.
type tenantLog struct {
	rings *simplelru.LRU[carrel.PluginName, *ring] // by when a line was last added
	bytes int
}

// ring is the log of one plugin, guarded by Log.mu.
type ring struct {
	last    int64
	entries []Entry // oldest first
	bytes   int
}

// Bounds of what is kept. They hold for lines that arrive after a Drop as
// well, from invocations that had begun before it.
const (
	MaxLogLineBytes   = 4 << 10   // of one line; the rest is cut
	MaxLogPluginBytes = 256 << 10 // of one plugin: its oldest lines go
	MaxLogTenantBytes = 4 << 20   // of one tenant: the lines of the plugin that was silent the longest go
	MaxLogBytes       = 256 << 20 // of all: the lines of the tenant that was silent the longest go
	maxLogTenants     = 10_000
	maxLogPlugins     = 1000 // of one tenant

	// entryBytes is what a line costs besides its texts, so that empty lines
	// are not free.
	entryBytes = 128
)

// size is what a line counts as.
func (e Entry) size() int { return entryBytes + len(e.Request) + len(e.Method) + len(e.Text) }

// NewLog returns a log that keeps up to that many lines of each plugin.
func NewLog(lines int) (*Log, error) {
	l := &Log{lines: lines}
	var err error
	l.tenants, err = simplelru.NewLRU(maxLogTenants, func(_ carrel.TenantID, t *tenantLog) { l.bytes -= t.bytes })
	return l, err
}

// Add appends a line. Long ones are cut.
func (l *Log) Add(t carrel.TenantID, p carrel.PluginName, e Entry) {
	e.Text = module.Cut(strings.ToValidUTF8(e.Text, "\uFFFD"), MaxLogLineBytes)
	l.mu.Lock()
	defer l.mu.Unlock()
	tenant, ok := l.tenants.Get(t)
	if !ok {
		tenant = newTenantLog(l)
		l.tenants.Add(t, tenant)
	}
	r, ok := tenant.rings.Get(p)
	if !ok {
		r = &ring{}
		tenant.rings.Add(p, r)
	}
	r.last++
	e.Seq = r.last
	r.entries = append(r.entries, e)
	l.count(tenant, r, e.size())

	n := 0 // lines that go
	for over := r.bytes - MaxLogPluginBytes; over > 0 || len(r.entries)-n > l.lines; n++ {
		size := r.entries[n].size()
		over -= size
		l.count(tenant, r, -size)
	}
	r.entries = slices.Delete(r.entries, 0, n)
	if tenant.bytes > MaxLogTenantBytes {
		l.forget(tenant)
	}
	for l.bytes > MaxLogBytes {
		l.tenants.RemoveOldest()
	}
}

// forget drops the lines of plugins, the one that was silent the longest first,
// until the tenant is within its bound. Their rings stay, so that the numbers
// of their lines go on.
func (l *Log) forget(t *tenantLog) {
	for _, name := range t.rings.Keys() {
		if t.bytes <= MaxLogTenantBytes {
			return
		}
		silent, _ := t.rings.Peek(name)
		l.count(t, silent, -silent.bytes)
		silent.entries = nil
	}
}

func newTenantLog(l *Log) *tenantLog {
	t := &tenantLog{}
	t.rings, _ = simplelru.NewLRU(maxLogPlugins, func(_ carrel.PluginName, r *ring) { l.count(t, r, -r.bytes) }) // its error is a size below 1
	return t
}

// count adds to what is kept at all three levels.
func (l *Log) count(t *tenantLog, r *ring, n int) {
	r.bytes += n
	t.bytes += n
	l.bytes += n
}

// ring returns a plugin's log, nil if there is none. Reading keeps no log from
// being the one that was silent the longest. The caller holds mu.
func (l *Log) ring(t carrel.TenantID, p carrel.PluginName) *ring {
	tenant, ok := l.tenants.Peek(t)
	if !ok {
		return nil
	}
	r, _ := tenant.rings.Peek(p)
	return r
}

// After returns up to limit lines with numbers above seq, oldest first. The
// caller owns them.
func (l *Log) After(t carrel.TenantID, p carrel.PluginName, seq int64, limit int) []Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.ring(t, p)
	if r == nil {
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
	tenant, ok := l.tenants.Peek(t)
	if !ok {
		return
	}
	tenant.rings.Remove(p)
	if tenant.rings.Len() == 0 {
		l.tenants.Remove(t)
	}
}
