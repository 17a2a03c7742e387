package plugins

import (
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/store"
)

// plugin names a plugin across tenants.
type plugin struct {
	tenant carrel.TenantID
	name   carrel.PluginName
}

// build names one version of a plugin across tenants.
type build struct {
	plugin
	digest carrel.Digest
}

// cache keeps what is active and what is loaded, so that an invocation needs
// no read. What is active is never kept if it was read before a change: a
// reader says that it begins, and what it read is dropped if the plugin changed
// in between. What is loaded cannot change, its digest names it; but a version
// that is unloaded while it loads is not kept. Both go by the plugin: a tenant
// that changes its plugins all the time slows down no other one.
type cache struct {
	most   int64         // bytes of what is loaded
	idle   time.Duration // after which a version that nobody uses is unloaded
	code   func() int64  // bytes that the code of all versions takes, shared code once
	shrunk sync.Mutex    // held by who unloads for want of bytes

	mu      sync.Mutex       // guards what follows
	reads   map[plugin]*read // of what is active, while there are any
	loads   map[build]bool   // that run: whether the version may be kept
	active  *simplelru.LRU[plugin, store.Plugin]
	loaded  *simplelru.LRU[build, *resident]
	texts   int64       // bytes that what is loaded takes besides its code
	dropped []*Loaded   // which unlock lets go of
	ticks   uint64      // of the timer
	timer   *time.Timer // nil while nothing is loaded
}

// read is the reads of what is active of one plugin that no change overtook.
type read struct{ readers int }

// resident is a loaded version of which the cache is one user.
type resident struct {
	*Loaded
	used uint64 // at which of the ticks it was asked for last
}

// idleTicks is how many ticks make cache.idle. A version is unloaded at the
// first one after that, and the calls need no clock.
const idleTicks = 4

func newCache(size int, most int64, idle time.Duration, code func() int64) (*cache, error) {
	c := &cache{most: most, idle: idle, code: code, reads: map[plugin]*read{}, loads: map[build]bool{}}
	var err error
	if c.active, err = simplelru.NewLRU[plugin, store.Plugin](size, nil); err != nil {
		return nil, err
	}
	c.loaded, err = simplelru.NewLRU(size, func(_ build, k *resident) {
		c.texts -= k.texts
		c.dropped = append(c.dropped, k.Loaded)
	})
	return c, err
}

// unlock lets go of what was dropped under mu. That may close code, for which
// nobody should have to wait.
func (c *cache) unlock() {
	dropped := c.dropped
	c.dropped = nil
	c.mu.Unlock()
	for _, l := range dropped {
		l.Release()
	}
}

// getActive returns what is active. Without it there is a read, which the
// caller ends with endRead, whatever comes of it.
func (c *cache) getActive(p plugin) (row store.Plugin, begun *read) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if row, ok := c.active.Get(p); ok {
		return row, nil
	}
	r := c.reads[p]
	if r == nil {
		r = &read{}
		c.reads[p] = r
	}
	r.readers++
	return store.Plugin{}, r
}

// endRead ends a read, and keeps the row unless the plugin changed meanwhile.
// nil: there is none to keep.
func (c *cache) endRead(p plugin, begun *read, row *store.Plugin) {
	c.mu.Lock()
	defer c.mu.Unlock()
	begun.readers--
	if c.reads[p] != begun {
		return
	}
	if begun.readers == 0 {
		delete(c.reads, p)
	}
	if row != nil {
		c.active.Add(p, *row)
	}
}

// getLoaded returns a loaded version with one more user, the caller.
func (c *cache) getLoaded(b build) (l *Loaded, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.get(b)
}

// get is getLoaded. It needs mu.
func (c *cache) get(b build) (l *Loaded, ok bool) {
	k, ok := c.loaded.Get(b)
	if !ok || !k.acquire() {
		return nil, false
	}
	k.used = c.ticks
	return k.Loaded, true
}

