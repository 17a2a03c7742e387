package plugins

import (
	"fmt"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/prompt"
	"github.com/carrelhost/carrel/host/schema"
	"github.com/carrelhost/carrel/store"
)

// Loaded is a version made ready for invocations. It is read-only and shared.
type Loaded struct {
	Version  store.Version
	Manifest abi.Manifest
	methods  map[qualified]*Method
}

type qualified struct {
	service carrel.ServiceName
	method  carrel.MethodName
}

// Method is a service method made ready for invocations.
type Method struct {
	Service carrel.ServiceName
	Scope   carrel.Scope
	Spec    abi.Method
	Params  *schema.Schema
	System  *prompt.Template // nil: none declared, by method or service
	User    *prompt.Template // nil: the user message is the param Spec.UserParam
}

// Running is a version at the start of an invocation, with the application
// scope that is open then.
type Running struct {
	*Loaded
	Application store.ScopeInstance
}

// Method returns a method by its names.
func (l *Loaded) Method(s carrel.ServiceName, m carrel.MethodName) (*Method, bool) {
	found, ok := l.methods[qualified{s, m}]
	return found, ok
}

// load makes a stored version ready. What is stored was checked at admission,
// so an error is a fault of the host or its storage.
func load(v store.Version) (*Loaded, error) {
	manifest, err := ParseManifest(v.Manifest, Known{})
	if err != nil {
		return nil, fmt.Errorf("stored manifest of %s version %d: %v", v.Plugin, v.N, err) //nolint:errorlint // its code would be shown as the caller's fault
	}
	l := &Loaded{Version: v, Manifest: manifest, methods: map[qualified]*Method{}}
	for _, s := range manifest.Services {
		for _, spec := range s.Methods {
			m, err := loadMethod(s, spec)
			if err != nil {
				return nil, fmt.Errorf("stored manifest of %s version %d: %s.%s: %v", v.Plugin, v.N, s.Name, spec.Name, err) //nolint:errorlint // as above
			}
			l.methods[qualified{m.Service, carrel.MethodName(spec.Name)}] = m
		}
	}
	return l, nil
}

func loadMethod(s abi.Service, spec abi.Method) (*Method, error) {
	m := &Method{Service: carrel.ServiceName(s.Name), Scope: carrel.Scope(s.Scope), Spec: spec}
	var err error
	if m.Params, err = schema.Compile(spec.Params); err != nil {
		return nil, err
	}
	system := spec.SystemMessage
	if system == "" {
		system = s.SystemMessage
	}
	if m.System, err = optionalTemplate(system); err != nil {
		return nil, err
	}
	m.User, err = optionalTemplate(spec.UserMessage)
	return m, err
}

func optionalTemplate(text string) (*prompt.Template, error) {
	if text == "" {
		return nil, nil //nolint:nilnil // no template is a valid state of a method
	}
	return prompt.Parse(text)
}
