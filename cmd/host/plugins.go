package main

import (
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/carrelhost/carrel/client"
)

// maxListed bounds what a command lists.
const maxListed = 100_000

func newPluginsCommand(e env) *cobra.Command {
	n, o := connection{e: e}, output{e: e}
	c := &cobra.Command{
		Use:   "plugins [PLUGIN]",
		Short: "List the plugins, or show one with its methods",
		Args:  wrapArgs(cobra.MaximumNArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			cl, err := n.client()
			if err != nil {
				return err
			}
			if len(args) == 1 {
				p, err := cl.Plugin(c.Context(), args[0])
				if err != nil {
					return err
				}
				return o.result(p, func(w io.Writer) { printPlugin(w, p) })
			}
			all, err := client.All(maxListed, func(l client.ListOptions) (client.Page[client.Plugin], error) {
				return cl.Plugins(c.Context(), l)
			})
			if err != nil {
				return err
			}
			return o.result(all, func(w io.Writer) {
				var rows [][]string
				for _, p := range all {
					rows = append(rows, []string{p.Name, activeOf(p), strconv.Itoa(p.Versions), p.CreatedAt.Local().Format(time.DateTime), stateOf(p)})
				}
				table(w, []string{"PLUGIN", "ACTIVE", "VERSIONS", "CREATED", "STATE"}, rows)
			})
		},
	}
	n.flags(c)
	o.flag(c)
	return c
}

func activeOf(p client.Plugin) string {
	if p.Active == nil {
		return "-"
	}
	return strconv.Itoa(p.Active.N)
}

// stateOf says what keeps a plugin from running, if anything does.
func stateOf(p client.Plugin) string {
	switch {
	case p.Active == nil:
		return "deactivated"
	case p.Active.Quarantined != nil:
		return "quarantined"
	default:
		return ""
	}
}

func printPlugin(w io.Writer, p client.Plugin) {
	if p.Active == nil {
		fmt.Fprintf(w, "%s: active version - of %d, deactivated\n", p.Name, p.Versions)
		return
	}
	fmt.Fprintf(w, "%s: active version %s of %d\n", p.Name, activeOf(p), p.Versions)
	if p.Active.Quarantined != nil {
		fmt.Fprintf(w, "  quarantined %s: it does not run\n", quarantinedSince(*p.Active.Quarantined))
	}
	for _, s := range p.Services {
		fmt.Fprintf(w, "  %s (%s scope)\n", s.Name, s.Scope)
		for _, m := range s.Methods {
			fmt.Fprintf(w, "    %s\n", m)
		}
	}
}
