package schema

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// patterns are the regular expressions of one schema. Sizes are estimated
// from the parsed expression before it is compiled: (x{1000}){1000} is short,
// its program is not.
type patterns struct {
	known map[string]*pattern
	total int64
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
		return 0, fmt.Errorf("a regular expression is at most %d bytes long; shorten it", MaxPatternBytes)
	}
	parsed, err := syntax.Parse(expression, syntax.Perl)
	if failed, ok := errors.AsType[*syntax.Error](err); ok {
		return 0, fmt.Errorf("this is not a regular expression of this host's dialect, RE2: %s", failed.Code)
	} else if err != nil {
		return 0, errors.New("this is not a regular expression of this host's dialect, RE2")
	}
	size := programSize(parsed)
	if p.total = plus(p.total, size); p.total > MaxWeight {
		return 0, fmt.Errorf("the schema's regular expressions are too large together (%d, at most %d); shorten repetitions such as {1000}",
			p.total, MaxWeight)
	}
	compiled, err := regexp.Compile(expression)
	if err != nil {
		return 0, errors.New("this regular expression cannot be compiled; simplify it")
	}
	p.known[expression] = &pattern{compiled, size}
	return size, nil
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
