package main

import (
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/client"
)

func newQuarantineCommand(e env) *cobra.Command {
	n, o := connection{e: e}, output{e: e}
	c := &cobra.Command{
		Use:   "quarantine",
		Short: "List plugins that ran when the host crashed, with the administrator's key",
		Long: "List the plugins, of all tenants, that ran when the host crashed: what a tenant\n" +
			"calls the version (- if it is deleted), and the digest of its module. One that\n" +
			"ran at a second crash within a week of another is quarantined: no version of\n" +
			"these bytes is called until it is lifted.",
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
		fmt.Fprintln(w, "the list is empty")
		return
	}
	var rows [][]string
	for _, m := range all {
		state := "crashed once"
		if !m.Since.IsZero() {
			state = "quarantined"
		}
		about := []string{state, strconv.Itoa(len(m.Crashes)), lastCrash(m), m.Digest}
		for _, who := range whoRan(m) {
			rows = append(rows, append(who, about...))
		}
	}
	table(w, []string{"TENANT", "VERSION", "STATE", "CRASHES", "LAST", "DIGEST"}, rows)
}

func lastCrash(m client.CrashedModule) string {
	if len(m.Crashes) == 0 {
		return "-"
	}
	return m.Crashes[len(m.Crashes)-1].Local().Format(time.DateTime)
}

// whoRan returns each tenant that ran a module, and what it calls the version;
// a dash for what is not known.
func whoRan(m client.CrashedModule) [][]string {
	var out [][]string
	for _, t := range m.Tenants {
		version := "-"
		for _, v := range m.Versions {
			if v.Tenant == t {
				version = v.Plugin + "@" + strconv.Itoa(v.N)
			}
		}
		out = append(out, []string{t, version})
	}
	if len(out) == 0 {
		return [][]string{{"-", "-"}}
	}
	return out
}

// quarantinedSince says since when a version does not run, and why.
func quarantinedSince(q client.Quarantine) string {
	return fmt.Sprintf("since %s, for %s of the host at which it ran", q.Since.Local().Format(time.DateTime), counted(len(q.Crashes), "crash", "crashes"))
}

func newQuarantineLiftCommand(e env) *cobra.Command {
	n := connection{e: e}
	c := &cobra.Command{
		Use:   "lift DIGEST",
		Short: "Let a quarantined plugin run again",
		Long: "Forget at which crashes a plugin ran. If it is quarantined, it runs again, at\n" +
			"once. Its next crash is its first.",
		Args: exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			if _, err := carrel.ParseDigest(args[0]); err != nil {
				return usageError{err}
			}
			cl, err := n.admin()
			if err != nil {
				return err
			}
			if err := cl.LiftQuarantine(c.Context(), args[0]); err != nil {
				return err
			}
			fmt.Fprintf(e.stdout, "%s may run: its crashes are forgotten\n", args[0])
			return nil
		},
	}
	n.adminFlags(c)
	return c
}
