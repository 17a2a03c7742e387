package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/carrelhost/carrel/host"
)

// decodeFile reads a configuration file strictly: a setting that this host
// does not have is a fault. Every fault is reported, with its line and the
// path of its setting; what is well-formed is read all the same.
func decodeFile(name string, b []byte, cfg *host.Config) error {
	dec := yaml.NewDecoder(bytes.NewReader(b))
	dec.KnownFields(true)
	err := dec.Decode(cfg)
	if errors.Is(err, io.EOF) {
		return nil // an empty file
	}
	if faults, ok := errors.AsType[*yaml.LoadErrors](err); ok {
		return placed(name, b, faults)
	}
	if err != nil {
		text := name + ": " + strings.TrimPrefix(err.Error(), "yaml: ")
		return &shownAs{text: strings.Replace(text, ": line ", ":", 1), err: err}
	}
	if err := dec.Decode(new(any)); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: the file holds more than one YAML document", name)
	}
	return nil
}

// mark is a place in a file, both counted from 1.
type mark struct{ line, column int }

// setting is what stands at a mark.
type setting struct {
	path  string
	isKey bool // the setting's name, not its value
}

// placed gives the decoder's faults their paths. A fault at a setting's name,
// not at its value, is that there is no such setting, or that it is there
// twice.
func placed(name string, b []byte, faults *yaml.LoadErrors) error {
	var doc yaml.Node
	if err := yaml.Unmarshal(b, &doc); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	at := map[mark]setting{}
	places(&doc, "", at)
	times := map[string]int{}
	for _, s := range at {
		if s.isKey {
			times[s.path]++
		}
	}
	errs := make([]error, 0, len(faults.Errors))
	for _, f := range faults.Errors {
		s := at[mark{f.Mark.Line, f.Mark.Column}]
		text := wrongKind(f.Message)
		switch {
		case s.isKey && times[s.path] > 1:
			text = "the setting is there twice"
		case s.isKey:
			text = noSetting(s.path)
		}
		errs = append(errs, fmt.Errorf("%s:%d: %s: %s", name, f.Mark.Line, s.path, text))
	}
	return errors.Join(errs...)
}

// wrongKind says of a value that cannot be what the setting is, without the
// words that the YAML library has for types.
func wrongKind(message string) string {
	rest, ok := strings.CutPrefix(message, "cannot construct ")
	value, kind, is := strings.Cut(rest, " into ")
	if !ok || !is {
		return message
	}
	tag, value, scalar := strings.Cut(value, " ")
	switch {
	case tag == "!!seq":
		value = "a list"
	case tag == "!!map":
		value = "a mapping"
	case !scalar:
		value = "this"
	}
	return fmt.Sprintf("%s is not %s", value, kindOf(kind))
}

// kindOf is what a person calls a type of Go.
func kindOf(goType string) string {
	switch {
	case goType == "time.Duration":
		return "a duration, such as 30s or 5m"
	case goType == "string":
		return "a text"
	case goType == "bool":
		return "true or false"
	case strings.HasPrefix(goType, "int"), strings.HasPrefix(goType, "uint"):
		return "a whole number"
	case strings.HasPrefix(goType, "float"):
		return "a number"
	case strings.HasPrefix(goType, "[]"):
		return "a list"
	default:
		return "a mapping of settings"
	}
}

// places notes where each setting below a node stands.
func places(n *yaml.Node, path string, at map[mark]setting) {
	if n.Kind != yaml.MappingNode {
		for _, c := range n.Content {
			places(c, path, at)
		}
		return
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		below := key.Value
		if path != "" {
			below = path + "." + below
		}
		at[mark{key.Line, key.Column}] = setting{below, true}
		at[mark{value.Line, value.Column}] = setting{below, false}
		places(value, below, at)
	}
}
