package offline_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/model"
	"github.com/carrelhost/carrel/host/model/offline"
)

func system(s string) carrel.Message { return carrel.Message{Role: carrel.RoleSystem, Content: s} }
func user(s string) carrel.Message   { return carrel.Message{Role: carrel.RoleUser, Content: s} }
func said(s string) carrel.Message   { return carrel.Message{Role: carrel.RoleAssistant, Content: s} }

func TestAnswer(t *testing.T) {
	for name, tc := range map[string]struct {
		messages []carrel.Message
		options  abi.Generation
		want     string
		reason   model.FinishReason
	}{
		"a conversation is repeated without what the model said": {
			messages: []carrel.Message{system("You are a nice assistant"), user("hello"), said("A1"), user("who am I?")},
			want: `[offline model] I was sent 4 messages. System message: "You are a nice assistant". ` +
				`Before, you said: "hello". Now you say: "who am I?".`,
		},
		"a first message without a system message": {
			messages: []carrel.Message{user("hi")},
			want:     `[offline model] I was sent 1 message. No system message. Before, you said nothing. Now you say: "hi".`,
		},
		"three earlier messages are all repeated": {
			messages: []carrel.Message{user("a"), user("b"), user("c"), user("d")},
			want: `[offline model] I was sent 4 messages. No system message. ` +
				`Before, you said: "a", "b", "c". Now you say: "d".`,
		},
		"of more than three earlier messages the last three are repeated": {
			messages: []carrel.Message{user("a"), user("b"), user("c"), user("d"), user("e"), user("f")},
			want: `[offline model] I was sent 6 messages. No system message. ` +
				`Before, you said 5 things, lately: "c", "d", "e". Now you say: "f".`,
		},
		"tool messages count and are not repeated": {
			messages: []carrel.Message{
				user("add"),
				{Role: carrel.RoleAssistant, ToolCalls: []carrel.ToolCall{{ID: "c1", Name: "add"}}},
				{Role: carrel.RoleTool, Content: "3", ToolCallID: "c1"},
			},
			want: `[offline model] I was sent 3 messages. No system message. Before, you said nothing. Now you say: "add".`,
		},
		"no messages": {
			want: `[offline model] I was sent 0 messages. No system message. Before, you said nothing. Now you say nothing.`,
		},
		"lines and control characters become spaces": {
			messages: []carrel.Message{system(" two\r\n\tlines "), user("a\x00\x1b[31mb")},
			want: `[offline model] I was sent 2 messages. System message: "two lines". ` +
				`Before, you said nothing. Now you say: "a [31mb".`,
		},
		"80 characters are quoted whole": {
			messages: []carrel.Message{user(strings.Repeat("é", 80))},
			want: `[offline model] I was sent 1 message. No system message. Before, you said nothing. ` +
				`Now you say: "` + strings.Repeat("é", 80) + `".`,
		},
		"81 characters are shortened between two characters": {
			messages: []carrel.Message{user(strings.Repeat("日", 81))},
			want: `[offline model] I was sent 1 message. No system message. Before, you said nothing. ` +
				`Now you say: "` + strings.Repeat("日", 80) + `…".`,
		},
		"maxOutputTokens counts words": {
			messages: []carrel.Message{user("hi")}, options: abi.Generation{MaxOutputTokens: new(4)},
			want: `[offline model] I was`, reason: model.FinishLength,
		},
		"maxOutputTokens of zero leaves nothing": {
			messages: []carrel.Message{user("hi")}, options: abi.Generation{MaxOutputTokens: new(0)},
			want: ``, reason: model.FinishLength,
		},
		"maxOutputTokens that suffice change nothing": {
			messages: []carrel.Message{user("hi")}, options: abi.Generation{MaxOutputTokens: new(18)},
			want: `[offline model] I was sent 1 message. No system message. Before, you said nothing. Now you say: "hi".`,
		},
		"the answer ends before the first stop sequence": {
			messages: []carrel.Message{user("hi")}, options: abi.Generation{Stop: []string{"", "Now", "system", "zzz"}},
			want: `[offline model] I was sent 1 message. No `,
		},
		"a stop sequence at the start leaves nothing": {
			messages: []carrel.Message{user("hi")}, options: abi.Generation{Stop: []string{"[offline"}},
			want: ``,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.reason == "" {
				tc.reason = model.FinishStop
			}
			r := model.Request{Model: "m", Messages: tc.messages, Options: tc.options}
			whole, err := offline.New().Generate(t.Context(), r, nil)
			if err != nil {
				t.Fatal(err)
			}
			var pieces []string
			streamed, err := offline.New().Generate(t.Context(), r, func(text string) error {
				pieces = append(pieces, text)
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			want := model.Response{Text: tc.want, FinishReason: tc.reason, Model: "m"}
			for _, m := range tc.messages {
				want.Usage.InputTokens += int64(len(strings.Fields(m.Content)))
			}
			want.Usage.OutputTokens = int64(len(pieces))
			if whole != want || streamed != want {
				t.Errorf("whole    %+v\nstreamed %+v\nwant     %+v", whole, streamed, want)
			}
			if joined := strings.Join(pieces, ""); joined != tc.want {
				t.Errorf("the pieces joined are %q, want %q", joined, tc.want)
			}
			for _, piece := range pieces {
				if strings.Contains(strings.TrimPrefix(piece, " "), " ") || piece == "" {
					t.Errorf("the piece %q is no word", piece)
				}
			}
		})
	}
}

func TestModelIsOfflineIfNoneIsNamed(t *testing.T) {
	resp, err := offline.New().Generate(t.Context(), model.Request{}, nil)
	if err != nil || resp.Model != "offline" {
		t.Errorf("model %q, error %v; want offline", resp.Model, err)
	}
}

func TestUsageCountsWords(t *testing.T) {
	resp, err := offline.New().Generate(t.Context(), model.Request{
		Messages: []carrel.Message{system("be nice"), user("one two\nthree")},
		Options:  abi.Generation{MaxOutputTokens: new(4)},
	}, nil)
	if want := (carrel.Usage{InputTokens: 5, OutputTokens: 4}); err != nil || resp.Usage != want {
		t.Errorf("usage %+v, error %v; want %+v", resp.Usage, err, want)
	}
}

func TestCancellation(t *testing.T) {
	r := model.Request{Messages: []carrel.Message{user("hi")}}
	for name, listen := range map[string]bool{"whole": false, "streamed": true} {
		t.Run(name+": cancelled from the start", func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			var onDelta func(string) error
			if listen {
				onDelta = func(text string) error { t.Errorf("the piece %q was passed on", text); return nil }
			}
			if _, err := offline.New().Generate(ctx, r, onDelta); !errors.Is(err, context.Canceled) {
				t.Errorf("error %v, want one that wraps context.Canceled", err)
			}
		})
	}
	t.Run("cancelled within the answer", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var pieces []string
		_, err := offline.New().Generate(ctx, r, func(text string) error {
			pieces = append(pieces, text)
			cancel()
			return nil
		})
		if !errors.Is(err, context.Canceled) || !slices.Equal(pieces, []string{"[offline"}) {
			t.Errorf("pieces %q, error %v", pieces, err)
		}
	})
	t.Run("an error of the receiver stops the call", func(t *testing.T) {
		enough := errors.New("enough")
		calls := 0
		_, err := offline.New().Generate(t.Context(), r, func(string) error { calls++; return enough })
		if !errors.Is(err, enough) || calls != 1 {
			t.Errorf("%d pieces, error %v", calls, err)
		}
	})
}

