package plugins

import (
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/quarantine"
)

// healthy refuses what is quarantined: forbidden.
func (c *Catalog) healthy(op string, d carrel.Digest) error {
	if r, ok := c.cfg.Quarantine.Of(d); ok {
		return refusal(op, r)
	}
	return nil
}

// refusal says why a version that is quarantined is not run.
func refusal(op string, r quarantine.Record) *carrel.Error {
	return carrel.Fail(op, abi.Forbidden, fmt.Sprintf(
		"the version %s is quarantined since %s: it was running at %d crashes of the host, so none of its methods is called; "+
			"upload another build, activate another version, or ask the host's operator to lift it",
		r.Digest, r.Since.UTC().Format(time.RFC3339), len(r.Crashes)))
}

// mayRun is healthy for a version that is about to be loaded. The first time
// in this process it is refused since it was quarantined, the plugin's log says
// so.
func (c *Catalog) mayRun(b build) error {
	r, ok := c.cfg.Quarantine.Of(b.digest)
	if !ok {
		return nil
	}
	refused := refusal("plugins.Running", r)
	if c.cfg.Log != nil && c.told.first(b, r.Since) {
		const levelError = 3
		c.cfg.Log.Add(b.tenant, b.name, Entry{At: c.cfg.Now().UTC(), Level: levelError, Text: refused.Msg})
	}
	return refused
}

// maxTold bounds of how many versions it is known that their log says so. Of
// one that was forgotten the log says it once more.
const maxTold = 4096

// told knows of which versions the log says that they are quarantined. It is
// safe for concurrent use.
type told struct {
	mu    sync.Mutex                       // guards since
	since *simplelru.LRU[build, time.Time] // when those were quarantined
}

func newTold() *told {
	since, _ := simplelru.NewLRU[build, time.Time](maxTold, nil) // it refuses a size of 0 alone
	return &told{since: since}
}

// first reports whether it is asked for the first time about a version that is
// quarantined since then.
func (t *told) first(b build, since time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if before, ok := t.since.Get(b); ok && before.Equal(since) {
		return false
	}
	t.since.Add(b, since)
	return true
}
