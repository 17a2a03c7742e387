package pack

import (
	"fmt"
	"slices"
	"strings"

	"github.com/carrelhost/carrel/host/sandbox/module"
	"github.com/carrelhost/carrel/plugins/manifest"
)

// section is the text of one service or method.
type section struct {
	owner *tree
	at    string // of its systemMessage
	name  string
	line  int // of its heading
	lines []string
}

// text gives the Markdown text to the services as their system messages.
func (p *packer) text(root *tree, body string, firstLine int) {
	if strings.TrimSpace(body) == "" {
		return
	}
	services := root.trees("services")
	owners := map[string]section{}
	for i, s := range services {
		if s == nil {
			continue
		}
		at := fmt.Sprintf("/services/%d", i)
		methods := s.trees("methods")
		if !s.has("methods") {
			// The method that every service gets, made early to hold its text.
			methods = []*tree{newTree("name", "chat")}
			s.set("methods", []any{methods[0]})
		}
		for j, m := range methods {
			if m == nil {
				continue
			}
			name := s.text("name") + "." + m.text("name")
			owners[name] = section{owner: m, at: fmt.Sprintf("%s/methods/%d/systemMessage", at, j), name: name}
		}
	}
	// A service's own name wins over that of another's method.
	for i, s := range services {
		if s != nil {
			name := s.text("name")
			owners[name] = section{owner: s, at: fmt.Sprintf("/services/%d/systemMessage", i), name: name}
		}
	}
	var only *section // whose text needs no heading
	if len(services) == 1 && services[0] != nil {
		only = &section{owner: services[0], at: "/services/0/systemMessage", name: services[0].text("name"), line: firstLine}
	}
	for _, s := range p.sections(body, firstLine, owners, only) {
		p.assign(s)
	}
}

// sections cuts the text at the headings that name an owner. What stands
// before the first is only's, if that is not nil.
func (p *packer) sections(body string, firstLine int, owners map[string]section, only *section) []section {
	var out []section
	current := only
	seen := map[string]int{}
	compared := 0
	fence := ""
	stray := false
	for i, l := range strings.Split(body, "\n") {
		line := firstLine + i
		fence = fenceAfter(fence, l)
		if name, ok := strings.CutPrefix(l, "# "); ok && fence == "" {
			name = strings.TrimSpace(name)
			owner, ok := owners[name]
			meant := ""
			if compared++; !ok && compared <= manifest.MaxFaults { // comparing is not cheap
				meant = nearest(name, owners)
			}
			if meant != "" {
				p.fault("", line, "there is no service or method %s; did you mean %s? (a heading that is no name has a space or no dot)", module.Quote(name), module.Quote(meant))
				current = &section{} // of which nothing becomes
				continue
			}
			if ok {
				if owner.owner == onlyOwner(only) && !blank(only.lines) {
					seen[owner.name] = only.line
				}
				if first := seen[owner.name]; first > 0 {
					p.fault(owner.at, line, "the text of %s began already in line %d; join the two", module.Quote(owner.name), first)
					current = &section{} // of which nothing becomes
					continue
				}
				seen[owner.name] = line
				owner.line = line
				out = append(out, owner)
				current = &out[len(out)-1]
				continue
			}
		}
		switch {
		case current != nil:
			current.lines = append(current.lines, l)
		case strings.TrimSpace(l) != "" && !stray:
			stray = true
			p.fault("", line, "this text belongs to no service; put a heading such as \"# com.acme.MyChat\" with a service's name before it")
		}
	}
	if only != nil && (!blank(only.lines) || len(out) == 0) {
		out = append([]section{*only}, out...)
	}
	return out
}

func onlyOwner(only *section) *tree {
	if only == nil {
		return nil
	}
	return only.owner
}

func blank(lines []string) bool {
	return !slices.ContainsFunc(lines, func(l string) bool { return strings.TrimSpace(l) != "" })
}

// fenceAfter follows code fences: it returns the fence that is open after a
// line, or "". A heading inside of one is code.
func fenceAfter(open, line string) string {
	trimmed := strings.TrimLeft(line, " ")
	if len(line)-len(trimmed) > 3 || trimmed == "" {
		return open
	}
	mark := trimmed[:len(trimmed)-len(strings.TrimLeft(trimmed, trimmed[:1]))]
	isFence := len(mark) >= 3 && (mark[0] == '`' || mark[0] == '~')
	switch rest := strings.TrimSpace(trimmed[len(mark):]); {
	case !isFence:
		return open
	case open == "":
		if mark[0] == '`' && strings.Contains(rest, "`") {
			return "" // code inside of a line
		}
		return mark
	case mark[0] == open[0] && len(mark) >= len(open) && rest == "":
		return ""
	default:
		return open
	}
}

func (p *packer) assign(s section) {
	text := strings.TrimSpace(strings.Join(s.lines, "\n"))
	switch {
	case s.owner.has("systemMessage"):
		p.fault(s.at, s.line, "%s has a system message in the front matter and in the text; keep one", module.Quote(s.name))
	case text == "":
		p.fault(s.at, s.line, "there is no text under the heading of %s; write its system message or remove the heading", module.Quote(s.name))
	default:
		s.owner.set("systemMessage", text)
		p.lines[s.at] = s.line
	}
}
