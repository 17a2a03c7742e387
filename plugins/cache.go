package plugins

import (
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/carrelhost/carrel"
)

// plugin names a plugin across tenants.
type plugin struct {
	tenant carrel.TenantID
	name   carrel.PluginName
}

// cache keeps what is active, so that an invocation needs no read. An entry
// that was read before a change is never kept after it: a reader takes the
// epoch first, and its entry is dropped if a change came in between.
type cache struct {
	mu      sync.Mutex // guards what follows
	epoch   uint64
	entries *simplelru.LRU[plugin, Running]
}

func newCache(size int) (*cache, error) {
	l, err := simplelru.NewLRU[plugin, Running](size, nil)
	return &cache{entries: l}, err
}

// get returns the entry, or the epoch to hand to put.
func (c *cache) get(p plugin) (r Running, epoch uint64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r, ok = c.entries.Get(p)
	return r, c.epoch, ok
}

func (c *cache) put(p plugin, r Running, epoch uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.epoch == epoch {
		c.entries.Add(p, r)
	}
}

// drop forgets an entry after its plugin changed.
func (c *cache) drop(p plugin) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.epoch++
	c.entries.Remove(p)
}
