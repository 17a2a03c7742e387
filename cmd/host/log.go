package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/client"
)

func newLogCommand(e env) *cobra.Command {
	n, o := connection{e: e}, output{e: e}
	c := &cobra.Command{
		Use:   "log PLUGIN",
		Short: "Print what a plugin logged: its lines, its failures with their stacks",
		Args:  exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			cl, err := n.client()
			if err != nil {
				return err
			}
			all, err := client.All(maxListed, func(l client.ListOptions) (client.Page[client.LogLine], error) {
				return cl.PluginLog(c.Context(), args[0], l)
			})
			if err != nil {
				return err
			}
			return o.result(all, func(w io.Writer) {
				now := time.Now()
				for _, l := range all {
					fmt.Fprintf(w, "%s %-5s %s %s\n", clock(l.At, now), l.Level, l.Method, visible(l.Text))
				}
			})
		},
	}
	n.flags(c)
	o.flag(c)
	return c
}

// withLog adds to a failure of a plugin's code where more of it is to be read,
// if the key may: only the host knows that.
func withLog(ctx context.Context, cl *client.Client, plugin carrel.PluginName, err error) error {
	ofPlugin := slices.ContainsFunc([]abi.Code{abi.GuestTrap, abi.GuestFailed, abi.FuelExhausted}, func(c abi.Code) bool {
		return errors.Is(err, client.Code(c))
	})
	if !ofPlugin {
		return err
	}
	if _, failed := cl.PluginLog(ctx, string(plugin), client.ListOptions{Limit: 1}); failed != nil {
		return err // whoever may not read the log is told of none
	}
	return &shownAs{text: err.Error() + "\nsee: carrel log " + string(plugin), err: err}
}

// clock is when something was, on this machine's clock: with its date unless
// that is today's.
func clock(at, now time.Time) string {
	at = at.Local()
	if day := at.Format(time.DateOnly); day != now.Local().Format(time.DateOnly) {
		return at.Format(time.DateTime)
	}
	return at.Format(time.TimeOnly)
}
