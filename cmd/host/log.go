package main

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

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
				for _, l := range all {
					fmt.Fprintf(w, "%s %-5s %s %s\n", l.At.Local().Format(time.TimeOnly), l.Level, l.Method, visible(l.Text))
				}
			})
		},
	}
	n.flags(c)
	o.flag(c)
	return c
}
