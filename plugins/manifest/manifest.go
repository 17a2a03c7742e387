// Package manifest reads what a plugin declares: it parses a manifest strictly,
// checks it against what a host has, fills in what is left out, and writes it
// out canonically. The shape of what it returns is abi.Manifest.
package manifest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox/module"
	"github.com/carrelhost/carrel/host/schema"
	"github.com/carrelhost/carrel/host/strictjson"
)

// Known is what a host has, for checks of a manifest against it.
type Known struct {
	// Models are the host's model aliases. nil means that they are not known,
	// as where a plugin is packed, and that any alias is accepted.
	Models []string
	// Timeout is the longest that a handler call may take. 0 means that it is
	// not known, and that any is accepted.
	Timeout time.Duration
	// WindowBytes is the most that is sent of a history, whatever the window.
	// 0 means that it is not known.
	WindowBytes int64
}

// MaxDepth is how deep a manifest's JSON may be nested: a schema of 32 levels
// stands six levels below the root.
const MaxDepth = 40

// Parse reads and checks a manifest. What it returns is complete: defaults and
// the derived fields UserParam and MemoryIDRequired are filled in. The caller
// owns it, and keeps raw.
//
// Its error is a *carrel.Error. invalid_manifest has every fault in Faults
// (MaxFaults at most, then one that counts the rest), each with its JSON
// pointer and a remedy. A manifest over abi.MaxManifestBytes, or of more JSON
// values than strictjson.DefaultValues, is limit_exceeded. default_id_leak is
// returned only for a manifest without other faults, and then the manifest is
// returned complete beside it: tools may only warn.
func Parse(raw []byte, known Known) (abi.Manifest, error) {
	m, _, err := Compile(context.Background(), raw, known)
	return m, err
}

// Compile is Parse for those who call the plugin next or may stop waiting for
// it: it returns the compiled schemas as well, by the bytes of Method.Params
// and Method.Output (that of text, see IsText, is not among them), and ctx's
// error if ctx ends. The caller owns the map; the schemas are shared by the
// methods that declare the same.
func Compile(ctx context.Context, raw []byte, known Known) (abi.Manifest, map[string]*schema.Schema, error) {
	const op = "manifest.Parse"
	if len(raw) > abi.MaxManifestBytes {
		return abi.Manifest{}, nil, carrel.FailLimit(op, abi.LimitExceeded, "manifestBytes", fmt.Sprintf(
			"the manifest is %d bytes, at most %d are allowed (limit manifestBytes); shorten descriptions and templates",
			len(raw), abi.MaxManifestBytes))
	}
	tree, err := strictjson.Value(raw, MaxDepth)
	if err != nil {
		e, ok := errors.AsType[*carrel.Error](err)
		if !ok {
			return abi.Manifest{}, nil, fmt.Errorf("%s: %w", op, err)
		}
		failed := &carrel.Error{Op: op, Code: abi.InvalidManifest, Err: err, Faults: e.Faults, Msg: "the manifest is " + e.Msg}
		if e.Limit != "" {
			failed.Code, failed.Limit, failed.Msg = abi.LimitExceeded, e.Limit, "the manifest cannot be read: "+e.Msg
		}
		return abi.Manifest{}, nil, failed
	}
	c := &checker{known: known, layout: layoutOf(raw), schemas: map[string]*schema.Schema{}}
	m := c.manifest(ctx, tree)
	if err := ctx.Err(); err != nil {
		return abi.Manifest{}, nil, fmt.Errorf("%s: %w", op, err)
	}
	if err := c.err(op, "the manifest"); err != nil {
		return abi.Manifest{}, nil, err
	}
	return m, c.schemas, leak(op, m)
}

// Encode returns the canonical JSON of a complete manifest: every default
// written out, members in the specification's order, no white space. Parse
// reads it back to the same value. The caller owns the result.
func Encode(m abi.Manifest) ([]byte, error) {
	m.Services = slices.Clone(m.Services)
	for i := range m.Services {
		if m.Services[i].Methods == nil {
			m.Services[i].Methods = []abi.Method{}
		}
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(m); err != nil {
		return nil, fmt.Errorf("manifest.Encode: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// manifest reads the root.
func (c *checker) manifest(ctx context.Context, v any) abi.Manifest {
	var m abi.Manifest
	o, ok := c.object(v, "", levelPlugin)
	if !ok {
		return m
	}
	if m.ABI, ok = o.requiredText("abi", abi.MaxVersionBytes, "add \"abi\": \""+abi.Version+"\""); ok && m.ABI != abi.Version {
		c.fault("/abi", "this host speaks %q, not %s", abi.Version, module.Quote(m.ABI))
	}
	if m.Name, ok = o.requiredText("name", 0, "add the plugin's name, such as \"nice-and-mean\""); ok {
		if _, err := carrel.ParsePluginName(m.Name); err != nil {
			c.fault("/name", "%s, not %s", messageOf(err), module.Quote(m.Name))
		}
	}
	if m.Version, ok = o.requiredText("version", abi.MaxVersionBytes, "add the version, such as \"1.0.0\""); ok && m.Version == "" {
		c.fault("/version", "the version is empty; write one, such as \"1.0.0\"")
	}
	m.Description, _ = o.text("description", abi.MaxDescriptionBytes)
	m.Services = c.services(ctx, o)
	m.DefaultMemoryID = c.defaultMemoryID(o)
	m.AllowDefaultIDLeak, _ = o.boolean("allowDefaultIdLeak")
	m.MemoryNamespace = c.memoryNamespace(o)
	m.Capabilities = c.capabilities(o, m.Name)
	m.Limits = c.limits(o)
	m.Warmup = c.warmup(o, m.Services)
	return m
}

// memoryNamespace reads the shared namespace that a plugin asks for.
func (c *checker) memoryNamespace(o object) string {
	name, ok := o.text("memoryNamespace", 0)
	if !ok {
		return ""
	}
	if _, err := carrel.ParsePluginName(name); err != nil {
		c.fault("/memoryNamespace", "a memory namespace is named like a plugin: a small letter, then up to 62 small letters, digits or hyphens, not %s",
			module.Quote(name))
	}
	return name
}
