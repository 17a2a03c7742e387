package manifest

import (
	"encoding/json"
	"fmt"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox/module"
)

// memory reads what of a history a chat method sends and keeps, and what an
// empty one begins with.
func (c *checker) memory(o object, m *abi.Method) {
	m.Window = c.window(o)
	m.Retain = abi.RetainHistory
	if retain, ok := o.text("retain", 0); ok {
		m.Retain = retain
		if retain != abi.RetainHistory && retain != abi.RetainWindow {
			c.fault(o.at+"/retain", "there is no way to retain %s; use \"history\", which keeps all turns, "+
				"or \"window\", which deletes those that leave the window", module.Quote(retain))
		}
	}
	m.Seed = c.seed(o)
}

func (c *checker) window(o object) *abi.Window {
	w := &abi.Window{Type: abi.WindowMessages, Max: abi.DefaultWindowMessages}
	v, ok := o.members["window"]
	if !ok {
		return w
	}
	at := o.at + "/window"
	wo, ok := c.object(v, at, levelWindow)
	if !ok {
		return w
	}
	most := int64(abi.MaxWindowMessages)
	if kind, ok := wo.text("type", 0); ok {
		switch kind {
		case abi.WindowMessages:
		case abi.WindowTokens:
			w.Type, most = kind, abi.MaxWindowTokens
			if _, has := wo.members["max"]; !has { // that of messages would be far too small
				c.fault(at+"/max", "a window of tokens has no default; add `max`, such as \"max\": 4000")
			}
		default:
			c.fault(at+"/type", "there is no window of type %s; use \"messages\" or \"tokens\"", module.Quote(kind))
			return w // its max counts something else
		}
	}
	if n, ok := wo.integer("max", 1, most); ok {
		w.Max = int(n)
	}
	return w
}

// seed reads the example turns, nil if there are none.
func (c *checker) seed(o object) []abi.Example {
	at := o.at + "/seed"
	if _, number := o.members["seed"].(json.Number); number {
		c.fault(at, "`seed` holds example turns, [{\"user\": …, \"assistant\": …}]; the seed of the model's random choices is `randomSeed`")
		return nil
	}
	list, ok := o.list("seed", abi.MaxSeedTurns)
	if !ok {
		return nil
	}
	var out []abi.Example
	size := 0
	for i, v := range list {
		e := c.example(v, fmt.Sprintf("%s/%d", at, i))
		size += len(e.User) + len(e.Assistant)
		out = append(out, e)
	}
	if size > abi.MaxSeedBytes {
		c.fault(at, "the example turns are %d bytes long, at most %d are allowed for all of them; shorten or remove some",
			size, abi.MaxSeedBytes)
	}
	return out
}

func (c *checker) example(v any, at string) abi.Example {
	var e abi.Example
	o, ok := c.object(v, at, levelExample)
	if !ok {
		return e
	}
	for _, text := range []struct {
		name, remedy string
		into         *string
	}{
		{"user", "add what the user says", &e.User},
		{"assistant", "add what the assistant answers", &e.Assistant},
	} {
		if *text.into, ok = o.requiredText(text.name, 0, text.remedy); ok && *text.into == "" {
			c.fault(Pointer(at, text.name), "the text is empty; write one, or remove the example")
		}
	}
	return e
}
