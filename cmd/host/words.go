package main

import (
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/client"
)

// inOwnWords returns a host's refusal in the words of the command line: a host
// speaks of headers and query parameters, and whoever ran a command gave flags.
// It goes by the code and by what the command asked, never by the host's text;
// where these do not tell, the host's words stay.
func inOwnWords(c *cobra.Command, err error) error {
	p, ok := errors.AsType[*client.Problem](err)
	if !ok || c == nil {
		return err
	}
	given := func(flag string) bool { return c.Flags().Changed(flag) }
	has := func(flag string) bool { return c.Flags().Lookup(flag) != nil }
	out := *p
	out.Errors = slices.Clone(p.Errors)
	code, _ := abi.ParseCode(p.Code)
	switch {
	case code == abi.Unauthenticated && has("key"):
		out.Detail = "this host does not know the key; give another with --key, " + c.Flag("key").Annotations[keyVariable][0] + ", or the data directory that has it with --data"
	case code == abi.Forbidden && given("subject"):
		out.Errors = append(out.Errors, carrel.Fault{Message: "--subject is for keys that were made with `carrel key create --assert-subject`"})
	case code == abi.NoSession && has("session"):
		out.Detail = "the service remembers for a session: open one with `carrel sessions open` and name it with --session, or use `carrel chat`"
	case code == abi.InvalidParams && has("memory") && c.Name() == "import":
		at := slices.IndexFunc(p.Errors, func(f carrel.Fault) bool { return f.Pointer == "/memoryId" })
		if at < 0 {
			return err
		}
		line, _, _ := strings.Cut(p.Detail, ":")
		out.Detail, out.Errors = line+": the memory id is that of a request or a session, and ended with it; give another with --memory", nil
	default:
		return err
	}
	return &out
}

// keyVariable is the annotation of the flag --key that names the variable which
// stands for it.
const keyVariable = "variable"
