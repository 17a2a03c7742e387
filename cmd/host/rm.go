package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/carrelhost/carrel/client"
)

func newDeactivateCommand(e env) *cobra.Command {
	return newEndCommand(e, "deactivate PLUGIN", "Take a plugin out of service; this ends its application-scoped memory",
		"is deactivated", func(ctx context.Context, cl *client.Client, arg string) (client.Deactivated, error) {
			return cl.Deactivate(ctx, arg)
		})
}

func newRmCommand(e env) *cobra.Command {
	return newEndCommand(e, "rm PLUGIN[@VERSION]", "Delete a plugin with all its versions and memory, or one version",
		"is deleted", func(ctx context.Context, cl *client.Client, arg string) (client.Deactivated, error) {
			plugin, version, one := strings.Cut(arg, "@")
			if one {
				return client.Deactivated{Plugin: arg}, cl.DeleteVersion(ctx, plugin, version)
			}
			return cl.DeletePlugin(ctx, plugin)
		})
}

// newEndCommand is a command that ends something and, with it, memory.
func newEndCommand(e env, use, short, done string, do func(context.Context, *client.Client, string) (client.Deactivated, error)) *cobra.Command {
	n, o := connection{e: e}, output{e: e}
	c := &cobra.Command{
		Use:   use,
		Short: short,
		Args:  exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			cl, err := n.client()
			if err != nil {
				return err
			}
			d, err := do(c.Context(), cl, args[0])
			if err != nil {
				return err
			}
			if d.Evicted == nil {
				d.Evicted = []client.Evicted{}
			}
			return o.result(d, func(w io.Writer) {
				fmt.Fprintf(w, "%s %s\n", d.Plugin, done)
				printEvicted(w, d.Evicted, d.EvictionPending)
			})
		},
	}
	n.flags(c)
	o.flag(c)
	return c
}
