package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/carrelhost/carrel/client"
)

func newActivateCommand(e env) *cobra.Command {
	return newSwitchCommand(e, "activate PLUGIN VERSION", "Make a version, by number or digest, the active one", 2,
		func(ctx context.Context, cl *client.Client, args []string) (client.Plugin, error) {
			return cl.Activate(ctx, args[0], args[1])
		})
}

func newRollbackCommand(e env) *cobra.Command {
	return newSwitchCommand(e, "rollback PLUGIN", "Activate the version that was active before", 1,
		func(ctx context.Context, cl *client.Client, args []string) (client.Plugin, error) {
			return cl.Rollback(ctx, args[0])
		})
}

// newSwitchCommand is a command that changes which version is active.
func newSwitchCommand(e env, use, short string, args int, do func(context.Context, *client.Client, []string) (client.Plugin, error)) *cobra.Command {
	n, o := connection{e: e}, output{e: e}
	c := &cobra.Command{
		Use:   use,
		Short: short,
		Args:  exactly(args),
		RunE: func(c *cobra.Command, args []string) error {
			cl, err := n.client()
			if err != nil {
				return err
			}
			p, err := do(c.Context(), cl, args)
			if err != nil {
				return err
			}
			return o.result(p, func(w io.Writer) { fmt.Fprintf(w, "%s: version %s is active\n", p.Name, activeOf(p)) })
		},
	}
	n.flags(c)
	o.flag(c)
	return c
}
