// Package pack makes the modules of prompt plugins, which have no code, of
// their sources: Markdown with front matter, or YAML.
package pack

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox/module"
	"github.com/carrelhost/carrel/plugins/manifest"
)

// MaxSourceBytes bounds the source of a prompt plugin.
const MaxSourceBytes = 1 << 20

const (
	op             = "pack.Prompt"
	defaultVersion = "0.1.0"
)

// Prompt makes the module of a prompt plugin of its source: a Markdown file
// with YAML front matter, or a YAML file alone, told apart by the filename's
// extension. The module is a pure function of the two arguments. The caller
// owns what is returned.
//
// The YAML holds the manifest's members. abi is filled in; name defaults to
// the file's name, version to 0.1.0, a method's kind to chat, a service
// without methods gets one method, chat. params may be a list of names, a map
// from name to type (a ? after the name makes it optional), or absent: then it
// is what the templates, memoryId and the user's message need.
//
// The Markdown text is the single service's system message. With several
// services a heading "# com.acme.MyChat" begins the text of that service,
// "# com.acme.MyChat.chat" that of one of its methods; with one service what
// stands before a heading of a method is the service's. A heading that is
// nearly such a name is a fault.
//
// Errors are those of manifest.Parse, with the line of the source in each
// fault's message where there is one. With default_id_leak, which is only
// refused where a plugin is uploaded, the module and the manifest are
// returned, too.
func Prompt(filename string, src []byte) ([]byte, abi.Manifest, error) {
	if len(src) > MaxSourceBytes {
		return nil, abi.Manifest{}, carrel.FailLimit(op, abi.LimitExceeded, "sourceBytes", fmt.Sprintf(
			"the source is %d bytes, at most %d are allowed (limit sourceBytes)", len(src), MaxSourceBytes))
	}
	p := &packer{lines: Lines{}}
	raw, err := p.manifest(filename, src)
	if err != nil {
		return nil, abi.Manifest{}, err
	}
	m, err := manifest.Parse(raw, manifest.Known{})
	if err != nil && carrel.CodeOf(err) != abi.DefaultIDLeak {
		return nil, abi.Manifest{}, p.withLines(err)
	}
	encoded, encodeErr := manifest.Encode(m)
	if encodeErr != nil {
		return nil, abi.Manifest{}, encodeErr
	}
	if len(encoded) > abi.MaxManifestBytes { // defaults count
		return nil, abi.Manifest{}, carrel.FailLimit(op, abi.LimitExceeded, "manifestBytes", fmt.Sprintf(
			"the manifest is %d bytes, at most %d are allowed (limit manifestBytes); shorten the texts", len(encoded), abi.MaxManifestBytes))
	}
	if err != nil {
		err = p.withLines(err)
	}
	return module.Prompt(encoded), m, err
}

// packer turns one source into a manifest's JSON.
type packer struct {
	lines  Lines
	faults []carrel.Fault
}

func (p *packer) fault(at string, line int, format string, args ...any) {
	p.faults = append(p.faults, carrel.Fault{Pointer: at, Message: fmt.Sprintf(format, args...) + fmt.Sprintf(" (line %d)", line)})
}

func (p *packer) err() error {
	if len(p.faults) == 0 {
		return nil
	}
	n := len(p.faults)
	faults := p.faults
	msg := "the source has a fault: " + faults[0].Message
	if n > 1 {
		msg = fmt.Sprintf("the source has %d faults, the first: %s", n, faults[0].Message)
	}
	if n > manifest.MaxFaults {
		faults = append(faults[:manifest.MaxFaults:manifest.MaxFaults], carrel.Fault{Message: fmt.Sprintf("there are %d more faults; mend these first", n-manifest.MaxFaults)})
	}
	return &carrel.Error{Op: op, Code: abi.InvalidManifest, Faults: faults, Msg: msg}
}

// withLines adds the source's lines to the faults of the manifest.
func (p *packer) withLines(err error) error {
	e, ok := errors.AsType[*carrel.Error](err)
	if !ok {
		return err
	}
	out := *e
	out.Op = op
	out.Msg, out.Faults = p.lines.Add(e.Msg, e.Faults)
	return &out
}

