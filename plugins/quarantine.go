package plugins

import (
	"fmt"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
)

// healthy refuses what is quarantined: forbidden.
func (c *Catalog) healthy(op string, d carrel.Digest) error {
	if refused := c.refusal(op, d); refused != nil {
		return refused
	}
	return nil
}

// refusal is nil for what is not quarantined.
func (c *Catalog) refusal(op string, d carrel.Digest) *carrel.Error {
	r, ok := c.cfg.Quarantine.Of(d)
	if !ok {
		return nil
	}
	return carrel.Fail(op, abi.Forbidden, fmt.Sprintf(
		"the version %s is quarantined since %s: it was running at %d crashes of the host, so none of its methods is called; "+
			"upload another build, activate another version, or ask the host's operator to lift it",
		d, r.Since.UTC().Format(time.RFC3339), len(r.Crashes)))
}

// mayRun is healthy for a version that is about to be loaded. The first time
// in this process it is refused, the plugin's log says so.
func (c *Catalog) mayRun(b build) error {
	refused := c.refusal("plugins.Running", b.digest)
	if refused == nil {
		return nil
	}
	if _, told := c.told.LoadOrStore(b, struct{}{}); !told && c.cfg.Log != nil {
		const levelError = 3
		c.cfg.Log.Add(b.tenant, b.name, Entry{At: c.cfg.Now().UTC(), Level: levelError, Text: refused.Msg})
	}
	return refused
}
