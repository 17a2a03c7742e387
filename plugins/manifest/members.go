package manifest

import (
	"maps"
	"slices"
	"strings"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox/module"
	"github.com/carrelhost/carrel/internal/spelling"
)

// level is a kind of object in a manifest with the members it may have.
type level struct {
	what  string   // with its article, for messages
	now   []string // what this host reads
	later []string // what carrel/v1 has and this host does not: a fault with its own message

	// A method of the other kind has these.
	others []string
	mend   string // what to do about one of them
}

var (
	levelPlugin = level{
		what: "the manifest",
		now: []string{"abi", "name", "version", "description", "services", "defaultMemoryId", "allowDefaultIdLeak",
			"memoryNamespace", "capabilities", "limits", "warmup"},
		later: []string{"tools", "guards", "engine"},
	}
	levelService = level{what: "a service", now: []string{"name", "description", "scope", "systemMessage", "methods"}}
	// levelMethod is a method of which it is not known what kind it is.
	levelMethod = level{what: "a method", now: slices.Concat(membersOfMethods, membersOfHandlers, membersOfChats), later: laterOfChats}
	levelChat   = level{
		what: "a chat method", now: slices.Concat(membersOfMethods, membersOfChats), later: laterOfChats,
		others: membersOfHandlers, mend: "belongs to handlers; remove it, or write \"kind\": \"handler\"",
	}
	levelHandler = level{
		what: "a handler", now: slices.Concat(membersOfMethods, membersOfHandlers),
		others: slices.Concat(membersOfChats, laterOfChats), mend: "belongs to chat methods; remove it, or write \"kind\": \"chat\"",
	}
	levelWindow       = level{what: "a window", now: []string{"type", "max"}}
	levelExample      = level{what: "an example turn", now: []string{"user", "assistant"}}
	levelDefaultID    = level{what: "defaultMemoryId", now: []string{"from", "export", "priority"}}
	levelCapabilities = level{what: "capabilities", now: []string{"models", "call"}, later: []string{"http", "kv", "secrets"}}
	levelWarmup       = level{what: "warmup", now: []string{"method", "params"}}
	levelLimits       = level{what: "limits", now: []string{"memoryMiB", "timeout"}, later: []string{"fuel"}}
)

var (
	membersOfMethods  = []string{"name", "kind", "description", "params", "output"}
	membersOfHandlers = []string{"export"}
	membersOfChats    = []string{"systemMessage", "userMessage", "memoryId", "model", "temperature", "topP", "maxOutputTokens", "stop",
		"randomSeed", "reasoningEffort", "window", "retain", "seed"}
	laterOfChats = []string{"tools", "maxToolRounds", "maxToolCalls", "onToolError", "inputGuards", "outputGuards",
		"maxRepairs", "maxReprompts", "retrieve"}
)

func levelOfMethod(v any) level {
	members, _ := v.(map[string]any)
	switch members["kind"] {
	case abi.KindChat:
		return levelChat
	case abi.KindHandler:
		return levelHandler
	default:
		return levelMethod
	}
}

// checkMembers reports every member that this host does not read.
func (c *checker) checkMembers(members map[string]any, at string, l level) {
	for _, name := range slices.Sorted(maps.Keys(members)) {
		switch {
		case slices.Contains(l.now, name):
		case slices.Contains(l.later, name):
			c.fault(Pointer(at, name), "`%s` is not supported by this host yet; remove it, or use a host that has it", name)
		case slices.Contains(l.others, name):
			c.fault(Pointer(at, name), "`%s` %s", name, l.mend)
		case len(c.faults) > MaxFaults: // not shown, so not worth a search
			c.fault(Pointer(at, name), "%s has no such member; remove it", l.what)
		default:
			c.fault(Pointer(at, name), "%s has no member %s%s", l.what, module.Quote(name), suggestion(name, l))
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
	if best := spelling.Nearest(name, members); best != "" {
		return "; did you mean `" + best + "`?"
	}
	return "; remove it (it may have " + strings.Join(l.now, ", ") + ")"
}
