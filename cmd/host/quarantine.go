package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/carrelhost/carrel/client"
)

func newQuarantineCommand(e env) *cobra.Command {
	n, o := connection{e: e}, output{e: e}
	c := &cobra.Command{
		Use:   "quarantine",
		Short: "List plugins that ran when the host crashed, with the administrator's key",
		Long: "List the plugins, of all tenants, that ran when the host crashed, by the digest\n" +
			"of their module. One that ran at a second crash within a week of another is\n" +
			"quarantined: no version of these bytes is called until it is lifted.",
		Args: onlyCommands,
		RunE: func(c *cobra.Command, _ []string) error {
			cl, err := n.admin()
			if err != nil {
				return err
			}
			all, err := client.All(maxListed, func(l client.ListOptions) (client.Page[client.CrashedModule], error) {
				return cl.CrashedModules(c.Context(), l)
			})
			if err != nil {
				return err
			}
			return o.result(all, func(w io.Writer) { printCrashed(w, all) })
		},
	}
	n.adminFlags(c)
	o.flag(c)
	c.AddCommand(newQuarantineLiftCommand(e))
	return c
}

func printCrashed(w io.Writer, all []client.CrashedModule) {
	if len(all) == 0 {
		fmt.Fprintln(w, "no plugin ran when the host crashed")
		return
	}
	var rows [][]string
	for _, m := range all {
		state := "crashed once"
		if !m.Since.IsZero() {
			state = "quarantined"
		}
		rows = append(rows, []string{
			m.Digest, state, strconv.Itoa(len(m.Crashes)), m.Crashes[len(m.Crashes)-1].Local().Format(time.DateTime), strings.Join(m.Tenants, " "),
		})
	}
	table(w, []string{"DIGEST", "", "CRASHES", "LAST", "TENANTS"}, rows)
}

func newQuarantineLiftCommand(e env) *cobra.Command {
	n := connection{e: e}
	c := &cobra.Command{
		Use:   "lift DIGEST",
		Short: "Let a quarantined plugin run again",
		Long:  "Let a quarantined plugin run again, at once. Its next crash is its first.",
		Args:  exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			cl, err := n.admin()
			if err != nil {
				return err
			}
			if err := cl.LiftQuarantine(c.Context(), args[0]); err != nil {
				return err
			}
			fmt.Fprintf(e.stdout, "%s runs again\n", args[0])
			return nil
		},
	}
	n.adminFlags(c)
	return c
}
