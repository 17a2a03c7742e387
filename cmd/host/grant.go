package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/carrelhost/carrel/client"
)

func newGrantCommand(e env) *cobra.Command {
	n, o := connection{e: e}, output{e: e}
	var call []string
	var none bool
	c := &cobra.Command{
		Use:   "grant PLUGIN [--call PATTERN]... | --none",
		Short: "Show or replace what a plugin is granted",
		Long: "Show what a plugin is granted, or replace it. A pattern is plugin/Service.method,\n" +
			"plugin/Service.* or plugin/*; the plugin's manifest must ask for it as well.",
		Args: exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			cl, err := n.client()
			if err != nil {
				return err
			}
			if none && len(call) > 0 {
				return usageError{fmt.Errorf("--none and --call contradict each other")}
			}
			var g client.Grant
			if none || len(call) > 0 {
				g, err = cl.SetGrant(c.Context(), args[0], client.Grant{Call: call})
			} else {
				g, err = cl.Grant(c.Context(), args[0])
			}
			if err != nil {
				return err
			}
			return o.result(g, func(w io.Writer) {
				if len(g.Call) == 0 {
					fmt.Fprintf(w, "%s is granted nothing\n", args[0])
					return
				}
				fmt.Fprintf(w, "%s may call: %s\n", args[0], strings.Join(g.Call, ", "))
			})
		},
	}
	n.flags(c)
	o.flag(c)
	c.Flags().StringArrayVar(&call, "call", nil, "methods of another plugin that it may call")
	c.Flags().BoolVar(&none, "none", false, "take back everything")
	return c
}
