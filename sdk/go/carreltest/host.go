// Package carreltest runs the handlers of a plugin natively against a
// simulated host: scripted models and other methods, chat memory in memory,
// logs to look at. Nothing is compiled to WebAssembly, so a test takes as long
// as the handler does.
//
// The simulation refuses what a host refuses as far as a plugin's own code can
// tell: params and outputs that do not match their schemas, capabilities that
// the manifest does not name, turns that are not whole. What hosts do not have
// yet, such as Emit, fails as it does there. Limits of time, memory and fuel, scopes that end and templates of chat methods are not simulated.
package carreltest

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	carrel "github.com/carrelhost/carrel/sdk/go"

	"github.com/carrelhost/carrel/abi"
)

// Method answers calls of one method in place of the real one: output is the
// method's, encoded as JSON. An error of type *carrel.Refusal is what the
// caller sees; any other is a failure of the called method.
type Method func(args json.RawMessage) (output any, err error)

// Model answers model calls. An error is handled as Method's are.
type Model func(p carrel.Prompt) (carrel.Answer, error)

// Host simulates a host of one plugin. Its fields may be set between calls.
// Chat memory, logs and the rest stay from call to call; variables of the
// plugin do, too, which is not so on a real host. A Host is not safe for
// concurrent use.
type Host struct {
	Info     carrel.Info       // what Context.Info answers, service and method apart
	Config   any               // what Context.Config decodes
	Deadline time.Time         // of calls; zero = a minute from now
	Model    Model             // nil refuses
	Methods  map[string]Method // by address; the plugin's own handlers run if they are not here

	Logs    []Line          // what was logged
	Asked   []Asked         // every operation that the plugin asked for, in order
	memory  memory          // chat memory
	random  *rand.ChaCha8   // the same in every test
	plugin  carrel.Plugin   // under test
	methods []method        // as the manifest declares them
	allowed []string        // capabilities.call
	models  map[string]bool // aliases that the manifest names
	ids     *abi.DefaultMemoryID
	warmup  *abi.Warmup
}

// method is a method of the plugin under test.
type method struct {
	abi.Method
	service string
}

func (m method) address() string { return m.service + "." + m.Name }

// Line is a line of the log.
type Line struct {
	Level int // 0 debug, 1 info, 2 warning, 3 error
	Text  string
}

// Asked is an operation that was asked for.
type Asked struct {
	Op      abi.Op
	Request json.RawMessage
}

// New returns a host for a plugin. Its error is that of Plugin.Manifest, or
// that the params of the warm-up do not match the handler's schema.
func New(p carrel.Plugin) (*Host, error) {
	raw, err := p.Manifest()
	if err != nil {
		return nil, err
	}
	var m abi.Manifest
	if err := json.Unmarshal(raw, &m); err != nil {
		return nil, fmt.Errorf("decode the manifest: %w", err)
	}
	h := &Host{
		Info: carrel.Info{
			Tenant: "test", Plugin: p.Name, Version: "version-1", RequestID: "req-1", InvocationID: "inv-1",
		},
		Methods: map[string]Method{},
		plugin:  p, allowed: m.Capabilities.Call, ids: m.DefaultMemoryID, warmup: m.Warmup,
		random: rand.NewChaCha8([32]byte{}),
		memory: newMemory(),
		models: map[string]bool{},
	}
	for _, alias := range m.Capabilities.Models {
		h.models[alias] = true
	}
	for _, s := range m.Services {
		for _, declared := range s.Methods {
			h.methods = append(h.methods, method{declared, s.Name})
			if declared.Kind == abi.KindChat {
				h.models[alias(declared.Model)] = true
			}
		}
	}
	if w := h.warmup; w != nil {
		called, err := h.handler(w.Method)
		if err == nil {
			err = check(called.Params, w.Params)
		}
		if err != nil {
			return nil, fmt.Errorf("the params of the warm-up do not match the schema of %s: %w", w.Method, err)
		}
	}
	return h, nil
}

func alias(model string) string {
	if model == "" {
		return "default"
	}
	return model
}

// Answers returns a method that answers calls with the outputs in order, and
// refuses once they are used up.
func Answers(outputs ...any) Method {
	return func(json.RawMessage) (any, error) {
		if len(outputs) == 0 {
			return nil, &carrel.Refusal{Op: string(abi.OpInvoke), Errno: abi.EIO, Message: "the scripted answers are used up"}
		}
		next := outputs[0]
		outputs = outputs[1:]
		return next, nil
	}
}

