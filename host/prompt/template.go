// Package prompt renders the templates of manifests: text with {{param}} and
// dotted paths such as {{order.id}}, and nothing else. There are no
// expressions, no loops and no escapes, so a tenant's template can neither
// call anything nor run for long, and a value is never read as a template.
package prompt

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/valyala/fasttemplate"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
)

// MaxRenderedBytes bounds one rendered template: a short template can repeat
// a long param.
const MaxRenderedBytes = 1 << 20

const (
	open       = "{{"
	closing    = "}}"
	tagPadding = " \t"
)

// Template is a parsed template. It is read-only and safe for concurrent use.
type Template struct {
	text  *fasttemplate.Template
	names []string
	paths []string
}

// SyntaxError says why a text is no template.
type SyntaxError struct {
	Offset int    // of the braces, in bytes from the start of the text
	Msg    string // what is wrong and how to mend it; no control characters
}

// Error returns the message with its offset.
func (e *SyntaxError) Error() string { return fmt.Sprintf("byte %d: %s", e.Offset, e.Msg) }

// Parse reads a template. A placeholder is {{ and }} around identifiers
// (letters, digits, underscores) that are joined by dots, with spaces or tabs
// allowed inside the braces. Its error is a *SyntaxError.
func Parse(text string) (*Template, error) {
	t := &Template{}
	seen := map[string]bool{} // names; paths with a dot before them
	for pos := 0; ; {
		i := strings.Index(text[pos:], open)
		if i < 0 {
			break
		}
		start := pos + i
		n := strings.Index(text[start+len(open):], closing)
		if n < 0 {
			return nil, &SyntaxError{start, "this {{ is never closed; write }} after the param's name"}
		}
		tag := text[start+len(open) : start+len(open)+n]
		path := strings.Trim(tag, tagPadding)
		switch {
		case path == "":
			return nil, &SyntaxError{start, "there is no name between {{ and }}; write the name of a param"}
		case !isPath(path):
			return nil, &SyntaxError{start, fmt.Sprintf(
				"%s is not a param's name or a dotted path such as {{order.id}}; nothing else is allowed between {{ and }}", shown(tag))}
		}
		if !seen["."+path] {
			seen["."+path] = true
			t.paths = append(t.paths, path)
		}
		if name, _, _ := strings.Cut(path, "."); !seen[name] {
			seen[name] = true
			t.names = append(t.names, name)
		}
		pos = start + len(open) + n + len(closing)
	}
	var err error
	if t.text, err = fasttemplate.NewTemplate(text, open, closing); err != nil {
		return nil, fmt.Errorf("prompt.Parse: %w", err)
	}
	return t, nil
}

func shown(tag string) string {
	const most = 60
	if len(tag) > most {
		tag = strings.ToValidUTF8(tag[:most], "") + "…"
	}
	return fmt.Sprintf("%q", tag)
}

// isPath reports whether s is identifiers joined by dots.
func isPath(s string) bool {
	for part := range strings.SplitSeq(s, ".") {
		if part == "" || part[0] >= '0' && part[0] <= '9' {
			return false
		}
		for i := range len(part) {
			c := part[i]
			if c != '_' && (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'z') {
				return false
			}
		}
	}
	return true
}

// Names returns the top-level params that the template uses, each once, in
// order of first use. The caller owns the result.
func (t *Template) Names() []string { return slices.Clone(t.names) }

// Paths returns the dotted paths that the template uses, each once, in order
// of first use. The caller owns the result.
func (t *Template) Paths() []string { return slices.Clone(t.paths) }

// Render fills in params: strings as they are, every other value as compact
// JSON, a json.Number as it was sent. Values are data: braces in them stay.
//
// Its error is a *carrel.Error: invalid_params with one fault for a param or
// a path that is missing, limit_exceeded (renderedBytes) for a result of more
// than MaxRenderedBytes.
func (t *Template) Render(params map[string]any) (string, error) {
	var out limitedBuffer
	_, err := t.text.ExecuteFunc(&out, func(w io.Writer, tag string) (int, error) {
		v, err := lookup(params, strings.Trim(tag, tagPadding))
		if err != nil {
			return 0, err
		}
		if s, ok := v.(string); ok {
			return io.WriteString(w, s)
		}
		raw, err := compact(v)
		if err != nil {
			return 0, fmt.Errorf("prompt.Render: %w", err)
		}
		return w.Write(raw)
	})
	if err != nil {
		return "", err
	}
	return out.String(), nil
}

func lookup(params map[string]any, path string) (any, error) {
	var v any = params
	pointer := ""
	for name := range strings.SplitSeq(path, ".") {
		object, ok := v.(map[string]any)
		if !ok {
			return nil, missing(pointer, "an object is expected here: the prompt uses {{"+path+"}}")
		}
		pointer += "/" + name
		if v, ok = object[name]; !ok {
			return nil, missing(pointer, "this param is missing: the prompt uses {{"+path+"}}")
		}
	}
	return v, nil
}

func missing(pointer, message string) error {
	e := carrel.Fail("prompt.Render", abi.InvalidParams, "params: "+pointer+": "+message)
	e.Faults = []carrel.Fault{{Pointer: pointer, Message: message}}
	return e
}

// compact encodes without HTML escapes: the reader is a model.
func compact(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// limitedBuffer refuses what would make it longer than MaxRenderedBytes.
type limitedBuffer struct{ bytes.Buffer }

func (b *limitedBuffer) Write(p []byte) (int, error) {
	if err := b.room(len(p)); err != nil {
		return 0, err
	}
	return b.Buffer.Write(p)
}

// WriteString is here because io.WriteString would go around Write.
func (b *limitedBuffer) WriteString(s string) (int, error) {
	if err := b.room(len(s)); err != nil {
		return 0, err
	}
	return b.Buffer.WriteString(s)
}

func (b *limitedBuffer) room(n int) error {
	if b.Len()+n > MaxRenderedBytes {
		return carrel.FailLimit("prompt.Render", abi.LimitExceeded, "renderedBytes", fmt.Sprintf(
			"the rendered prompt is longer than %d bytes (limit renderedBytes); send shorter params", MaxRenderedBytes))
	}
	return nil
}
