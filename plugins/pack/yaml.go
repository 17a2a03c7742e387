package pack

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox/module"
	"github.com/carrelhost/carrel/plugins/manifest"
)

// maxYAMLValues bounds what a source may become once its aliases are
// followed: nine lines of aliases could stand for a billion values.
const maxYAMLValues = 50000

// yaml reads the front matter. Of YAML only what JSON can say is accepted.
func (p *packer) yaml(text string) (*tree, error) {
	const empty = "the YAML must be a mapping with members such as `services`"
	if strings.TrimSpace(text) == "" {
		return nil, carrel.Fail(op, abi.InvalidManifest, empty)
	}
	var doc yaml.Node
	if err := yaml.Load([]byte(text), &doc, yaml.WithV4Defaults()); err != nil {
		msg := "the YAML cannot be read: " + unreadable(err)
		return nil, &carrel.Error{Op: op, Code: abi.InvalidManifest, Msg: msg, Faults: []carrel.Fault{{Message: msg}}}
	}
	node := &doc
	if node.Kind == yaml.DocumentNode && len(node.Content) == 1 {
		node = node.Content[0]
	}
	r := &yamlReader{p: p}
	root, ok := r.value(node, "", 0).(*tree)
	if err := p.err(); err != nil {
		return nil, err
	}
	if !ok {
		return nil, carrel.Fail(op, abi.InvalidManifest, empty)
	}
	return root, nil
}

// unreadable is what a reader of YAML found, without its inner parts.
func unreadable(err error) string {
	f, ok := errors.AsType[*yaml.LoadError](err)
	if !ok {
		return printable(err.Error())
	}
	return fmt.Sprintf("%s (line %d)", printable(f.Message), max(f.Mark.Line, 1))
}

// printable drops what could disturb a terminal from a library's message.
func printable(s string) string {
	const most = 500
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s)
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

type yamlReader struct {
	p      *packer
	values int
	full   bool // too many values: reported once
}

func (r *yamlReader) value(n *yaml.Node, at string, depth int) any {
	if r.values++; r.values > maxYAMLValues || depth > manifest.MaxDepth {
		if !r.full {
			r.full = true
			r.p.fault("", n.Line, "the YAML has too many values or levels (aliases count as what they stand for)")
		}
		return nil
	}
	if _, ok := r.p.lines[at]; !ok {
		r.p.lines[at] = n.Line
	}
	switch n.Kind {
	case yaml.AliasNode:
		return r.value(n.Alias, at, depth+1)
	case yaml.MappingNode:
		return r.mapping(n, at, depth)
	case yaml.SequenceNode:
		list := make([]any, 0, min(len(n.Content), maxYAMLValues))
		for i, c := range n.Content {
			list = append(list, r.value(c, manifest.Pointer(at, strconv.Itoa(i)), depth+1))
		}
		return list
	case yaml.ScalarNode:
		return r.scalar(n, at)
	default:
		return nil // an empty document
	}
}

func (r *yamlReader) mapping(n *yaml.Node, at string, depth int) any {
	t := newTree()
	for i := 0; i+1 < len(n.Content) && !r.full; i += 2 {
		key, v := n.Content[i], n.Content[i+1]
		name := key.Value
		switch {
		case key.Kind != yaml.ScalarNode || key.ShortTag() == "!!null":
			r.p.fault(at, key.Line, "a member's name must be a plain text")
		case key.ShortTag() == "!!merge":
			r.p.fault(at, key.Line, "merge keys (<<) are not supported; write the members out")
		case t.has(name):
			r.p.fault(manifest.Pointer(at, name), key.Line, "%s is there twice; remove one", module.Quote(name))
		default:
			r.p.lines[manifest.Pointer(at, name)] = key.Line
			t.set(name, r.value(v, manifest.Pointer(at, name), depth+1))
		}
	}
	return t
}

var jsonNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$`)

func (r *yamlReader) scalar(n *yaml.Node, at string) any {
	switch n.ShortTag() {
	case "!!str", "!!timestamp":
		return n.Value
	case "!!null":
		return nil
	case "!!bool":
		return strings.EqualFold(n.Value, "true")
	case "!!int", "!!float":
		if jsonNumber.MatchString(n.Value) {
			return json.Number(n.Value)
		}
		var i int64
		if err := n.Decode(&i); err == nil {
			return json.Number(strconv.FormatInt(i, 10))
		}
		r.p.fault(at, n.Line, "%s is not a number that JSON can hold; write it as decimal digits, or quote it", module.Quote(n.Value))
		return nil
	default:
		r.p.fault(at, n.Line, "the tag %s is not supported; remove it", module.Quote(n.Tag))
		return nil
	}
}

// cutFrontMatter parts a Markdown source. line is that of the body's first.
func cutFrontMatter(text string) (front, body string, line int, err error) {
	const fence = "---"
	lines := strings.Split(text, "\n")
	if strings.TrimRight(lines[0], " \t") != fence {
		return "", "", 0, carrel.Fail(op, abi.InvalidManifest, `a Markdown source begins with front matter: a line "---", YAML with at least `+
			"`services`"+`, and another line "---" (line 1)`)
	}
	for i := 1; i < len(lines); i++ {
		if strings.TrimRight(lines[i], " \t") == fence {
			// The empty first line keeps the YAML library's line numbers right.
			return "\n" + strings.Join(lines[1:i], "\n") + "\n", strings.Join(lines[i+1:], "\n"), i + 2, nil
		}
	}
	return "", "", 0, carrel.Fail(op, abi.InvalidManifest, fmt.Sprintf(
		`the front matter that begins in line 1 is never closed; write a line "---" after it (the file has %d lines)`, len(lines)))
}
