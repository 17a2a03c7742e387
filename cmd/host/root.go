package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/carrelhost/carrel"
)

// run runs one command line and returns the exit code.
func run(args []string, e env) int {
	ctx, stop := untilSignal(context.Background())
	defer stop()
	root := newRootCommand(e)
	root.SetArgs(keysLast(args))
	c, err := root.ExecuteContextC(ctx)
	err = inOwnWords(c, err)
	if _, shown := errors.AsType[told](err); err != nil && !shown {
		fmt.Fprintln(e.stderr, "carrel:", textOf(err))
	}
	return exitCode(err)
}

func newRootCommand(e env) *cobra.Command {
	c := &cobra.Command{
		Use:   "carrel",
		Short: "AI services as WebAssembly plugins, with chat memory that ends with its scope",
		Long: "Carrel hosts AI services that users upload as WebAssembly plugins, and keeps\n" +
			"their chat memory exactly as long as the scope that it belongs to.\n\n" +
			"First steps:  carrel demo   then   carrel serve\n\n" + exitHelp,
		Args:          onlyCommands,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	c.SetIn(e.stdin)
	c.SetOut(e.stdout)
	c.SetErr(e.stderr)
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return flagError(err) })
	c.AddCommand(
		newServeCommand(e), newDemoCommand(e),
		newNewCommand(e), newBuildCommand(e), newPackCommand(e), newInspectCommand(e),
		newPushCommand(e), newPluginsCommand(e), newVersionsCommand(e),
		newActivateCommand(e), newDeactivateCommand(e), newRollbackCommand(e), newRmCommand(e),
		newCallCommand(e), newChatCommand(e), newMemoryCommand(e), newSessionsCommand(e), newEvictionsCommand(e),
		newLogCommand(e), newGrantCommand(e),
		newTenantCommand(e), newKeyCommand(e), newScrubCommand(e), newQuarantineCommand(e), newVersionCommand(e),
		newCompileCommand(e),
	)
	return c
}

// usageError is a command line that makes no sense.
type usageError struct{ err error }

func (u usageError) Error() string {
	text := u.err.Error()
	if e, ok := u.err.(*carrel.Error); ok { //nolint:errorlint // what wraps it has a text of its own
		text = e.Msg
	}
	return text + " (see --help)"
}

func (u usageError) Unwrap() error { return u.err }

// told is an error that was shown when it happened, and decides the exit code.
type told struct{ error }

func (t told) Unwrap() error { return t.error }

// exactly is cobra.ExactArgs with an error that exits as wrong usage.
func exactly(n int) cobra.PositionalArgs { return wrapArgs(cobra.ExactArgs(n)) }

func atLeast(n int) cobra.PositionalArgs { return wrapArgs(cobra.MinimumNArgs(n)) }

func wrapArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if err := check(c, args); err != nil {
			return usageError{fmt.Errorf("%w\nusage: %s", err, c.UseLine())}
		}
		return nil
	}
}

// onlyCommands is for a command that only has commands below it: an argument
// is one that does not exist.
func onlyCommands(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	const typos = 2 // at most, and in half of the letters: what is short is near to much
	c.SuggestionsMinimumDistance = min(typos, len(args[0])/2)
	text := fmt.Sprintf("there is no command %q", c.CommandPath()+" "+args[0])
	if similar := c.SuggestionsFor(args[0]); len(similar) > 0 {
		text += "; did you mean " + strings.Join(similar, " or ") + "?"
	}
	return usageError{errors.New(text)}
}
