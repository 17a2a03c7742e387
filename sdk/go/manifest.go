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
		Params        json.RawMessage `json:"params,omitempty"`
		Output        json.RawMessage `json:"output,omitempty"`
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
				s.Properties = append(s.Properties, property[*schema]{name, &schema{Type: "string"}})
				s.Required = append(s.Required, name)
			}
		}
		return encode(s)
	}}
}

// Fault is one thing that is wrong with a declaration.
type Fault struct {
	Pointer string `json:"pointer"` // JSON pointer into the manifest
	Message string `json:"message"` // names the place as the Go source does
}

// Manifest returns the manifest's JSON. Its error joins the faults that only
// the Go source can show; the host checks names, templates and bounds, too.
func (p Plugin) Manifest() ([]byte, error) {
	raw, faults, err := p.Declare()
	if err != nil {
		return nil, err
	}
	if len(faults) > 0 {
		return nil, joined(faults)
	}
	return raw, nil
}

func joined(faults []Fault) error {
	errs := make([]error, 0, len(faults))
	for _, f := range faults {
		errs = append(errs, errors.New(f.Message))
	}
	return errors.Join(errs...)
}

// Declare returns the manifest's JSON as far as it can be made, and the faults
// that only the Go source can show: what has one is left out, or as close to
// what was meant as a manifest can say. `carrel build` looks for a host's
// faults in the rest, so that all of them are told at once.
func (p Plugin) Declare() (raw []byte, faults []Fault, err error) {
	fault := func(at, format string, args ...any) {
		faults = append(faults, Fault{at, fmt.Sprintf(format, args...)})
	}
	m := manifestJSON{
		ABI: abi.Version, Name: p.Name, Version: p.Version, Description: p.Description,
		AllowDefaultIDLeak: p.AllowDefaultIDLeak, MemoryNamespace: p.MemoryNamespace, Capabilities: p.Capabilities,
	}
	if p.Name == "" {
		fault("/name", "plugin: Name is missing, such as \"nice-and-mean\"")
	}
	if p.Version == "" {
		fault("/version", "plugin: Version is missing, such as \"1.0.0\"")
	}
	if p.Limits != (Limits{}) {
		m.Limits = &p.Limits
	}
	if d := p.DefaultMemoryID; d != nil {
		if m.DefaultMemoryID, err = d.declared(); err != nil {
			fault("/defaultMemoryId", "%v", err)
		}
	}
	if p.Warmup != nil {
		if m.Warmup, err = p.warmup(); err != nil {
			fault("/warmup", "plugin: Warmup: %v", err)
		}
	}
	services := map[string]bool{}
	for i, s := range p.Services {
		sj := serviceJSON{s.Name, s.Description, s.Scope, s.SystemMessage, []methodJSON{}}
		at := fmt.Sprintf("/services/%d", i)
		if services[s.Name] {
			fault(at+"/name", "service %q: there are two of that name", s.Name)
		}
		services[s.Name] = true
		methods := map[string]bool{}
		for j, method := range s.Methods {
			in := func(member string, err error) {
				if err != nil {
					fault(fmt.Sprintf("%s/methods/%d%s", at, j, member), "service %q, method %q: %v", s.Name, method.name, err)
				}
			}
			if isIdentifier(method.name) && methods[method.name] {
				in("/name", errors.New("there are two of that name"))
			}
			methods[method.name] = true
			sj.Methods = append(sj.Methods, method.declared(i, in))
		}
		m.Services = append(m.Services, sj)
	}
	raw, err = encode(m)
	return raw, faults, err
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
	if out.Params, err = EncodeParams(p.Warmup.Params); err != nil {
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
	if (d.Func != nil) == (d.From != "") {
		return nil, errors.New("plugin: DefaultMemoryID needs Func or From, and not both")
	}
	out := &abi.DefaultMemoryID{From: d.From, Priority: d.Priority}
	if d.Priority == 0 {
		out.Priority = abi.DefaultProviderPriority
	}
	if d.Func != nil {
		out.Export = defaultIDExport
	}
	return out, nil
}

// declared returns what the manifest says of a method of the service with that
// index. fault takes what is wrong with a member of it; nil is no fault.
func (m Method) declared(service int, fault func(member string, err error)) methodJSON {
	mj := methodJSON{Name: m.name, Description: m.description, Kind: abi.KindHandler}
	if !isIdentifier(m.name) {
		fault("/name", errors.New("a method's name is a letter or underscore, then up to 62 letters, digits or underscores"))
	}
	var err error
	switch c := m.chat; {
	case c != nil:
		mj.Kind, mj.SystemMessage, mj.UserMessage, mj.MemoryID = abi.KindChat, c.SystemMessage, c.UserMessage, c.MemoryID
		mj.Model, mj.Generation = c.Model, c.Generation
		mj.Window, err = c.window()
		fault("/window", err)
		mj.Seed = c.Seed
		if c.RetainWindow {
			mj.Retain = abi.RetainWindow
		}
	case m.handle == nil:
		fault("/export", errors.New("the handler has no function; make methods with Chat or Handler"))
	default:
		mj.Export = exportName(service, m)
	}
	if m.params.schema == nil { // Method{}
		return mj
	}
	switch mj.Params, err = m.params.schema(); {
	case err != nil:
		fault("/params", fmt.Errorf("params: %w", err))
	case !isObject(mj.Params):
		fault("/params", errors.New("params: they are one JSON object; use a struct type"))
	}
	if mj.Output, err = m.output.schema(); err != nil {
		fault("/output", fmt.Errorf("output: %w", err))
	}
	return mj
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
