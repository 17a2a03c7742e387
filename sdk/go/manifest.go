package carrel

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"github.com/carrelhost/carrel/abi"
)

// The manifest as it is written: what is not declared is left to the host's
// defaults, so members that do not belong to a method's kind are absent.
type (
	manifestJSON struct {
		ABI                string               `json:"abi"`
		Name               string               `json:"name"`
		Version            string               `json:"version"`
		Description        string               `json:"description,omitempty"`
		Services           []serviceJSON        `json:"services,omitempty"`
		DefaultMemoryID    *abi.DefaultMemoryID `json:"defaultMemoryId,omitempty"`
		AllowDefaultIDLeak bool                 `json:"allowDefaultIdLeak,omitempty"`
		MemoryNamespace    string               `json:"memoryNamespace,omitempty"`
		Capabilities       abi.Capabilities     `json:"capabilities"`
		Limits             *abi.PluginLimits    `json:"limits,omitempty"`
		Warmup             *abi.Warmup          `json:"warmup,omitempty"`
	}
	serviceJSON struct {
		Name          string       `json:"name"`
		Description   string       `json:"description,omitempty"`
		Scope         Scope        `json:"scope,omitempty"`
		SystemMessage string       `json:"systemMessage,omitempty"`
		Methods       []methodJSON `json:"methods"`
	}
	methodJSON struct {
		Name          string          `json:"name"`
		Kind          string          `json:"kind"`
		Export        string          `json:"export,omitempty"`
		Description   string          `json:"description,omitempty"`
		Params        json.RawMessage `json:"params"`
		Output        json.RawMessage `json:"output"`
		SystemMessage string          `json:"systemMessage,omitempty"`
		UserMessage   string          `json:"userMessage,omitempty"`
		MemoryID      string          `json:"memoryId,omitempty"`
		Model         string          `json:"model,omitempty"`
		Generation
		Window *abi.Window `json:"window,omitempty"`
		Retain string      `json:"retain,omitempty"`
		Seed   []Example   `json:"seed,omitempty"`
	}
)

// textPayload is the output of methods that return text.
var textPayload = payload{text: true, schema: func() (json.RawMessage, error) {
	return json.RawMessage(`{"type":"string"}`), nil
}}

// defaultUserParam is the param that holds the user's message where a chat
// method says nothing else.
const defaultUserParam = "msg"

func chatParams(c ChatMethod) payload {
	return payload{schema: func() (json.RawMessage, error) {
		if c.Params != nil {
			return schemaOf(reflect.TypeOf(c.Params), forParams)
		}
		s := schema{Type: "object"}
		for _, name := range []string{c.MemoryID, defaultUserParam} {
			if name != "" {
				s.Properties = append(s.Properties, property{name, &schema{Type: "string"}})
				s.Required = append(s.Required, name)
			}
		}
		return encode(s)
	}}
}

// Manifest returns the manifest's JSON. Its error joins the faults that only
// the Go source can show; the host checks names, templates and bounds, too.
func (p Plugin) Manifest() ([]byte, error) {
	var errs []error
	m := manifestJSON{
		ABI: abi.Version, Name: p.Name, Version: p.Version, Description: p.Description,
		AllowDefaultIDLeak: p.AllowDefaultIDLeak, MemoryNamespace: p.MemoryNamespace, Capabilities: p.Capabilities,
	}
	if p.Name == "" || p.Version == "" {
		errs = append(errs, errors.New("plugin: Name and Version are needed"))
	}
	if p.Limits != (Limits{}) {
		m.Limits = &p.Limits
	}
	if d := p.DefaultMemoryID; d != nil {
		var err error
		if m.DefaultMemoryID, err = d.declared(); err != nil {
			errs = append(errs, err)
		}
	}
	if p.Warmup != nil {
		var err error
		if m.Warmup, err = p.warmup(); err != nil {
			errs = append(errs, fmt.Errorf("plugin: Warmup: %w", err))
		}
	}
	services := map[string]bool{}
	for i, s := range p.Services {
		sj := serviceJSON{s.Name, s.Description, s.Scope, s.SystemMessage, []methodJSON{}}
		if services[s.Name] {
			errs = append(errs, fmt.Errorf("service %q: there are two of that name", s.Name))
		}
		services[s.Name] = true
		methods := map[string]bool{}
		for _, method := range s.Methods {
			mj, err := method.declared(i)
			if err == nil && methods[method.name] {
				err = errors.New("there are two of that name")
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("service %q, method %q: %w", s.Name, method.name, err))
			}
			methods[method.name] = true
			sj.Methods = append(sj.Methods, mj)
		}
		m.Services = append(m.Services, sj)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return encode(m)
}

