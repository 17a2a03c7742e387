package main

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/carrelhost/carrel/client"
)

func newSessionsCommand(e env) *cobra.Command {
	c := &cobra.Command{
		Use:   "sessions",
		Short: "Open, list and end sessions",
		Args:  exactly(0),
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(newSessionsLsCommand(e), newSessionsOpenCommand(e), newSessionsRmCommand(e))
	return c
}

func newSessionsLsCommand(e env) *cobra.Command {
	n, o := connection{e: e}, output{e: e}
	c := &cobra.Command{
		Use:   "ls",
		Short: "List the open sessions that the key may see",
		Args:  exactly(0),
		RunE: func(c *cobra.Command, _ []string) error {
			cl, err := n.client()
			if err != nil {
				return err
			}
			all, err := client.All(maxListed, func(l client.ListOptions) (client.Page[client.Session], error) {
				return cl.Sessions(c.Context(), l)
			})
			if err != nil {
				return err
			}
			return o.result(all, func(w io.Writer) {
				var rows [][]string
				for _, s := range all {
					rows = append(rows, []string{s.ID, s.Subject, s.IdleTTL, s.MaxTTL, s.LastUsedAt.Local().Format(time.DateTime)})
				}
				table(w, []string{"SESSION", "SUBJECT", "IDLE", "MAX", "LAST USED"}, rows)
			})
		},
	}
	n.flags(c)
	o.flag(c)
	c.Flags().StringVar(&n.subject, "subject", "", "the end user to list for (the key must allow it)")
	return c
}

func newSessionsOpenCommand(e env) *cobra.Command {
	n, o := connection{e: e}, output{e: e}
	var s client.NewSession
	c := &cobra.Command{
		Use:   "open",
		Short: "Open a session and print its id",
		Args:  exactly(0),
		RunE: func(c *cobra.Command, _ []string) error {
			cl, err := n.client()
			if err != nil {
				return err
			}
			made, err := cl.OpenSession(c.Context(), s)
			if err != nil {
				return err
			}
			return o.result(made, func(w io.Writer) { fmt.Fprintln(w, made.ID) })
		},
	}
	n.flags(c)
	o.flag(c)
	f := c.Flags()
	f.StringVar(&s.IdleTTL, "idle", "", "end it when unused for this long, such as 30m")
	f.StringVar(&s.MaxTTL, "max", "", "end it after this long in any case")
	f.StringVar(&n.subject, "subject", "", "the end user that it is for (the key must allow it)")
	return c
}

func newSessionsRmCommand(e env) *cobra.Command {
	n, o := connection{e: e}, output{e: e}
	c := &cobra.Command{
		Use:   "rm SESSION",
		Short: "Close a session, which ends its memory",
		Args:  exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			cl, err := n.client()
			if err != nil {
				return err
			}
			closed, err := cl.CloseSession(c.Context(), args[0])
			if err != nil {
				return err
			}
			return o.result(closed, func(w io.Writer) {
				fmt.Fprintf(w, "%s is closed\n", closed.ID)
				printEvicted(w, closed.Evicted, closed.EvictionPending)
			})
		},
	}
	n.flags(c)
	o.flag(c)
	c.Flags().StringVar(&n.subject, "subject", "", "the end user that it is for (the key must allow it)")
	return c
}
