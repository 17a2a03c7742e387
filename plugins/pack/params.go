package pack

import (
	"slices"
	"strings"

	"github.com/carrelhost/carrel/host/prompt"
	"github.com/carrelhost/carrel/host/sandbox/module"
	"github.com/carrelhost/carrel/plugins/manifest"
)

// defaultUserParam is the param that holds the user's message where a source
// says nothing else.
const defaultUserParam = "msg"

// params writes a method's params schema out if it is short or absent.
func (p *packer) params(at string, service, method *tree) {
	switch v := method.values["params"].(type) {
	case []any:
		p.listedParams(at+"/params", method, v)
	case *tree:
		if isShort(v) {
			p.typedParams(at+"/params", method, v)
		}
	case nil:
		if !method.has("params") {
			p.derivedParams(service, method)
		}
	}
}

// isShort tells {id: string, msg: string} from a schema.
func isShort(t *tree) bool {
	if t.values["type"] == "object" {
		return false
	}
	for name, v := range t.values {
		if _, ok := v.(string); !ok || strings.HasPrefix(name, "$") {
			return false
		}
	}
	return len(t.names) > 0
}

func isTypeName(s string) bool {
	return slices.Contains([]string{"string", "number", "integer", "boolean", "object", "array"}, s)
}

// schemaBuilder collects properties of an object's schema.
type schemaBuilder struct {
	properties *tree
	required   []any
}

func (b *schemaBuilder) add(name, kind string, required bool) {
	b.properties.set(name, newTree("type", kind))
	if required {
		b.required = append(b.required, name)
	}
}

func (b *schemaBuilder) schema() *tree {
	t := newTree("type", "object", "properties", b.properties)
	if len(b.required) > 0 {
		t.set("required", b.required)
	}
	return t
}

func (p *packer) listedParams(at string, method *tree, list []any) {
	b := schemaBuilder{properties: newTree()}
	for _, v := range list {
		s, ok := v.(string)
		name, optional := strings.CutSuffix(s, "?")
		switch {
		case !ok || name == "":
			p.fault(at, p.lines.At(at), "params as a list holds names, such as [id, msg]; for types write a map, such as {id: string, count: integer}")
		case b.properties.has(name):
			p.fault(at, p.lines.At(at), "the param %s is there twice; remove one", module.Quote(name))
		default:
			b.add(name, "string", !optional)
		}
	}
	method.set("params", b.schema())
}

func (p *packer) typedParams(at string, method, short *tree) {
	b := schemaBuilder{properties: newTree()}
	for _, key := range short.names {
		name, optional := strings.CutSuffix(key, "?")
		if name == "" || b.properties.has(name) {
			p.fault(manifest.Pointer(at, key), p.lines.At(manifest.Pointer(at, key)), "the param %s is there twice or has no name", module.Quote(name))
			continue
		}
		if !isTypeName(short.text(key)) {
			if kind, marked := strings.CutSuffix(short.text(key), "?"); marked && isTypeName(kind) {
				p.fault(manifest.Pointer(at, key), p.lines.At(manifest.Pointer(at, key)), "the ? of an optional param stands after its name: write %s: %s", module.Quote(name+"?"), kind)
				continue
			}
			p.fault(manifest.Pointer(at, key), p.lines.At(manifest.Pointer(at, key)), "there is no type %s; write string, number, integer, boolean, object or array, or a whole schema",
				module.Quote(short.text(key)))
			continue
		}
		b.add(name, short.text(key), !optional)
	}
	method.set("params", b.schema())
}

// derivedParams makes params of what the method needs: its memory id, its
// placeholders and the user's message.
func (p *packer) derivedParams(service, method *tree) {
	b := schemaBuilder{properties: newTree()}
	if id := method.text("memoryId"); id != "" {
		b.add(id, "string", true)
	}
	system := method
	if !method.has("systemMessage") {
		system = service
	}
	others := 0
	for _, text := range []string{system.text("systemMessage"), method.text("userMessage")} {
		t, err := prompt.Parse(text)
		if err != nil {
			continue // manifest.Parse says why
		}
		for _, path := range t.Paths() {
			name, _, dotted := strings.Cut(path, ".")
			if b.properties.has(name) {
				if dotted && name != method.text("memoryId") {
					b.properties.set(name, newTree("type", "object"))
				}
				continue
			}
			others++
			if dotted {
				b.add(name, "object", true)
			} else {
				b.add(name, "string", true)
			}
		}
	}
	if !method.has("userMessage") {
		if !b.properties.has(defaultUserParam) {
			b.add(defaultUserParam, "string", true)
		}
		if others > 0 { // several string params: say which one is meant
			method.set("userMessage", "{{"+defaultUserParam+"}}")
		}
	}
	method.set("params", b.schema())
}