func TestCallsDoNotSeeEachOther(t *testing.T) {
	p := offline.New()
	var done sync.WaitGroup
	for _, text := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		done.Go(func() {
			resp, err := p.Generate(t.Context(), model.Request{Messages: []carrel.Message{user(text)}}, nil)
			if want := `Before, you said nothing. Now you say: "` + text + `".`; err != nil || !strings.HasSuffix(resp.Text, want) {
				t.Errorf("%s: %q, error %v", text, resp.Text, err)
			}
		})
	}
	done.Wait()
}

func FuzzAnswer(f *testing.F) {
	f.Add("You are nice", "hello", "who am I?", "you", 5)
	f.Add("", "\xff\x00\u2028", strings.Repeat("日", 100), " ", -1)
	f.Fuzz(func(t *testing.T, sys, before, now, stop string, most int) {
		r := model.Request{Messages: []carrel.Message{system(sys), user(before), user(now)}}
		if most >= 0 {
			r.Options = abi.Generation{MaxOutputTokens: &most, Stop: []string{stop}}
		}
		var joined strings.Builder
		resp, err := offline.New().Generate(t.Context(), r, func(text string) error {
			joined.WriteString(text)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if joined.String() != resp.Text {
			t.Errorf("the pieces joined are %q, the text is %q", joined.String(), resp.Text)
		}
		if n := utf8.RuneCountInString(resp.Text); n > 500 || strings.ContainsAny(resp.Text, "\n\x00") {
			t.Errorf("the answer of %d characters is long or has lines: %q", n, resp.Text)
		}
	})
}
