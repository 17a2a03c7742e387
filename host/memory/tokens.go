package memory

import (
	"math"
	"math/bits"

	"github.com/carrelhost/carrel"
)

// DefaultTokenRate is that of a history on which nothing was measured, in
// tokens per 1,000 bytes: what is usual for English.
const DefaultTokenRate = 250

// MinTokenRate is the lowest rate that TokenRate measures: whoever reads a
// history before its rate is known, and reads what would fit at this one, has
// read enough at any.
const MinTokenRate = 100

// maxTokenRate is the highest: a token for each byte. A provider that says too
// little could make a window far too large for its model, one that says too
// much could make a history vanish from it.
const maxTokenRate = 1000

const (
	bytesPerRate  = 1000 // a rate counts the tokens of so many bytes
	messageTokens = 4    // that chat formats add to a message, about

	// minMeasured is how many bytes a measurement takes: of fewer, what a
	// provider adds to every request is most of what it counts.
	minMeasured = 256
)

// Tokens estimates the tokens of a message: of its content and its tool calls
// at a rate of tokens per 1,000 bytes, where 0 is DefaultTokenRate, and some
// that every message has. A rate that TokenRate does not return counts as the
// nearest that it does.
func Tokens(m carrel.Message, rate int) int64 {
	return messageTokens + scale(m.Size(), sane(rate), bytesPerRate)
}

// TokenBytes estimates how many bytes of text have so many tokens, at a rate
// as Tokens takes it.
func TokenBytes(tokens int64, rate int) int64 { return scale(tokens, bytesPerRate, sane(rate)) }

// TokenRate returns the tokens per 1,000 bytes that a provider counted in what
// it was sent. It returns 0, not known, if the provider counted nothing or was
// sent too little to tell. Providers may be wrong: what they cannot mean is
// brought into a sane range.
func TokenRate(sent []carrel.Message, usage carrel.Usage) int {
	var size int64
	for _, m := range sent {
		size += m.Size()
	}
	if usage.InputTokens <= 0 || size < minMeasured {
		return 0
	}
	counted := max(0, usage.InputTokens-messageTokens*int64(len(sent)))
	return int(sane(max(1, scale(counted, bytesPerRate, size))))
}

// sane returns a rate, or the nearest one that can be meant.
func sane[N int | int64](rate N) int64 {
	if rate == 0 {
		return DefaultTokenRate
	}
	return int64(min(max(rate, MinTokenRate), maxTokenRate))
}

// scale returns n·by/per, rounded up; the most that there is if it is more.
// None of them may be negative.
func scale(n, by, per int64) int64 {
	high, low := bits.Mul64(uint64(n), uint64(by))
	low, carry := bits.Add64(low, uint64(per)-1, 0)
	if high += carry; high >= uint64(per) {
		return math.MaxInt64
	}
	quotient, _ := bits.Div64(high, low, uint64(per))
	return int64(min(quotient, math.MaxInt64))
}
