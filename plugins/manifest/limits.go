package manifest

import (
	"time"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox/module"
)

// maxDurationBytes is more than a time.Duration ever prints as.
const maxDurationBytes = 32

// limits reads what a plugin wishes within the host's limits. Without any wish
// it returns nil.
func (c *checker) limits(o object) *abi.PluginLimits {
	v, ok := o.members["limits"]
	if !ok {
		return nil
	}
	lo, ok := c.object(v, "/limits", levelLimits)
	if !ok {
		return nil
	}
	var l abi.PluginLimits
	if n, ok := lo.integer("memoryMiB", 1, abi.MaxMemoryMiB); ok {
		l.MemoryMiB = int(n)
	}
	if timeout, ok := lo.text("timeout", maxDurationBytes); ok {
		c.timeout(timeout, "/limits/timeout")
		l.Timeout = timeout
	}
	if l == (abi.PluginLimits{}) {
		return nil
	}
	return &l
}

func (c *checker) timeout(timeout, at string) {
	switch d, err := time.ParseDuration(timeout); {
	case err != nil:
		c.fault(at, "%s is not a duration; write a number and a unit, such as \"10s\" or \"500ms\"", module.Quote(timeout))
	case d <= 0:
		c.fault(at, "%s leaves no time for any call; write a positive duration, such as %q", module.Quote(timeout), abi.DefaultTimeout)
	case c.known.Timeout > 0 && d > c.known.Timeout:
		c.fault(at, "%s is longer than this host allows; write at most %q", module.Quote(timeout), c.known.Timeout)
	}
}
