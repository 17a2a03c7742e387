package schema

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// patterns are the regular expressions of one schema. Sizes are estimated
// from the parsed expression before it is compiled: (x{1000}){1000} is short,
// its program is not.
type patterns struct {
	known map[string]*pattern
	total int64
	meter *meter
}

type pattern struct {
	*regexp.Regexp
	size int64
}

// measure returns the program size of an expression and compiles it, if all
// expressions of the schema stay within MaxWeight.
func (p *patterns) measure(expression string) (int64, error) {
	if known, ok := p.known[expression]; ok {
		return known.size, nil
	}
	if len(expression) > MaxPatternBytes {
		p.meter.exceeded("schemaPatternBytes")
		return 0, fmt.Errorf("a regular expression is at most %d bytes long (limit schemaPatternBytes); shorten it", MaxPatternBytes)
	}
	if over := p.meter.spend(Cost{PatternSteps: patternSteps(expression)}); over != "" {
		return 0, errors.New(over)
	}
	parsed, err := syntax.Parse(expression, syntax.Perl)
	if failed, ok := errors.AsType[*syntax.Error](err); ok {
		return 0, fmt.Errorf("this is not a regular expression of this host's dialect, RE2: %s", failed.Code)
	} else if err != nil {
		return 0, errors.New("this is not a regular expression of this host's dialect, RE2")
	}
	size := programSize(parsed)
	if p.total = plus(p.total, size); p.total > MaxWeight {
		p.meter.exceeded("schemaPatternSize")
		return 0, fmt.Errorf("the schema's regular expressions are too large together: %d instructions, at most %d are allowed (limit schemaPatternSize); shorten repetitions such as {1000}",
			p.total, MaxWeight)
	}
	compiled, err := regexp.Compile(expression)
	if err != nil {
		return 0, errors.New("this regular expression cannot be compiled; simplify it")
	}
	p.known[expression] = &pattern{compiled, size}
	return size, nil
}

// patternSteps estimates what parsing an expression takes, from above, in
// units of about 40 nanoseconds. Two things take more than their bytes: a
// class such as \pL is copied from a table and sorted, and a range under the
// flag i is folded rune by rune, up to its end or to the last rune that has a
// case.
func patternSteps(expression string) int {
	const (
		perByte  = 8
		perClass = 5000
		lastCase = 0x1e943
	)
	n := perByte * len(expression)
	n += perClass * (strings.Count(expression, `\p`) + strings.Count(expression, `\P`))
	if !strings.Contains(expression, "(?") || !strings.Contains(expression, "i") {
		return n
	}
	for rest := expression; ; {
		_, after, found := strings.Cut(rest, "-")
		if !found {
			return n
		}
		n += min(rangeEnd(after), lastCase)
		rest = after
	}
}

// rangeEnd returns the rune that s begins with, or more.
func rangeEnd(s string) int {
	const mostOctal = 0o777
	hex, escaped := strings.CutPrefix(s, `\x`)
	if !escaped {
		r, _ := utf8.DecodeRuneInString(s)
		return max(int(r), mostOctal) // any other escape
	}
	hex, braced := strings.CutPrefix(hex, "{")
	if end := strings.IndexByte(hex, '}'); braced && end >= 0 {
		hex = hex[:end]
	} else {
		hex = hex[:min(len(hex), 2)]
	}
	r, err := strconv.ParseUint(hex, 16, 31)
	if err != nil {
		return unicode.MaxRune
	}
	return int(r)
}

// programSize estimates the instructions of an expression, from above.
func programSize(re *syntax.Regexp) int64 {
	// A class of many ranges is one instruction, but each step searches it.
	n := 3 + int64(len(re.Rune))/32
	if re.Op == syntax.OpLiteral {
		n = 2 + int64(len(re.Rune))
	}
	for _, sub := range re.Sub {
		n = plus(n, programSize(sub))
	}
	if re.Op == syntax.OpRepeat {
		n = times(plus(n, 2), int64(max(re.Min, re.Max)+1))
	}
	return n
}

// regexp gives the validator the expressions that were measured.
func (g *graph) regexp(expression string) (jsonschema.Regexp, error) {
	if known, ok := g.patterns.known[expression]; ok {
		return known, nil
	}
	if _, err := g.patterns.measure(expression); err != nil {
		return nil, err
	}
	return g.patterns.known[expression], nil
}
