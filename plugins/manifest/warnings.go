package manifest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/memory"
	"github.com/carrelhost/carrel/host/prompt"
)

// Warnings says what a plugin's author will hardly have meant, although a host
// takes it: a template that uses a param which a call may leave out, example
// turns that look like templates or that the window never holds all of, and a
// chat method without a system message where others have one. The manifest is
// one that Parse returned; the caller owns the result.
func Warnings(m abi.Manifest) []string {
	var out []string
	var without []string
	with := false
	for _, s := range m.Services {
		for _, method := range s.Methods {
			if method.Kind != abi.KindChat {
				continue
			}
			name := s.Name + "." + method.Name
			system := method.SystemMessage
			if system == "" {
				system = s.SystemMessage
			}
			if system == "" {
				without = append(without, name)
			} else {
				with = true
			}
			out = append(out, optionalUses(name, system+method.UserMessage, method.Params)...)
			out = append(out, doubtfulSeeds(name, system, method)...)
		}
	}
	if with {
		for _, name := range without {
			out = append(out, fmt.Sprintf("%s has no system message, unlike other methods", name))
		}
	}
	return out
}

// optionalUses warns of the params in a method's templates that are not
// required.
func optionalUses(method, text string, params []byte) []string {
	t, err := prompt.Parse(text)
	if err != nil {
		return nil // Parse refuses it
	}
	var s struct {
		Required []string `json:"required"`
	}
	if err := json.Unmarshal(params, &s); err != nil {
		return nil // as above
	}
	var out, seen []string
	for _, path := range t.Paths() {
		name, _, _ := strings.Cut(path, ".")
		if slices.Contains(s.Required, name) || slices.Contains(seen, name) {
			continue
		}
		seen = append(seen, name)
		out = append(out, fmt.Sprintf("a template of %s uses {{%s}}, which is an optional param: a call without it fails", method, path))
	}
	return out
}

// doubtfulSeeds warns of example turns that use params, which are none of
// their business, and of more than the smallest first call has room for.
func doubtfulSeeds(name, system string, method abi.Method) []string {
	var out []string
	var turns []carrel.Turn
	for i, messages := range memory.Seeds(method.Seed) {
		turns = append(turns, carrel.Turn{N: int64(i) + 1, Messages: messages})
		for _, m := range messages {
			if t, err := prompt.Parse(m.Content); err == nil && len(t.Paths()) > 0 {
				out = append(out, fmt.Sprintf("example turn %d of %s uses {{%s}}, but examples are no templates: it is sent as it is",
					i+1, name, t.Paths()[0]))
			}
		}
	}
	sent, err := memory.NewWindow(*method.Window, 0, 0).Send(system, turns, []carrel.Message{{Role: carrel.RoleUser}})
	if err != nil {
		return append(out, fmt.Sprintf("the window of %s has no room for its system message", name))
	}
	held := (len(sent) - 1) / 2 // the current message, perhaps the system's, and pairs
	if held < len(turns) {
		out = append(out, fmt.Sprintf("the window of %s has room for %d of its %d example turns", name, held, len(turns)))
	}
	return out
}
