package plugins

import (
	"sync"

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
	mu      sync.Mutex // guards what follows
	epoch   uint64
	unloads uint64
	active  *simplelru.LRU[plugin, store.Plugin]
	loaded  *simplelru.LRU[build, *Loaded] // the cache is one user of each
}

func newCache(size int) (*cache, error) {
	active, err := simplelru.NewLRU[plugin, store.Plugin](size, nil)
	if err != nil {
		return nil, err
	}
	loaded, err := simplelru.NewLRU(size, func(_ build, l *Loaded) { l.Release() })
	if err != nil {
		return nil, err
	}
	return &cache{active: active, loaded: loaded}, nil
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
	l, ok = c.loaded.Get(b)
	return l, c.unloads, ok && l.acquire()
}

// putLoaded keeps a version, unless some were unloaded since getLoaded. The
// cache becomes a user of it.
func (c *cache) putLoaded(b build, l *Loaded, unloads uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.unloads == unloads && l.acquire() {
		c.loaded.Remove(b)
		c.loaded.Add(b, l)
	}
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
	defer c.mu.Unlock()
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
	defer c.mu.Unlock()
	c.epoch++
	c.unloads++
	c.active.Purge()
	c.loaded.Purge()
}
