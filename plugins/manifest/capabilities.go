package manifest

import (
	"fmt"
	"slices"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox/module"
)

// capabilities reads what the plugin of that name asks to be allowed.
func (c *checker) capabilities(o object, plugin string) abi.Capabilities {
	var caps abi.Capabilities
	v, ok := o.members["capabilities"]
	if !ok {
		return caps
	}
	co, ok := c.object(v, "/capabilities", levelCapabilities)
	if !ok {
		return caps
	}
	caps.Models = co.distinct("models", abi.MaxModels, abi.MaxNameBytes, c.modelAlias)
	caps.Call = co.distinct("call", abi.MaxCallPatterns, 0, func(pattern, at string) {
		c.callPattern(pattern, at, plugin)
	})
	return caps
}

// callPattern checks a pattern of methods that the plugin asks to call.
func (c *checker) callPattern(pattern, at, plugin string) {
	switch p, err := carrel.ParseCallPattern(pattern); {
	case err != nil:
		c.fault(at, "%s is no pattern of calls: %s", module.Quote(pattern), messageOf(err))
	case string(p.Plugin) == plugin:
		c.fault(at, "a plugin calls its own methods without asking; remove %s", module.Quote(pattern))
	}
}

// distinct reads an optional array of strings that must differ, each checked
// with its place.
func (o object) distinct(name string, most, mostBytes int, check func(s, at string)) []string {
	list, ok := o.list(name, most)
	if !ok {
		return nil
	}
	var out []string
	for i, v := range list {
		at := fmt.Sprintf("%s/%s/%d", o.at, name, i)
		s, ok := o.c.asText(v, at, mostBytes)
		switch {
		case !ok:
			continue
		case slices.Contains(out, s):
			o.c.fault(at, "%s is there twice; remove one", module.Quote(s))
		default:
			check(s, at)
			out = append(out, s)
		}
	}
	return out
}

// modelAlias checks that the host has a model of that alias.
func (c *checker) modelAlias(alias, at string) {
	switch {
	case alias == "":
		c.fault(at, "the model alias is empty; write one or remove it for \"default\"")
	case c.known.Models == nil || slices.Contains(c.known.Models, alias):
	case len(c.known.Models) == 0:
		c.fault(at, "this host has no model %s: it has none at all; ask its operator to configure one", module.Quote(alias))
	default:
		c.fault(at, "this host has no model %s; it has %s", module.Quote(alias), orList(c.known.Models))
	}
}
