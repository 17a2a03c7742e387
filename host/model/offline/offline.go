// Package offline is a model provider that needs no network, no key and no
// model: it answers with what it was sent. It is for a first run, for demos
// and for showing what memory does. The same messages always get the same
// answer.
package offline

import (
	"context"
	"fmt"
	"strings"
	"unicode"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/model"
)

const (
	// name is what Response.Model says if the request names no model.
	name = "offline"
	// maxQuoted is how many characters of a message are repeated.
	maxQuoted = 80
	// maxEarlier is how many earlier user messages are repeated.
	maxEarlier = 3
)

// Provider is the offline model. It is safe for concurrent use.
type Provider struct{}

var _ model.Provider = (*Provider)(nil)

// New returns the offline model. It needs no closing.
func New() *Provider { return &Provider{} }

// Generate answers in a fixed format of four sentences on one line:
//
//	[offline model] I was sent 4 messages. System message: "You are nice". Before, you said: "hello". Now you say: "who am I?".
//
// "Before" are the user messages but for the last, oldest first; of more than
// three, the last three: `Before, you said 5 things, lately: "c", "d", "e".`
// What is not there is `No system message.`, `Before, you said nothing.` and
// `Now you say nothing.` Quoted texts are on one line, at most 80 characters
// long, and then end in "…".
//
// Of the options, MaxOutputTokens and Stop are honoured, the others change
// nothing. A token is a word, in both counts of the usage and in the limit. A
// streamed answer has one piece for each word. The only errors are those of
// ctx and of onDelta, wrapped.
func (p *Provider) Generate(ctx context.Context, r model.Request, onDelta func(text string) error) (model.Response, error) {
	if err := ctx.Err(); err != nil {
		return model.Response{}, fmt.Errorf("offline.Generate: %w", err)
	}
	pieces, reason := limit(words(answer(r.Messages)), r.Options)
	for _, piece := range pieces {
		if onDelta == nil {
			break
		}
		if err := ctx.Err(); err != nil {
			return model.Response{}, fmt.Errorf("offline.Generate: %w", err)
		}
		if err := onDelta(piece); err != nil {
			return model.Response{}, fmt.Errorf("offline.Generate: the answer's receiver stopped it: %w", err)
		}
	}
	resp := model.Response{
		Text: strings.Join(pieces, ""), FinishReason: reason, Model: r.Model,
		Usage: carrel.Usage{OutputTokens: int64(len(pieces))},
	}
	if resp.Model == "" {
		resp.Model = name
	}
	for _, m := range r.Messages {
		resp.Usage.InputTokens += int64(len(strings.Fields(m.Content)))
	}
	return resp, nil
}

// answer is the whole answer to the messages.
func answer(messages []carrel.Message) string {
	system := "No system message."
	var said []string
	for _, m := range messages {
		switch m.Role {
		case carrel.RoleSystem:
			system = "System message: " + quote(m.Content) + "."
		case carrel.RoleUser:
			said = append(said, quote(m.Content))
		case carrel.RoleAssistant, carrel.RoleTool: // counted, not repeated
		}
	}
	before, now := "Before, you said nothing.", "Now you say nothing."
	if n := len(said); n > 0 {
		now = "Now you say: " + said[n-1] + "."
		said = said[:n-1]
	}
	switch n := len(said); {
	case n > maxEarlier:
		before = fmt.Sprintf("Before, you said %d things, lately: %s.", n, strings.Join(said[n-maxEarlier:], ", "))
	case n > 0:
		before = fmt.Sprintf("Before, you said: %s.", strings.Join(said, ", "))
	}
	plural := "s"
	if len(messages) == 1 {
		plural = ""
	}
	return fmt.Sprintf("[offline model] I was sent %d message%s. %s %s %s", len(messages), plural, system, before, now)
}

// quote puts a text on one line, shortens it and puts it in quotes.
func quote(text string) string {
	oneLine := strings.Join(strings.FieldsFunc(text, func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r)
	}), " ")
	seen := 0
	for i := range oneLine {
		if seen == maxQuoted {
			return `"` + oneLine[:i] + `…"`
		}
		seen++
	}
	return `"` + oneLine + `"`
}

// words cuts a text before each space.
func words(text string) []string {
	out := strings.SplitAfter(text, " ")
	for i := 1; i < len(out); i++ {
		out[i-1] = strings.TrimSuffix(out[i-1], " ")
		out[i] = " " + out[i]
	}
	return out
}

// limit cuts the answer as the options say, and says why it ends.
func limit(pieces []string, o abi.Generation) ([]string, model.FinishReason) {
	reason := model.FinishStop
	if o.MaxOutputTokens != nil && len(pieces) > *o.MaxOutputTokens {
		pieces, reason = pieces[:max(*o.MaxOutputTokens, 0)], model.FinishLength
	}
	text := strings.Join(pieces, "")
	end := len(text)
	for _, s := range o.Stop {
		if i := strings.Index(text, s); i >= 0 && s != "" {
			end = min(end, i)
		}
	}
	if end == len(text) {
		return pieces, reason
	}
	if end == 0 {
		return nil, model.FinishStop
	}
	return words(text[:end]), model.FinishStop
}
