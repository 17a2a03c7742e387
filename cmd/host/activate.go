package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/client"
)

func newActivateCommand(e env) *cobra.Command {
	return newSwitchCommand(e, "activate PLUGIN [VERSION]", "Make a version, by number or digest, the active one",
		"Make a version, by number or digest, the active one. Without a version, a plugin\n"+
			"that was deactivated gets back the one that it had.",
		cobra.RangeArgs(1, 2), //nolint:mnd // PLUGIN [VERSION]
		func(ctx context.Context, cl *client.Client, args []string) (client.Plugin, error) {
			if len(args) == 1 {
				return reactivate(ctx, cl, args[0])
			}
			return cl.Activate(ctx, args[0], args[1])
		})
}

// reactivate activates the version that a deactivated plugin had.
func reactivate(ctx context.Context, cl *client.Client, plugin string) (client.Plugin, error) {
	p, err := cl.Plugin(ctx, plugin)
	if err != nil {
		return p, err
	}
	if p.Active == nil {
		back, err := cl.Rollback(ctx, plugin)
		if !errors.Is(err, client.Code(abi.BadRequest)) { // there is none
			return back, err
		}
	}
	all, err := client.All(maxListed, func(l client.ListOptions) (client.Page[client.Version], error) {
		return cl.Versions(ctx, plugin, l)
	})
	if err != nil {
		return p, err
	}
	var numbers []string
	for _, v := range all {
		number := strconv.Itoa(v.N)
		if v.Active {
			number += " (active)"
		}
		numbers = append(numbers, number)
	}
	return p, usageError{fmt.Errorf("which version of %s? It has %s", plugin, strings.Join(numbers, ", "))}
}

func newRollbackCommand(e env) *cobra.Command {
	return newSwitchCommand(e, "rollback PLUGIN", "Activate the version that was active before", "", cobra.ExactArgs(1),
		func(ctx context.Context, cl *client.Client, args []string) (client.Plugin, error) {
			return cl.Rollback(ctx, args[0])
		})
}

// newSwitchCommand is a command that changes which version is active.
func newSwitchCommand(e env, use, short, long string, args cobra.PositionalArgs, do func(context.Context, *client.Client, []string) (client.Plugin, error)) *cobra.Command {
	n, o := connection{e: e}, output{e: e}
	c := &cobra.Command{
		Use:   use,
		Short: short,
		Long:  long,
		Args:  wrapArgs(args),
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