func (p *packer) manifest(filename string, src []byte) ([]byte, error) {
	if !utf8.Valid(src) {
		return nil, carrel.Fail(op, abi.InvalidManifest, "the source is not valid UTF-8; save it in that encoding")
	}
	text := strings.ReplaceAll(strings.TrimPrefix(string(src), "\ufeff"), "\r\n", "\n")
	front, body, bodyLine := text, "", 0
	switch ext := strings.ToLower(path.Ext(filename)); ext {
	case ".yaml", ".yml":
	case ".md", ".markdown":
		var err error
		if front, body, bodyLine, err = cutFrontMatter(text); err != nil {
			return nil, err
		}
	default:
		return nil, carrel.Fail(op, abi.InvalidManifest,
			"the source of a prompt plugin is a Markdown file (.md) with YAML front matter or a YAML file (.yaml), not "+module.Quote(path.Base(filename)))
	}
	root, err := p.yaml(front)
	if err != nil {
		return nil, err
	}
	p.complete(root, filename)
	p.text(root, body, bodyLine)
	p.noCode(root)
	p.services(root)
	if err := p.err(); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(root); err != nil {
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	return b.Bytes(), nil
}

// complete fills in what every plugin has.
func (p *packer) complete(root *tree, filename string) {
	if !root.has("abi") {
		root.set("abi", abi.Version)
	}
	if !root.has("name") {
		root.set("name", slugOf(filename))
	}
	if !root.has("version") {
		root.set("version", defaultVersion)
	}
	// A version such as 1.0 is a number in YAML, but means its text.
	if n, ok := root.values["version"].(json.Number); ok {
		root.set("version", n.String())
	}
}

// slugOf makes a plugin's name of a file's name.
func slugOf(filename string) string {
	base := path.Base(strings.ReplaceAll(filename, `\`, "/"))
	base = strings.ToLower(strings.TrimSuffix(base, path.Ext(base)))
	var b strings.Builder
	for i := range len(base) {
		c := base[i]
		letter := c >= 'a' && c <= 'z'
		switch {
		case letter, b.Len() > 0 && c >= '0' && c <= '9':
			b.WriteByte(c)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
	}
	slug := b.String()
	return strings.TrimRight(slug[:min(len(slug), abi.MaxNameBytes)], "-")
}

// noCode refuses what only a plugin with code can have.
func (p *packer) noCode(root *tree) {
	const remedy = "a prompt plugin has no code; write the plugin with an SDK, or "
	if d, ok := root.values["defaultMemoryId"].(*tree); ok && d.has("export") {
		const at = "/defaultMemoryId/export"
		p.fault(at, p.lines.At(at), "no function can yield the id: %stake it `from` a header or the subject", remedy)
	}
	for i, s := range root.trees("services") {
		if s == nil {
			continue
		}
		for j, m := range s.trees("methods") {
			if m == nil {
				continue
			}
			at := fmt.Sprintf("/services/%d/methods/%d", i, j)
			switch {
			case m.text("kind") == abi.KindHandler:
				p.fault(at+"/kind", p.lines.At(at+"/kind"), "there is nothing that a handler could run: %smake it a chat method", remedy)
			case m.has("export"):
				p.fault(at+"/export", p.lines.At(at+"/export"), "there is no function to be named: %sremove `export`", remedy)
			}
		}
	}
}

// services completes the methods of every service.
func (p *packer) services(root *tree) {
	for i, s := range root.trees("services") {
		if s == nil {
			continue // not an object: manifest.Parse says so
		}
		if !s.has("methods") {
			s.set("methods", []any{newTree("name", "chat")})
		}
		for j, m := range s.trees("methods") {
			if m == nil {
				continue
			}
			if !m.has("kind") {
				m.set("kind", abi.KindChat)
			}
			p.params(fmt.Sprintf("/services/%d/methods/%d", i, j), s, m)
		}
	}
}
