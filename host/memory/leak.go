package memory

import (
	"fmt"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
)

// Leak is a method whose default ids would each start a history that nothing
// ever closes.
type Leak struct{ Service, Method int } // indices in the manifest

// Leaks returns the methods of application-scoped services whose memory id is
// not a required param, unless the plugin has a default id provider that is
// asked before the built-in ones, or asks for the leak. A handler has no
// memory id and touches no history by being called, so it never leaks.
func Leaks(m abi.Manifest) []Leak {
	if m.AllowDefaultIDLeak || m.DefaultMemoryID != nil && m.DefaultMemoryID.Priority < 0 {
		return nil
	}
	var out []Leak
	for i, s := range m.Services {
		if s.Scope != abi.ScopeApplication {
			continue
		}
		for j, method := range s.Methods {
			if method.Kind != abi.KindHandler && (method.MemoryID == "" || !method.MemoryIDRequired) {
				out = append(out, Leak{i, j})
			}
		}
	}
	return out
}

// LeakRemedy says how a plugin's author mends a leak.
const LeakRemedy = `name a param in "memoryId" and list it in params.required, ` +
	`or declare a provider, "defaultMemoryId": {"from": "header:X-Conversation"} or {"from": "subject"}, with a priority below 0, ` +
	`or give the service the scope "request", ` +
	`or accept the leak with "allowDefaultIdLeak": true`

// leak is the refusal of a call for which the plugin's provider yields
// nothing: it comes before any work.
func leak(t Target) error {
	return carrel.Fail("memory.Resolve", abi.DefaultIDLeak, fmt.Sprintf(
		"%s.%s is application-scoped and this call names no memory id: its history could never be named again and never end. "+
			"Send what the plugin's default memory id comes from (%s); the plugin's author can also %s",
		t.Service, t.Method, providerName(t.Provider), LeakRemedy))
}

func providerName(p *abi.DefaultMemoryID) string {
	if p == nil {
		return "it declares nothing"
	}
	if p.Export != "" {
		return "its function " + p.Export
	}
	return p.From
}
