package pack

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/carrelhost/carrel"
)

// Lines are the lines of a source, by JSON pointer into its manifest.
type Lines map[string]int

// SourceLines returns the lines of a source that Prompt packs, for faults that
// a host finds in the packed manifest. What cannot be read has none.
func SourceLines(filename string, src []byte) Lines {
	p := &packer{lines: Lines{}}
	if _, err := p.manifest(filename, src); err != nil {
		return Lines{}
	}
	return p.lines
}

// JSONLines returns the lines of a manifest that is a JSON file. broken is the
// line in which it stops being JSON, 0 if it does not.
func JSONLines(raw []byte) (lines Lines, broken int) {
	lines = Lines{}
	lineAt := func(offset int64) int {
		return 1 + bytes.Count(raw[:min(int(offset), len(raw))], []byte("\n"))
	}
	d, whole := jsontext.NewDecoder(bytes.NewReader(raw)), false
	for {
		_, err := d.ReadToken()
		at := string(d.StackPointer())
		if s, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
			return lines, lineAt(s.ByteOffset)
		}
		switch ended := errors.Is(err, io.EOF); {
		case ended && len(lines) > 0:
			return lines, 0
		case ended: // before any value
			return lines, lineAt(int64(len(raw)))
		case err != nil:
			return lines, lineAt(d.InputOffset())
		case at == "" && whole: // more after the value
			return lines, lineAt(d.InputOffset())
		}
		whole = d.StackDepth() == 0
		if _, ok := lines[at]; !ok { // of a member, its name's
			lines[at] = lineAt(d.InputOffset())
		}
	}
}

// At returns the line of a pointer, or of the nearest value around it; 0 if
// none is known.
func (l Lines) At(pointer string) int {
	for {
		if line, ok := l[pointer]; ok {
			return line
		}
		if pointer == "" {
			return 0
		}
		pointer = pointer[:max(strings.LastIndexByte(pointer, '/'), 0)]
	}
}

// Add adds lines to faults that have a place, and to a text that ends with the
// first of them. The caller owns the result; faults stay as they are.
func (l Lines) Add(text string, faults []carrel.Fault) (string, []carrel.Fault) {
	out := slices.Clone(faults)
	for i, f := range faults {
		line := l.At(f.Pointer)
		if line == 0 || f.Pointer == "" {
			continue
		}
		out[i].Message = fmt.Sprintf("%s (line %d)", f.Message, line)
		if start, repeats := strings.CutSuffix(text, f.Message); i == 0 && repeats {
			text = start + out[i].Message
		}
	}
	return text, out
}
