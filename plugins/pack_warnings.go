package plugins

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/prompt"
)

// Warnings says what a plugin's author will hardly have meant, although a host
// takes it: a template that uses a param which a call may leave out, and a
// chat method without a system message where others have one. The manifest is
// one that ParseManifest returned; the caller owns the result.
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
		return nil // ParseManifest refuses it
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
