package main

import (
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/carrelhost/carrel/client"
)

func newVersionsCommand(e env) *cobra.Command {
	n, o := connection{e: e}, output{e: e}
	c := &cobra.Command{
		Use:     "versions PLUGIN[@VERSION]",
		Short:   "List a plugin's versions, newest first, or show the report on one",
		Example: "  carrel versions hello@2   # what version 2 can reach, how it runs and why, how large it is",
		Args:    exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			cl, err := n.client()
			if err != nil {
				return err
			}
			if plugin, version, one := strings.Cut(args[0], "@"); one {
				v, err := cl.Version(c.Context(), plugin, version)
				if err != nil {
					return err
				}
				report, err := reportOf(v)
				if err != nil {
					return err
				}
				return o.result(report, func(w io.Writer) {
					printVersion(w, plugin, v)
					printReport(w, report)
					printList(w, "models", report.Models)
				})
			}
			all, err := client.All(maxListed, func(l client.ListOptions) (client.Page[client.Version], error) {
				return cl.Versions(c.Context(), args[0], l)
			})
			if err != nil {
				return err
			}
			return o.result(all, func(w io.Writer) {
				var rows [][]string
				for _, v := range all {
					active := ""
					if v.Active {
						active = "active"
					}
					if v.Quarantined != nil {
						active = strings.TrimSpace(active + " quarantined")
					}
					rows = append(rows, []string{strconv.Itoa(v.N), v.Digest, strconv.FormatInt(v.Bytes, 10), v.CreatedAt.Local().Format(time.DateTime), active})
				}
				table(w, []string{"N", "DIGEST", "BYTES", "CREATED", "STATE"}, rows)
			})
		},
	}
	n.flags(c)
	o.flag(c)
	return c
}