// beginLoad is getLoaded for the only one who loads the version if it is not
// there, and who then ends that with endLoad, whatever comes of it.
func (c *cache) beginLoad(b build) (l *Loaded, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l, ok = c.get(b); !ok {
		c.loads[b] = true
	}
	return l, ok
}

// endLoad ends a load, and keeps the version unless it was unloaded meanwhile.
// nil: there is none to keep. The cache becomes a user of it, and unloads
// others if there are too many or if they are too large together.
func (c *cache) endLoad(b build, l *Loaded) {
	c.mu.Lock()
	keep := c.loads[b]
	delete(c.loads, b)
	if !keep || l == nil || !l.acquire() {
		c.unlock()
		return
	}
	c.loaded.Remove(b)
	c.loaded.Add(b, &resident{l, c.ticks})
	c.texts += l.texts
	c.plan()
	c.unlock()
	c.shrink(b)
}

// shrink unloads what nobody asked for the longest, until the rest has room.
// What is in use stays, and so does the version that was just loaded: one that
// is too large by itself is called as well.
func (c *cache) shrink(except build) {
	c.shrunk.Lock()
	defer c.shrunk.Unlock()
	for c.unloadOldest(except) {
	}
}

// unloadOldest unloads one version if there is no room for all.
func (c *cache) unloadOldest(except build) bool {
	code := c.code()
	c.mu.Lock()
	defer c.unlock()
	if code+c.texts <= c.most {
		return false
	}
	for _, b := range c.loaded.Keys() { // the oldest first
		if k, _ := c.loaded.Peek(b); b != except && !k.inUse() {
			return c.loaded.Remove(b)
		}
	}
	return false
}

// unloadHalf unloads half of what nobody uses, what was not asked for the
// longest first, and reports whether there was any.
func (c *cache) unloadHalf() bool {
	c.mu.Lock()
	defer c.unlock()
	var idle []build
	for _, b := range c.loaded.Keys() { // the oldest first
		if k, _ := c.loaded.Peek(b); !k.inUse() {
			idle = append(idle, b)
		}
	}
	for _, b := range idle[:(len(idle)+1)/2] {
		c.loaded.Remove(b)
	}
	return len(idle) > 0
}

// plan makes sure that there is a next tick. It needs mu.
func (c *cache) plan() {
	if c.timer == nil && c.loaded.Len() > 0 {
		c.timer = time.AfterFunc(max(c.idle/idleTicks, 1), c.tick)
	}
}

// tick unloads what nobody used for so many ticks.
func (c *cache) tick() {
	c.mu.Lock()
	defer c.unlock()
	c.ticks++
	for _, b := range c.loaded.Keys() {
		switch k, _ := c.loaded.Peek(b); {
		case k.inUse():
			k.used = c.ticks
		case c.ticks-k.used > idleTicks:
			c.loaded.Remove(b)
		}
	}
	c.timer = nil
	c.plan()
}

// drop forgets what is active of a plugin after it changed.
func (c *cache) drop(p plugin) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.reads, p) // those that run keep nothing, those that begin now may
	c.active.Remove(p)
}

// unload forgets the plugin's loaded versions, or the one with the digest,
// also those that are loading.
func (c *cache) unload(p plugin, only *carrel.Digest) {
	c.mu.Lock()
	defer c.unlock()
	gone := func(b build) bool { return b.plugin == p && (only == nil || b.digest == *only) }
	for _, b := range c.loaded.Keys() {
		if gone(b) {
			c.loaded.Remove(b)
		}
	}
	for b := range c.loads {
		if gone(b) {
			c.loads[b] = false
		}
	}
}

// close forgets everything.
func (c *cache) close() {
	c.mu.Lock()
	defer c.unlock()
	clear(c.reads)
	for b := range c.loads {
		c.loads[b] = false
	}
	c.active.Purge()
	c.loaded.Purge()
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
}