// warmup returns what the manifest says of the warm-up.
func (p Plugin) warmup() (*abi.Warmup, error) {
	method, ok := p.handler(p.Warmup.Method)
	if !ok {
		return nil, fmt.Errorf("the plugin has no handler %q; name one as Service.method", p.Warmup.Method)
	}
	out := &abi.Warmup{Method: p.Warmup.Method, Params: json.RawMessage("{}")}
	if p.Warmup.Params == nil {
		return out, nil
	}
	if got := reflect.TypeOf(p.Warmup.Params); got != method.params.of {
		return nil, fmt.Errorf("its params are of type %v, and the handler %s takes %v", got, p.Warmup.Method, method.params.of)
	}
	var err error
	if out.Params, err = encode(p.Warmup.Params); err != nil {
		return nil, fmt.Errorf("encode Params: %w", err)
	}
	return out, nil
}

// handler finds a handler by Service.method.
func (p Plugin) handler(name string) (Method, bool) {
	for _, s := range p.Services {
		for _, m := range s.Methods {
			if m.chat == nil && s.Name+"."+m.name == name {
				return m, true
			}
		}
	}
	return Method{}, false
}

func (d DefaultMemoryID) declared() (*abi.DefaultMemoryID, error) {
	out := &abi.DefaultMemoryID{From: d.From, Priority: d.Priority}
	if d.Priority == 0 {
		out.Priority = abi.DefaultProviderPriority
	}
	if d.Func != nil {
		out.Export = defaultIDExport
	}
	if (d.Func != nil) == (d.From != "") {
		return nil, errors.New("plugin: DefaultMemoryID needs Func or From, and not both")
	}
	return out, nil
}

// declared returns what the manifest says of a method of the service with that
// index.
func (m Method) declared(service int) (methodJSON, error) {
	mj := methodJSON{Name: m.name, Description: m.description, Kind: abi.KindHandler}
	if !isIdentifier(m.name) {
		return mj, errors.New("a method's name is a letter or underscore, then up to 62 letters, digits or underscores")
	}
	var windowErr error
	switch c := m.chat; {
	case c != nil:
		mj.Kind, mj.SystemMessage, mj.UserMessage, mj.MemoryID = abi.KindChat, c.SystemMessage, c.UserMessage, c.MemoryID
		mj.Model, mj.Generation = c.Model, c.Generation
		mj.Window, windowErr = c.window()
		mj.Seed = c.Seed
		if c.RetainWindow {
			mj.Retain = abi.RetainWindow
		}
	case m.handle == nil:
		return mj, errors.New("the handler has no function; make methods with Chat or Handler")
	default:
		mj.Export = exportName(service, m)
	}
	var paramsErr, outputErr error
	if mj.Params, paramsErr = m.params.schema(); paramsErr != nil {
		paramsErr = fmt.Errorf("params: %w", paramsErr)
	} else if !isObject(mj.Params) {
		paramsErr = errors.New("params: they are one JSON object; use a struct type")
	}
	if mj.Output, outputErr = m.output.schema(); outputErr != nil {
		outputErr = fmt.Errorf("output: %w", outputErr)
	}
	return mj, errors.Join(windowErr, paramsErr, outputErr)
}

func (c ChatMethod) window() (*abi.Window, error) {
	switch {
	case c.WindowMessages != 0 && c.WindowTokens != 0:
		return nil, errors.New("a window counts messages or tokens; set WindowMessages or WindowTokens, and not both")
	case c.WindowTokens != 0:
		return &abi.Window{Type: abi.WindowTokens, Max: c.WindowTokens}, nil
	case c.WindowMessages != 0:
		return &abi.Window{Type: abi.WindowMessages, Max: c.WindowMessages}, nil
	default:
		return nil, nil //nolint:nilnil // the host's default
	}
}

// isObject reports whether a schema is one of objects.
func isObject(raw json.RawMessage) bool {
	var s struct {
		Type any `json:"type"`
	}
	return json.Unmarshal(raw, &s) == nil && s.Type == "object"
}

// isIdentifier reports whether a name can be a method's. It becomes part of an
// export, so the SDK cannot leave it to the host.
func isIdentifier(s string) bool {
	if s == "" || len(s) > abi.MaxNameBytes {
		return false
	}
	for i := range len(s) {
		c := s[i]
		letter := c|0x20 >= 'a' && c|0x20 <= 'z' || c == '_'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return true
}