// Texts returns a model that answers with the texts in order, and refuses once
// they are used up.
func Texts(texts ...string) Model {
	return func(p carrel.Prompt) (carrel.Answer, error) {
		if len(texts) == 0 {
			return carrel.Answer{}, &carrel.Refusal{
				Op: string(abi.OpModelGenerate), Errno: abi.EIO, Code: abi.ModelFailed.String(), Message: "the scripted answers are used up",
			}
		}
		next := texts[0]
		texts = texts[1:]
		return carrel.Answer{Text: next, FinishReason: "stop", Model: alias(p.Model)}, nil
	}
}

// Call calls a handler, named Service.method, or by its method's name alone if
// no other service has one of that name. params is the params object, a value
// that carrel.EncodeParams encodes to it, a json.RawMessage with it, or nil for
// {}. The result is the output: text, or JSON.
//
// A failure of the handler is a *carrel.Error, as the caller would see it.
// Other errors say that the call would not reach the handler, or that a host
// would refuse its output.
func (h *Host) Call(name string, params any) ([]byte, error) {
	m, err := h.handler(name)
	if err != nil {
		return nil, err
	}
	return h.run(m, params, 0)
}

// Call calls a handler as Host.Call does and decodes its output; Out is string
// for text.
func Call[Out any](h *Host, name string, params any) (Out, error) {
	var out Out
	m, err := h.handler(name)
	if err != nil {
		return out, err
	}
	b, err := h.run(m, params, 0)
	if err != nil {
		return out, err
	}
	if isText(m) {
		if b, err = json.Marshal(string(b)); err != nil {
			return out, err
		}
	}
	if err := json.Unmarshal(b, &out); err != nil {
		return out, fmt.Errorf("decode the output of %s: %w", name, err)
	}
	return out, nil
}

// DefaultMemoryID runs the plugin's own provider of default memory ids.
func (h *Host) DefaultMemoryID() (string, error) {
	if h.ids == nil || h.ids.Export == "" {
		return "", fmt.Errorf("the plugin %s has no provider of default memory ids that is code", h.plugin.Name)
	}
	c := &call{host: h, input: []byte("{}")}
	if err := c.run(h.ids.Export); err != nil {
		return "", err
	}
	return string(c.output), nil
}

// Warmup runs the plugin's warm-up as a host does at upload: whatever it asks
// of the host answers ENOSYS, and its output is dropped. Its error is why a
// host would leave the warm-up out. Unlike a host's, what it leaves in
// variables is there in later calls only because theirs is.
func (h *Host) Warmup() error {
	if h.warmup == nil {
		return fmt.Errorf("the plugin %s declares no warm-up", h.plugin.Name)
	}
	m, err := h.handler(h.warmup.Method)
	if err != nil {
		return err
	}
	c := &call{host: h, input: h.warmup.Params, service: m.service, method: m.Name, alone: true}
	if err := c.run(m.Export); err != nil {
		return fmt.Errorf("the warm-up fails, and a host would leave it out: %w", err)
	}
	return nil
}

// run calls a handler with params that it checks, and checks the output.
func (h *Host) run(m method, params any, depth int) ([]byte, error) {
	if params == nil {
		params = struct{}{}
	}
	input, err := carrel.EncodeParams(params)
	if err != nil {
		return nil, fmt.Errorf("encode the params: %w", err)
	}
	if err := check(m.Params, input); err != nil {
		return nil, fmt.Errorf("the params of %s do not match its schema: %w", m.Name, err)
	}
	c := &call{host: h, input: input, depth: depth, service: m.service, method: m.Name}
	if err := c.run(m.Export); err != nil {
		return nil, err
	}
	if !isText(m) {
		if err := check(m.Output, c.output); err != nil {
			return nil, fmt.Errorf("the output of %s does not match its schema: %w", m.Name, err)
		}
	}
	return c.output, nil
}

func isText(m method) bool { return string(m.Output) == `{"type":"string"}` }

// find returns a method by Service.method.
func (h *Host) find(address string) (method, bool) {
	for _, m := range h.methods {
		if m.address() == address {
			return m, true
		}
	}
	return method{}, false
}

func (h *Host) handler(name string) (method, error) {
	m, ok := h.find(name)
	if !ok {
		var found []string
		for _, candidate := range h.methods {
			if candidate.Name == name {
				m, found = candidate, append(found, candidate.address())
			}
		}
		switch len(found) {
		case 0:
			return m, fmt.Errorf("the plugin %s has no method %q", h.plugin.Name, name)
		case 1:
		default:
			return m, fmt.Errorf("several services have a method %q; name one of %s", name, strings.Join(found, ", "))
		}
	}
	if m.Kind != abi.KindHandler {
		return m, fmt.Errorf("%s is a chat method: it has no code that could be called here", name)
	}
	return m, nil
}
