package main

import (
	"errors"
	"fmt"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v4"
)

// faultLines is faults of a configuration, a line each, which all begin as the
// errors of this program do.
type faultLines []string

func (f faultLines) Error() string { return strings.Join(f, "\ncarrel: ") }

// linesOf returns the faults as one error, nil if there are none.
func linesOf(faults []error) error {
	joined := errors.Join(faults...)
	if joined == nil {
		return nil
	}
	return faultLines(strings.Split(joined.Error(), "\n"))
}

// whence says where settings come from: a flag, a variable, a line of the file.
type whence struct {
	flags map[string]string // settings that flags decide, and the flags
	vars  map[string]string // the environment
	file  string            // its name
	lines map[string]int    // of the settings in it
}

// newWhence finds the settings of a file, which may be none or no YAML.
func newWhence(flags, vars map[string]string, file string, content []byte) whence {
	w := whence{flags: flags, vars: vars, file: file, lines: map[string]int{}}
	var doc yaml.Node
	if yaml.Unmarshal(content, &doc) != nil {
		return w
	}
	at := map[mark]setting{}
	places(&doc, "", at)
	for m, s := range at {
		if s.isKey {
			w.lines[s.path] = m.line
		}
	}
	return w
}

// place says of each fault where its setting comes from; of one that is a
// default, nothing. A fault is a line and begins with the setting's path. Flags
// come before variables, and these before the file.
func (w whence) place(faults error) error {
	if faults == nil {
		return nil
	}
	var out []error
	for line := range strings.SplitSeq(faults.Error(), "\n") {
		path, text, _ := strings.Cut(line, ": ")
		variable := variableOf(path)
		switch at := w.lineOf(path); {
		case w.flags[path] != "":
			line = w.flags[path] + ": " + text
		case w.vars[variable] != "":
			line = variable + ": " + text
		case at > 0:
			line = fmt.Sprintf("%s:%d: %s", w.file, at, line)
		}
		out = append(out, errors.New(line))
	}
	return errors.Join(out...)
}

// lineOf is where a setting is in the file, or, if it is missing there, what it
// would be in; 0 if that is not there either.
func (w whence) lineOf(path string) int {
	for {
		if line, ok := w.lines[path]; ok {
			return line
		}
		dot := strings.LastIndexByte(path, '.')
		if dot < 0 {
			return 0
		}
		if path = path[:dot]; path == "limits" || path == "memory" || path == "sandbox" {
			return 0 // all their settings have defaults
		}
	}
}

// variableOf is the name of a setting's variable.
func variableOf(path string) string {
	var b strings.Builder
	b.WriteString(variablePrefix)
	for _, r := range path {
		switch {
		case r == '.':
			r = '_'
		case unicode.IsUpper(r):
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToUpper(r))
	}
	return b.String()
}
