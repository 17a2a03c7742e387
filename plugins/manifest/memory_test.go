package manifest_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/plugins/manifest"
)

// examples is a seed of n turns whose texts have so many bytes each.
func examples(n, bytes int) string {
	text := strings.Repeat("x", bytes)
	turn := fmt.Sprintf(`{"user":%q,"assistant":%q}`, text, text)
	return `,"seed":[` + strings.TrimSuffix(strings.Repeat(turn+",", n), ",") + `]`
}

func TestParseMemoryFaults(t *testing.T) {
	const method = "/services/0/methods/0"
	for name, tc := range map[string]struct {
		members string
		want    []string // pointers and parts of messages in turn
	}{
		"a window of tokens without a max":               {`,"window":{"type":"tokens"}`, []string{method + "/window/max", "has no default"}},
		"a window of tokens that is too large":           {`,"window":{"type":"tokens","max":2000001}`, []string{method + "/window/max", "from 1 to 2000000"}},
		"a window of no tokens":                          {`,"window":{"type":"tokens","max":0}`, []string{method + "/window/max", "from 1"}},
		"a window of messages that only tokens may have": {`,"window":{"type":"messages","max":2000}`, []string{method + "/window/max", "from 1 to 1000"}},
		"a way to retain that nobody knows":              {`,"retain":"turns"`, []string{method + "/retain", `use "history", which keeps all turns, or "window"`}},
		"an empty way to retain":                         {`,"retain":""`, []string{method + "/retain", `""`}},
		"a way to retain that is no string":              {`,"retain":true`, []string{method + "/retain", "a string is expected"}},
		"the model's seed in its old place":              {`,"seed":7`, []string{method + "/seed", "is `randomSeed`"}},
		"a seed that is no array":                        {`,"seed":{"user":"u","assistant":"a"}`, []string{method + "/seed", "an array is expected"}},
		"an example that is no object":                   {`,"seed":["u"]`, []string{method + "/seed/0", "an example turn must be an object"}},
		"an example of nothing":                          {`,"seed":[{}]`, []string{method + "/seed/0/user", "missing", method + "/seed/0/assistant", "missing"}},
		"examples with empty texts":                      {`,"seed":[{"user":"","assistant":"a"},{"user":"u","assistant":""}]`, []string{method + "/seed/0/user", "empty", method + "/seed/1/assistant", "empty"}},
		"an example with a misspelt member":              {`,"seed":[{"user":"u","asistant":"a"}]`, []string{method + "/seed/0/asistant", "did you mean `assistant`?", method + "/seed/0/assistant", "missing"}},
		"an example with another role":                   {`,"seed":[{"user":"u","assistant":"a","system":"s"}]`, []string{method + "/seed/0/system", "no member"}},
		"a text that is no string":                       {`,"seed":[{"user":1,"assistant":"a"}]`, []string{method + "/seed/0/user", "a string is expected"}},
		"too many examples":                              {examples(abi.MaxSeedTurns+1, 1), []string{method + "/seed", "at most 64"}},
		"examples that are too long together":            {examples(2, abi.MaxSeedBytes/4+1), []string{method + "/seed", "65540 bytes long, at most 65536"}},
		"every fault at once, in document order": {`,"seed":[{"user":""}],"retain":"x","window":{"type":"y"}`, []string{
			method + "/seed/0/user", "empty", method + "/seed/0/assistant", "missing", method + "/retain", "no way", method + "/window/type", "no window"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := manifest.Parse([]byte(withMethod(msgParams+tc.members)), manifest.Known{})
			wantFaults(t, err, tc.want...)
		})
	}
	for name, members := range map[string]string{
		"as many examples as there may be": examples(abi.MaxSeedTurns, 1),
		"examples that are just not long":  examples(2, abi.MaxSeedBytes/4),
		"no examples":                      `,"seed":[]`,
		"the smallest window of tokens":    `,"window":{"max":1,"type":"tokens"}`,
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := manifest.Parse([]byte(withMethod(msgParams+members)), manifest.Known{}); err != nil {
				t.Error(err)
			}
		})
	}
}
