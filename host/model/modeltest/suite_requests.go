package modeltest

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/model"
)

// testRequests checks what a provider sends.
func testRequests(t *testing.T, open opener) {
	for mode, stream := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Run("the messages are sent as they are, in order", func(t *testing.T) { testMessages(t, open, stream) })
			t.Run("an option is sent only if it is set", func(t *testing.T) { testOptions(t, open, stream) })
			t.Run("nothing is kept between calls", func(t *testing.T) {
				f := open.start(t)
				f.must(ask("first"), stream)
				f.must(ask("second"), stream)
				if got, want := f.server.Send(2), []string{"user:second"}; !slices.Equal(got, want) {
					t.Errorf("send 2 is %q, want %q", got, want)
				}
			})
			t.Run("the key is sent as a bearer token", func(t *testing.T) {
				f := open.start(t)
				f.must(ask("hi"), stream)
				if got := f.server.Calls()[0].Header.Values("Authorization"); !slices.Equal(got, []string{"Bearer " + Key}) {
					t.Errorf("Authorization is %q", got)
				}
			})
			t.Run("a streamed answer is asked for only if somebody listens", func(t *testing.T) {
				f := open.start(t)
				f.must(ask("hi"), stream)
				if c := f.server.Calls()[0]; c.Stream != stream || c.includeUsage != stream {
					t.Errorf("stream is %v and include_usage %v, want both %v", c.Stream, c.includeUsage, stream)
				}
			})
		})
	}
}

func testMessages(t *testing.T, open opener, stream bool) {
	add := carrel.ToolCall{ID: "c1", Name: "add", Args: json.RawMessage(`{"a":1,"b":"<&>"}`)}
	now := carrel.ToolCall{ID: "c2", Name: "now", Args: json.RawMessage(`{}`)}
	for name, messages := range map[string][]carrel.Message{
		"one user message": {{Role: carrel.RoleUser, Content: "hi"}},
		"a conversation": {
			{Role: carrel.RoleSystem, Content: "You are nice"},
			{Role: carrel.RoleUser, Content: "U1"},
			{Role: carrel.RoleAssistant, Content: "A1"},
			{Role: carrel.RoleUser, Content: "U2"},
		},
		"neighbours of one role are not merged": {
			{Role: carrel.RoleUser, Content: "same"},
			{Role: carrel.RoleUser, Content: "same"},
			{Role: carrel.RoleAssistant, Content: "a"},
			{Role: carrel.RoleAssistant, Content: "b"},
			{Role: carrel.RoleUser, Content: "c"},
		},
		"a system message stays where it stands": {
			{Role: carrel.RoleUser, Content: "U1"},
			{Role: carrel.RoleSystem, Content: "late"},
			{Role: carrel.RoleUser, Content: "U2"},
		},
		"empty contents": {
			{Role: carrel.RoleSystem, Content: ""},
			{Role: carrel.RoleUser, Content: ""},
			{Role: carrel.RoleAssistant, Content: ""},
			{Role: carrel.RoleUser, Content: "x"},
		},
		"any text": {
			{Role: carrel.RoleUser, Content: " \x00\t\r\n\"\\</script>& \u2028 日本語 🧶 "},
		},
		"tool calls and their results": {
			{Role: carrel.RoleUser, Content: "U"},
			{Role: carrel.RoleAssistant, Content: "let me see", ToolCalls: []carrel.ToolCall{add, now}},
			{Role: carrel.RoleTool, Content: "3", ToolCallID: "c1"},
			{Role: carrel.RoleTool, Content: "", ToolCallID: "c2"},
		},
		"tool calls without a text": {
			{Role: carrel.RoleUser, Content: "U"},
			{Role: carrel.RoleAssistant, ToolCalls: []carrel.ToolCall{now}},
			{Role: carrel.RoleTool, Content: "noon", ToolCallID: "c2"},
			{Role: carrel.RoleAssistant, Content: "it is noon"},
			{Role: carrel.RoleUser, Content: "thanks"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := open.start(t)
			before := slices.Clone(messages)
			f.must(model.Request{Model: "m1", Messages: messages}, stream)
			got := f.server.Calls()[0]
			if got.Model != "m1" {
				t.Errorf("the model is %q, want m1", got.Model)
			}
			if diff := cmp.Diff(before, got.Messages); diff != "" {
				t.Errorf("sent messages (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, messages); diff != "" {
				t.Errorf("the caller's messages were changed:\n%s", diff)
			}
		})
	}
}

func testOptions(t *testing.T, open opener, stream bool) {
	for name, tc := range map[string]struct {
		options abi.Generation
		extra   int // fields in the body beyond those of a request without options
	}{
		"none":                      {abi.Generation{}, 0},
		"a temperature":             {abi.Generation{Temperature: new(0.7)}, 1},
		"a temperature of zero":     {abi.Generation{Temperature: new(0.0)}, 1},
		"topP":                      {abi.Generation{TopP: new(0.1)}, 1},
		"topP of zero":              {abi.Generation{TopP: new(0.0)}, 1},
		"maxOutputTokens":           {abi.Generation{MaxOutputTokens: new(7)}, 1},
		"maxOutputTokens of zero":   {abi.Generation{MaxOutputTokens: new(0)}, 1},
		"stop":                      {abi.Generation{Stop: []string{"\n", "END"}}, 1},
		"a seed":                    {abi.Generation{RandomSeed: new(int64(-1 << 53))}, 1},
		"a seed of zero":            {abi.Generation{RandomSeed: new(int64(0))}, 1},
		"reasoningEffort":           {abi.Generation{ReasoningEffort: "low"}, 1},
		"all of them with one call": {abi.Generation{Temperature: new(1.5), TopP: new(0.25), MaxOutputTokens: new(1), Stop: []string{"."}, RandomSeed: new(int64(42)), ReasoningEffort: "high"}, 6},
	} {
		t.Run(name, func(t *testing.T) {
			f := open.start(t)
			// Names at which a client might think that it knows better.
			for _, name := range []string{"m1", "gpt-4o", "o1-mini", "gpt-5"} {
				r := ask("hi")
				r.Model, r.Options = name, tc.options
				f.must(r, stream)
			}
			fields := []string{"messages", "model"}
			if stream {
				fields = append(fields, "stream", "stream_options")
			}
			for _, c := range f.server.Calls() {
				if diff := cmp.Diff(tc.options, c.Options); diff != "" {
					t.Errorf("%s: sent options (-want +got):\n%s", c.Model, diff)
				}
				var body map[string]json.RawMessage
				if err := json.Unmarshal(c.Body, &body); err != nil {
					t.Fatal(err)
				}
				if !stream {
					delete(body, "stream") // false may be said
				}
				if len(body) != len(fields)+tc.extra {
					t.Errorf("%s: the body has the fields %v, want %v and %d for options",
						c.Model, slices.Sorted(maps.Keys(body)), fields, tc.extra)
				}
			}
		})
	}
}
