package manifest

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/prompt"
	"github.com/carrelhost/carrel/host/sandbox/module"
)

func (c *checker) services(ctx context.Context, o object) []abi.Service {
	list, ok := o.list("services", abi.MaxServices)
	if !ok || len(list) == 0 {
		return nil
	}
	out := make([]abi.Service, 0, len(list))
	seen := map[string]bool{}
	for i, v := range list {
		at := fmt.Sprintf("/services/%d", i)
		s := c.service(ctx, v, at)
		if s.Name != "" && seen[s.Name] {
			c.fault(at+"/name", "another service of this plugin is named %s; rename one", module.Quote(s.Name))
		}
		seen[s.Name] = true
		out = append(out, s)
	}
	return out
}

// service reads one service. It stops between methods, whose schemas take most
// of the time, when ctx ends; the caller asks ctx.
func (c *checker) service(ctx context.Context, v any, at string) abi.Service {
	s := abi.Service{Scope: abi.ScopeRequest, Methods: []abi.Method{}}
	o, ok := c.object(v, at, levelService)
	if !ok {
		return s
	}
	if s.Name, ok = o.requiredText("name", 0, "add the service's name, such as \"com.acme.MyChat\""); ok {
		if _, err := carrel.ParseServiceName(s.Name); err != nil {
			c.fault(at+"/name", "%s, not %s", messageOf(err), module.Quote(s.Name))
		}
	}
	s.Description, _ = o.text("description", abi.MaxDescriptionBytes)
	if scope, ok := o.text("scope", 0); ok {
		s.Scope = scope
		c.scope(scope, at+"/scope")
	}
	system := c.template(o, "systemMessage")
	s.SystemMessage = system.text
	list, ok := o.list("methods", abi.MaxMethods)
	if !ok {
		return s
	}
	seen := map[string]bool{}
	for i, v := range list {
		if ctx.Err() != nil {
			return s
		}
		at := fmt.Sprintf("%s/methods/%d", at, i)
		m := c.method(v, at, system)
		if m.Name != "" && seen[m.Name] {
			c.fault(at+"/name", "another method of this service is named %s; rename one", module.Quote(m.Name))
		}
		seen[m.Name] = true
		s.Methods = append(s.Methods, m)
	}
	return s
}

func (c *checker) scope(scope, at string) {
	all := []string{abi.ScopeRequest, abi.ScopeSession, abi.ScopeApplication}
	lower := strings.ToLower(strings.TrimSpace(scope))
	switch {
	case slices.Contains(all, scope):
	case slices.Contains(all, lower):
		c.fault(at, "there is no scope %s; did you mean %q?", module.Quote(scope), lower)
	default:
		c.fault(at, "there is no scope %s; it is one of \"request\", \"session\" and \"application\"", module.Quote(scope))
	}
}

// template is a template of a manifest with the place where it stands.
type template struct {
	at    string
	text  string
	names []string
}

// template reads an optional template. A faulty one is returned empty.
func (c *checker) template(o object, member string) template {
	at := Pointer(o.at, member)
	text, ok := o.text(member, abi.MaxTemplateBytes)
	if !ok {
		return template{}
	}
	t, err := prompt.Parse(text)
	if err != nil {
		c.fault(at, "the template is wrong at %v", err)
		return template{}
	}
	return template{at, text, t.Names()}
}
