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

// desks have words, as regular expressions. Of two that match a message, the
// first has it.
var desks = []struct {
	name  string
	words []string
}{
	{"privacy", []string{"my data", "delete my account", "gdpr"}},
	{"billing", []string{"invoices?", "bills?", "refunds?", "charged( twice)?"}},
	{"shipping", []string{"parcels?", "deliver(y|ed|ies)", "track(ing)? numbers?"}},
}

type rule struct {
	desk  string
	words *regexp.Regexp
}

var compiled int

// rules are compiled by whoever asks for them first: the warm-up.
var rules = sync.OnceValue(func() []rule {
	compiled++
	var out []rule
	for _, d := range desks {
		out = append(out, rule{d.name, regexp.MustCompile(`(?i)\b(` + strings.Join(d.words, "|") + `)\b`)})
	}
	return out
})

func sort(_ *carrel.Context, in message) (desk, error) {
	out := desk{Desk: "front", Compiled: compiled}
	for _, r := range rules() {
		if r.words.MatchString(in.Text) {
			out.Desk = r.desk
			break
		}
	}
	return out, nil
}

func main() { plugin.Main() }
