package plugins

import (
	"maps"
	"slices"
	"strings"
)

// level is a kind of object in a manifest with the members it may have.
type level struct {
	what  string   // with its article, for messages
	now   []string // what this host reads
	later []string // what carrel/v1 has and this host does not: a fault with its own message
}

var (
	levelPlugin = level{"the manifest",
		[]string{"abi", "name", "version", "description", "services", "defaultMemoryId", "allowDefaultIdLeak", "capabilities"},
		[]string{"tools", "guards", "memoryNamespace", "warmup", "limits", "engine"}}
	levelService = level{"a service",
		[]string{"name", "description", "scope", "systemMessage", "methods"}, nil}
	levelMethod = level{"a method",
		[]string{"name", "kind", "description", "params", "output", "systemMessage", "userMessage", "memoryId", "model",
			"temperature", "topP", "maxOutputTokens", "stop", "seed", "reasoningEffort", "window"},
		[]string{"export", "retain", "tools", "maxToolRounds", "maxToolCalls", "onToolError", "inputGuards", "outputGuards",
			"maxRepairs", "maxReprompts", "retrieve"}}
	levelWindow    = level{"a window", []string{"type", "max"}, nil}
	levelDefaultID = level{"defaultMemoryId", []string{"from", "priority"}, []string{"export"}}

	levelCapabilities = level{"capabilities", []string{"models"}, []string{"http", "kv", "secrets", "call"}}
)

// checkMembers reports every member that this host does not read.
func (c *checker) checkMembers(members map[string]any, at string, l level) {
	for _, name := range slices.Sorted(maps.Keys(members)) {
		switch {
		case slices.Contains(l.now, name):
		case slices.Contains(l.later, name):
			c.fault(pointer(at, name), "`%s` is not supported by this host yet; remove it, or use a host that has it", name)
		case len(c.faults) > maxFaults: // not shown, so not worth a search
			c.fault(pointer(at, name), "%s has no such member; remove it", l.what)
		default:
			c.fault(pointer(at, name), "%s has no member %s%s", l.what, quote(name), suggestion(name, l))
		}
	}
}

// suggestion ends the message about a member that a level does not have.
func suggestion(name string, l level) string {
	members := slices.Concat(l.now, l.later)
	for _, m := range members {
		if strings.EqualFold(strings.NewReplacer("_", "", "-", "").Replace(name), m) {
			return "; did you mean `" + m + "`? Names are exact, in case too"
		}
	}
	for _, other := range []level{levelPlugin, levelService, levelMethod} {
		if other.what != l.what && (slices.Contains(other.now, name) || slices.Contains(other.later, name)) {
			return "; it belongs into " + other.what
		}
	}
	best, distance := "", 1+len(name)/3
	for _, m := range members {
		if d := editDistance(name, m, distance); d <= distance && (best == "" || d < distance) {
			best, distance = m, d
		}
	}
	if best != "" {
		return "; did you mean `" + best + "`?"
	}
	return "; remove it (it may have " + strings.Join(l.now, ", ") + ")"
}

// editDistance counts the insertions, deletions and replacements between two
// names, in bytes; more than most is returned as most+1.
func editDistance(a, b string, most int) int {
	if len(a) > len(b)+most || len(b) > len(a)+most {
		return most + 1
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
