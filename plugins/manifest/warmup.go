package manifest

import (
	"fmt"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox/module"
	"github.com/carrelhost/carrel/internal/spelling"
)

// warmup reads the call that is made at admission. Without one it returns nil.
func (c *checker) warmup(o object, services []abi.Service) *abi.Warmup {
	v, ok := o.members["warmup"]
	if !ok {
		return nil
	}
	const at = "/warmup"
	wo, ok := c.object(v, at, levelWarmup)
	if !ok {
		return nil
	}
	w := &abi.Warmup{Params: []byte("{}")}
	var params any = map[string]any{}
	if v, has := wo.members["params"]; has {
		params, w.Params = v, c.layout.compact(at+"/params")
	}
	if len(w.Params) > abi.MaxWarmupBytes {
		c.fault(at+"/params", "the params are %d bytes long, at most %d are allowed (limit warmupBytes); a warm-up needs a typical call, not a large one",
			len(w.Params), abi.MaxWarmupBytes)
		return w
	}
	if w.Method, ok = wo.requiredText("method", 0, "add the handler that is called, such as \"com.acme.Support.triage\""); !ok {
		return w
	}
	m, ok := FindMethod(services, w.Method)
	switch {
	case !ok:
		c.fault(at+"/method", "%s", noMethod(services, w.Method))
	case m.Kind != abi.KindHandler:
		c.fault(at+"/method", "%s is a chat method, which has no code that could be warmed up; name a handler, or remove `warmup`", module.Quote(w.Method))
	default:
		c.warmupParams(at+"/params", m, params, len(w.Params))
	}
	return w
}

// warmupParams checks the params as those of a call are checked.
func (c *checker) warmupParams(at string, m abi.Method, params any, size int) {
	schema, known := c.schemas[string(m.Params)]
	if !known {
		return // what is wrong with it is reported already
	}
	if err := schema.Validate(params, size); err != nil {
		c.schemaFaults(at, err)
	}
}

// FindMethod finds a method by Service.method, as Warmup.Method names it. One
// whose service or itself has no name is not found.
func FindMethod(services []abi.Service, name string) (abi.Method, bool) {
	for _, s := range services {
		for _, m := range s.Methods {
			if s.Name != "" && m.Name != "" && s.Name+"."+m.Name == name {
				return m, true
			}
		}
	}
	return abi.Method{}, false
}

// noMethod says that there is no handler of a name, and which is meant.
func noMethod(services []abi.Service, name string) string {
	var handlers []string
	for _, s := range services {
		for _, m := range s.Methods {
			full := s.Name + "." + m.Name
			switch {
			case m.Kind != abi.KindHandler || s.Name == "" || m.Name == "":
			case m.Name == name:
				return fmt.Sprintf("a method is named with its service; did you mean %s?", module.Quote(full))
			default:
				handlers = append(handlers, full)
			}
		}
	}
	if best := spelling.Nearest(name, handlers); best != "" {
		return fmt.Sprintf("there is no method %s; did you mean %s?", module.Quote(name), module.Quote(best))
	}
	if len(handlers) == 0 {
		return fmt.Sprintf("there is no method %s, and no handler that could be warmed up; remove `warmup`", module.Quote(name))
	}
	return fmt.Sprintf("there is no method %s; a handler of this plugin is meant, as Service.method: %s", module.Quote(name), orList(handlers))
}
