// Command warmup is a plugin whose first call makes what every other needs,
// and whose callers never wait for it.
package main

import (
	"regexp"
	"strings"
	"sync"

	carrel "github.com/carrelhost/carrel/sdk/go"
)

var plugin = carrel.Plugin{
	Name:        "warmup",
	Version:     "1.0.0",
	Description: "Sorts messages by rules that are compiled once, at upload.",
	Services: []carrel.Service{{
		Name: "com.acme.Triage",
		Methods: []carrel.Method{
			carrel.Handler("sort", "Says which desk a message is for.", sort),
		},
	}},
	// A typical message: it reaches the rules, and the JSON of the output.
	Warmup: &carrel.Warmup{Method: "com.acme.Triage.sort", Params: message{Text: "My invoice is wrong"}},
}

type message struct {
	Text string `json:"text"`
}

type desk struct {
	Desk string `json:"desk"`
	// Compiled is how often the rules were compiled when the call began. The
	// warm-up is why it is 1 and not 0, and fresh state why it is never 2.
	Compiled int `json:"compiled"`
}

var compiled int

// rules are compiled by whoever asks for them first: the warm-up.
var rules = sync.OnceValue(func() map[string]*regexp.Regexp {
	compiled++
	out := map[string]*regexp.Regexp{}
	for name, words := range map[string][]string{
		"billing":  {"invoices?", "bills?", "refunds?", "charged( twice)?"},
		"shipping": {"parcels?", "deliver(y|ed|ies)", "track(ing)? numbers?"},
		"privacy":  {"my data", "delete my account", "gdpr"},
	} {
		out[name] = regexp.MustCompile(`(?i)\b(` + strings.Join(words, "|") + `)\b`)
	}
	return out
})

func sort(_ *carrel.Context, in message) (desk, error) {
	out := desk{Desk: "front", Compiled: compiled}
	for name, rule := range rules() {
		if rule.MatchString(in.Text) {
			out.Desk = name
		}
	}
	return out, nil
}

func main() { plugin.Main() }
