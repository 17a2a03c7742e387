package schema

import (
	"fmt"
	"math"

	"github.com/carrelhost/carrel"
)

// weight is the most that one value of the params can cost.
type weight struct {
	evaluations int64 // subschemas that look at it
	failures    int64 // things that can be found wrong with it
	perValue    int64 // units of work, about ten nanoseconds each
	perByte     int64 // units of work for each byte of its JSON
	pairs       int64 // checks that compare its elements with one another
}

func (w weight) plus(o weight) weight {
	return weight{
		plus(w.evaluations, o.evaluations), plus(w.failures, o.failures),
		plus(w.perValue, o.perValue), plus(w.perByte, o.perByte), plus(w.pairs, o.pairs),
	}
}

func (w weight) most(o weight) weight {
	return weight{
		max(w.evaluations, o.evaluations), max(w.failures, o.failures),
		max(w.perValue, o.perValue), max(w.perByte, o.perByte), max(w.pairs, o.pairs),
	}
}

// work returns the units of work for params of so many bytes and values.
// Elements that an attacker made to collide are compared pairwise; one takes
// at least four bytes.
func (w weight) work(bytes, values int64) int64 {
	n := plus(times(w.perByte, bytes), times(w.perValue, values))
	return plus(n, times(w.pairs, times(bytes/4, bytes/4)))
}

// maxExpandedDepth bounds how far a chain of subschemas and references may
// go: validators walk up that chain at every step.
const maxExpandedDepth = 64

// weigh computes the weight of the root: the largest that a value at any depth
// of the params can meet. It reports recursion and what is too heavy.
func (g *graph) weigh() (weight, []carrel.Fault) {
	root := g.nodes[""]
	for _, n := range g.nodes {
		if at := n.recursion(); at != nil {
			return weight{}, []carrel.Fault{*at}
		}
	}
	var total weight
	for depth := range maxExpandedDepth {
		total = total.most(root.weigh(depth))
	}
	if total.evaluations > MaxWeight {
		return total, []carrel.Fault{{Message: fmt.Sprintf(
			"one value can meet more than %d subschemas when every $ref is followed; simplify allOf, anyOf, oneOf and $ref", MaxWeight)}}
	}
	return total, nil
}

// recursion reports a cycle of subschemas, or a chain that is too long.
func (n *node) recursion() *carrel.Fault {
	switch n.state {
	case done:
		return nil
	case fresh:
	case running:
		return &carrel.Fault{Pointer: n.at, Message: "recursive $ref is not supported by this host; write the levels that are needed out"}
	}
	n.state = running
	height := 0
	for _, list := range [][]*node{n.same, n.properties, n.everyChild, n.prefix} {
		for _, c := range list {
			if f := c.recursion(); f != nil {
				return f
			}
			height = max(height, 1+c.height)
		}
	}
	if height >= maxExpandedDepth {
		return &carrel.Fault{Pointer: n.at, Message: fmt.Sprintf(
			"subschemas and references are nested more than %d deep; write some of them in place", maxExpandedDepth)}
	}
	n.height, n.state = height, done
	return nil
}

// weigh returns what a value costs that stands depth levels below one that
// this subschema looks at. The graph has no cycles.
func (n *node) weigh(depth int) weight {
	for len(n.memo) <= depth {
		n.memo = append(n.memo, weight{evaluations: -1})
	}
	if w := n.memo[depth]; w.evaluations >= 0 {
		return w
	}
	var w weight
	for _, c := range n.same {
		w = w.plus(c.weigh(depth))
	}
	if depth == 0 {
		w = w.plus(n.self)
	} else {
		var one weight
		for _, list := range [][]*node{n.properties, n.prefix} {
			for _, c := range list {
				one = one.most(c.weigh(depth - 1))
			}
		}
		w = w.plus(one)
		for _, c := range n.everyChild {
			w = w.plus(c.weigh(depth - 1))
		}
	}
	n.memo[depth] = w
	return w
}

func plus(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

func times(a, b int64) int64 {
	if a != 0 && b > math.MaxInt64/a {
		return math.MaxInt64
	}
	return a * b
}
