package manifest

import (
	"fmt"
	"math"
	"slices"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox/module"
)

const defaultModel = "default"

// method reads a method of a service; system is the service's template, which
// a chat method without its own uses.
func (c *checker) method(v any, at string, system template) abi.Method {
	m := abi.Method{Kind: abi.KindChat, Params: []byte(`{"type":"object"}`), Output: []byte(textOutput)}
	o, ok := c.object(v, at, levelOfMethod(v))
	if !ok {
		return m
	}
	if m.Name, ok = o.requiredText("name", 0, "add the method's name, such as \"chat\""); ok {
		if _, err := carrel.ParseMethodName(m.Name); err != nil {
			c.fault(at+"/name", "%s, not %s", messageOf(err), module.Quote(m.Name))
		}
	}
	m.Kind = c.kind(o)
	m.Description, _ = o.text("description", abi.MaxDescriptionBytes)
	p := c.params(o, &m)
	if m.Kind == abi.KindHandler {
		c.handler(o, &m)
	} else {
		c.chat(o, &m, p, system)
	}
	return m
}

// kind reads a method's kind. If it is missing or wrong, it returns the one
// that the method's other members are most likely meant for.
func (c *checker) kind(o object) string {
	kind, ok := o.requiredText("kind", 0, "add \"kind\": \"chat\", or \"handler\" for code of your own")
	switch {
	case ok && (kind == abi.KindChat || kind == abi.KindHandler):
		return kind
	case ok:
		c.fault(o.at+"/kind", "there is no kind %s; use \"chat\" or \"handler\"", module.Quote(kind))
	}
	if _, has := o.members["export"]; has {
		return abi.KindHandler
	}
	return abi.KindChat
}

// chat reads what only a chat method has.
func (c *checker) chat(o object, m *abi.Method, p params, system template) {
	if v, has := o.members["output"]; has && !isTextOutput(v) {
		c.fault(o.at+"/output", "an output of a chat method other than {\"type\":\"string\"} is not supported by this host yet; remove `output`")
	}
	m.Model = defaultModel
	if model, ok := o.text("model", abi.MaxNameBytes); ok {
		m.Model = model
		c.modelAlias(model, o.at+"/model")
	} else if _, has := o.members["model"]; !has {
		c.modelAlias(defaultModel, o.at)
	}
	m.Generation = c.generation(o)
	c.memory(o, m)

	own := c.template(o, "systemMessage")
	m.SystemMessage = own.text
	if _, has := o.members["systemMessage"]; has {
		system = own
	}
	user := c.template(o, "userMessage")
	m.UserMessage = user.text
	c.wiring(o, m, p, system, user)
}

func (c *checker) generation(o object) abi.Generation {
	g := abi.Generation{
		Temperature: o.number("temperature", 0, 2),
		TopP:        o.number("topP", 0, 1),
	}
	if n, ok := o.integer("maxOutputTokens", 1, math.MaxInt32); ok {
		tokens := int(n)
		g.MaxOutputTokens = &tokens
	}
	if n, ok := o.integer("randomSeed", math.MinInt64, math.MaxInt64); ok {
		g.RandomSeed = &n
	}
	if effort, ok := o.text("reasoningEffort", abi.MaxNameBytes); ok {
		if effort == "" {
			c.fault(o.at+"/reasoningEffort", "the reasoning effort is empty; write one, such as \"low\", or remove it")
		}
		g.ReasoningEffort = effort
	}
	list, _ := o.list("stop", abi.MaxStopSequences)
	for i, v := range list {
		at := fmt.Sprintf("%s/stop/%d", o.at, i)
		stop, ok := c.asText(v, at, abi.MaxStopBytes)
		if ok && stop == "" {
			c.fault(at, "an empty stop sequence would stop every answer at once; remove it")
		}
		g.Stop = append(g.Stop, stop)
	}
	return g
}

// wiring checks that the memory id and the templates name params that are
// there, and derives UserParam and MemoryIDRequired.
func (c *checker) wiring(o object, m *abi.Method, p params, system, user template) {
	_, hasID := o.members["memoryId"]
	if id, ok := o.text("memoryId", 0); ok {
		m.MemoryID = id
		m.MemoryIDRequired = slices.Contains(p.required, id)
	}
	if !p.known {
		return // what is wrong with params is reported already
	}
	if m.MemoryID != "" || hasID {
		c.memoryID(o, m.MemoryID, p)
	}
	for _, t := range []template{system, user} {
		c.placeholders(t, o, p)
	}
	if v, has := o.members["userMessage"]; !has {
		m.UserParam = c.userParam(o, m.MemoryID, p)
	} else if v == "" {
		c.fault(o.at+"/userMessage", "the template is empty, so every call would fail; "+
			"remove it to use the single string param, or write one")
	}
}

func (c *checker) memoryID(o object, id string, p params) {
	at := o.at + "/memoryId"
	if _, isText := o.members["memoryId"].(string); !isText {
		return // reported already
	}
	switch kind, there := p.types[id]; {
	case !there:
		c.fault(at, "params has no property %s; add it to params.properties with {\"type\":\"string\"}", module.Quote(id))
	case kind != "string":
		c.fault(at, "the memory id's param %s must be of type string; write {\"type\":\"string\"} in params.properties", module.Quote(id))
	}
}

func (c *checker) placeholders(t template, o object, p params) {
	for _, name := range t.names {
		_, there := p.types[name]
		whose := ""
		if at := Pointer(o.at, "userMessage"); t.at != at && t.at != Pointer(o.at, "systemMessage") {
			whose = fmt.Sprintf(" of %s", o.at)
		}
		if !there {
			c.fault(t.at, "the template uses {{%s}}, but params%s has no such property; add it to params.properties, and to params.required unless a call without it may fail",
				name, whose)
		}
	}
}

// userParam finds the param that is the user message where no template is.
func (c *checker) userParam(o object, memoryID string, p params) string {
	var candidates []string
	for _, name := range p.names {
		if name != memoryID && p.types[name] == "string" {
			candidates = append(candidates, name)
		}
	}
	at := o.at + "/userMessage"
	switch {
	case len(candidates) == 0:
		c.fault(at, "there is no `userMessage` and no string param to take its place; "+
			"add one to params, such as \"msg\": {\"type\":\"string\"}, and to params.required")
	case len(candidates) > 1:
		c.fault(at, "there is no `userMessage` and several string params could take its place (%s); "+
			"add \"userMessage\": \"{{…}}\" with the one that is meant", orList(candidates))
	case !slices.Contains(p.required, candidates[0]):
		c.fault(o.at+"/params", "%s is the user message, so callers must send it; add it to params.required", module.Quote(candidates[0]))
	default:
		return candidates[0]
	}
	return ""
}
