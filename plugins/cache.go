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
// reader takes the epoch first, and its entry is dropped if a change came in
// between. What is loaded cannot change, its digest names it; but what is
// loaded while versions are unloaded is not kept, since it may be one of them.
type cache struct {
	most   int64         // bytes of what is loaded
	idle   time.Duration // after which a version that nobody uses is unloaded
	code   func() int64  // bytes that the code of all versions takes, shared code once
	shrunk sync.Mutex    // held by who unloads for want of bytes

	mu      sync.Mutex // guards what follows
	epoch   uint64
	unloads uint64
	active  *simplelru.LRU[plugin, store.Plugin]
	loaded  *simplelru.LRU[build, *resident]
	texts   int64       // bytes that what is loaded takes besides its code
	dropped []*Loaded   // which unlock lets go of
	ticks   uint64      // of the timer
	timer   *time.Timer // nil while nothing is loaded
}

// resident is a loaded version of which the cache is one user.
type resident struct {
	*Loaded
	used uint64 // at which of the ticks it was asked for last
}

// idleTicks is how many ticks make cache.idle. A version is unloaded at the
// first one after that, and the calls need no clock.
const idleTicks = 4

func newCache(size int, most int64, idle time.Duration, code func() int64) (*cache, error) {
	c := &cache{most: most, idle: idle, code: code}
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

// getActive returns what is active, or the epoch to hand to putActive.
func (c *cache) getActive(p plugin) (row store.Plugin, epoch uint64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	row, ok = c.active.Get(p)
	return row, c.epoch, ok
}

func (c *cache) putActive(p plugin, row store.Plugin, epoch uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.epoch == epoch {
		c.active.Add(p, row)
	}
}

// getLoaded returns a loaded version with one more user, the caller, or what
// to hand to putLoaded.
func (c *cache) getLoaded(b build) (l *Loaded, unloads uint64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k, ok := c.loaded.Get(b)
	if !ok || !k.acquire() {
		return nil, c.unloads, false
	}
	k.used = c.ticks
	return k.Loaded, c.unloads, true
}

// putLoaded keeps a version, unless some were unloaded since getLoaded. The
// cache becomes a user of it, and unloads others if there are too many or if
// they are too large together.
func (c *cache) putLoaded(b build, l *Loaded, unloads uint64) {
	c.mu.Lock()
	if c.unloads != unloads || !l.acquire() {
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
	c.epoch++
	c.active.Remove(p)
}

// unload forgets the plugin's loaded versions, or the one with the digest.
func (c *cache) unload(p plugin, only *carrel.Digest) {
	c.mu.Lock()
	defer c.unlock()
	c.unloads++
	for _, b := range c.loaded.Keys() {
		if b.plugin == p && (only == nil || b.digest == *only) {
			c.loaded.Remove(b)
		}
	}
}

// close forgets everything.
func (c *cache) close() {
	c.mu.Lock()
	defer c.unlock()
	c.epoch++
	c.unloads++
	c.active.Purge()
	c.loaded.Purge()
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
}
