package memory_test

import (
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/host/memory"
)

func TestTokens(t *testing.T) {
	for name, tc := range map[string]struct {
		message carrel.Message
		rate    int
		want    int64
	}{
		"an empty message has what every message has": {carrel.Message{}, 0, 4},
		"a quarter of the bytes at the default rate":  {carrel.Message{Content: strings.Repeat("x", 400)}, 0, 104},
		"part of a token counts as one":               {carrel.Message{Content: "x"}, 0, 5},
		"bytes are counted, not characters":           {carrel.Message{Content: strings.Repeat("語", 100)}, 0, 79},
		"at a rate that was measured":                 {carrel.Message{Content: strings.Repeat("x", 400)}, 500, 204},
		"tool calls count with ids, names and arguments": {carrel.Message{
			Content: "12", ToolCalls: []carrel.ToolCall{{ID: "345", Name: "678", Args: []byte(`{"a":1}`)}, {Args: []byte("{}")}},
		}, 1000, 4 + 17},
		"a result counts with the id of its call": {carrel.Message{Content: "12", ToolCallID: "34"}, 1000, 8},
		"a rate that is too high":                 {carrel.Message{Content: "1234"}, math.MaxInt, 8},
		"a rate that is too low":                  {carrel.Message{Content: strings.Repeat("x", 100)}, 1, 14},
		"a rate below nothing":                    {carrel.Message{Content: strings.Repeat("x", 100)}, math.MinInt, 14},
	} {
		t.Run(name, func(t *testing.T) {
			if got := memory.Tokens(tc.message, tc.rate); got != tc.want {
				t.Errorf("got %d, want %d", got, tc.want)
			}
		})
	}
}

func TestTokenBytes(t *testing.T) {
	for name, tc := range map[string]struct {
		tokens int64
		rate   int
		want   int64
	}{
		"four bytes a token at the default rate": {1001, 0, 4004},
		"at a rate that was measured":            {1001, 500, 2002},
		"part of a byte counts as one":           {1, 300, 4},
		"a rate that is too low":                 {1, 1, 10},
		"a rate that is too high":                {7, math.MaxInt, 7},
		"no tokens":                              {0, 250, 0},
		"more than can be counted":               {math.MaxInt64, 250, math.MaxInt64},
	} {
		t.Run(name, func(t *testing.T) {
			if got := memory.TokenBytes(tc.tokens, tc.rate); got != tc.want {
				t.Errorf("got %d, want %d", got, tc.want)
			}
		})
	}
}

func TestTokenRate(t *testing.T) {
	long := []carrel.Message{{Content: strings.Repeat("x", 600)}, {Content: strings.Repeat("y", 400)}}
	for name, tc := range map[string]struct {
		sent  []carrel.Message
		input int64
		want  int
	}{
		"what messages have besides their bytes is not counted": {long, 308, 300},
		"a provider that counts nothing is not believed":        {long, 0, 0},
		"one that counts less than nothing neither":             {long, -5, 0},
		"too few bytes say nothing":                             {[]carrel.Message{{Content: strings.Repeat("x", 255)}}, 300, 0},
		"just enough bytes do":                                  {[]carrel.Message{{Content: strings.Repeat("x", 256)}}, 4 + 64, 250},
		"nothing sent says nothing":                             {nil, 10, 0},
		"one that says far too much is held to the highest":     {long, math.MaxInt64, 1000},
		"one that says far too little to the lowest":            {long, 1, 100},
		"one that counts just the overhead, too":                {long, 8, 100},
		"tool calls are bytes like others": {
			[]carrel.Message{{ToolCalls: []carrel.ToolCall{{Args: []byte(strings.Repeat("x", 1000))}}}}, 404, 400,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := memory.TokenRate(tc.sent, carrel.Usage{InputTokens: tc.input, OutputTokens: 1 << 30}); got != tc.want {
				t.Errorf("got %d, want %d", got, tc.want)
			}
		})
	}
}

func TestWhatWasMeasuredIsWhatIsEstimated(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var sent []carrel.Message
		var size int64
		for range rapid.IntRange(1, 20).Draw(t, "messages") {
			n := rapid.IntRange(20, 2000).Draw(t, "bytes")
			sent = append(sent, carrel.Message{Content: strings.Repeat("x", n)})
			size += int64(n)
		}
		if size < 256 {
			t.Skip("too little to measure")
		}
		actual := rapid.Int64Range(100, 1000).Draw(t, "rate")
		counted := 4*int64(len(sent)) + size*actual/1000
		rate := memory.TokenRate(sent, carrel.Usage{InputTokens: counted})
		var estimated int64
		for _, m := range sent {
			estimated += memory.Tokens(m, rate)
		}
		// Never fewer, but for what the lowest rate rounds away; more by what a
		// thousandth and the parts of tokens make.
		if most := counted + size/1000 + int64(len(sent)) + 1; estimated < counted || estimated > most {
			t.Errorf("counted %d, estimated %d at %d", counted, estimated, rate)
		}
	})
}
