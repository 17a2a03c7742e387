package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/carrelhost/carrel/client"
)

func newDeactivateCommand(e env) *cobra.Command {
	return newEndCommand(e, "deactivate PLUGIN", "Take a plugin out of service; this ends its application-scoped memory", "",
		func(ctx context.Context, cl *client.Client, arg string) (client.Deactivated, string, error) {
			d, err := cl.Deactivate(ctx, arg)
			return d, "is deactivated; carrel activate " + d.Plugin + " brings it back, without that memory", err
		})
}

func newRmCommand(e env) *cobra.Command {
	return newEndCommand(e, "rm PLUGIN[@VERSION]", "Delete a plugin with all its versions and memory, or one version",
		"  carrel rm hello@2     # version 2, which must not be the active one\n"+
			"  carrel rm hello       # the plugin, every version, all its memory",
		func(ctx context.Context, cl *client.Client, arg string) (client.Deactivated, string, error) {
			plugin, version, one := strings.Cut(arg, "@")
			if one {
				return client.Deactivated{Plugin: arg}, "is deleted", cl.DeleteVersion(ctx, plugin, version)
			}
			p, err := cl.Plugin(ctx, plugin)
			if err != nil {
				return client.Deactivated{}, "", err
			}
			d, err := cl.DeletePlugin(ctx, plugin)
			return d, fmt.Sprintf("is deleted, with %s and %s", counted(p.Versions, "version", "versions"),
				counted(len(d.Evicted), "memory", "memories")), err
		})
}

// counted is a number and what it counts.
func counted(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + more
}

// newEndCommand is a command that ends something and, with it, memory. do says
// what was done as well.
func newEndCommand(e env, use, short, example string, do func(context.Context, *client.Client, string) (client.Deactivated, string, error)) *cobra.Command {
	n, o := connection{e: e}, output{e: e}
	c := &cobra.Command{
		Use:     use,
		Short:   short,
		Example: example,
		Args:    exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			cl, err := n.client()
			if err != nil {
				return err
			}
			d, done, err := do(c.Context(), cl, args[0])
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
