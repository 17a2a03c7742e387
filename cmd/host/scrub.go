package main

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/carrelhost/carrel/client"
)

func newScrubCommand(e env) *cobra.Command {
	n, o := connection{e: e}, output{e: e}
	var status bool
	c := &cobra.Command{
		Use:   "scrub",
		Short: "Take deleted memory off the host's disk, with the administrator's key",
		Long: "Take deleted memory off the host's disk: after it no byte of that is left in\n" +
			"the data directory. Writes wait until it is done, which takes longer the more\n" +
			"is stored. A host does it by itself at shutdown and every memory.scrubInterval.",
		Args: exactly(0),
		RunE: func(c *cobra.Command, _ []string) error {
			cl, err := n.admin()
			if err != nil {
				return err
			}
			ask := cl.Scrub
			if status {
				ask = cl.LastScrub
			}
			s, err := ask(c.Context())
			if err != nil {
				return err
			}
			return o.result(s, func(w io.Writer) { printScrub(w, s, !status) })
		},
	}
	n.adminFlags(c)
	o.flag(c)
	c.Flags().BoolVar(&status, "status", false, "say when the last one was, and scrub nothing")
	return c
}

// printScrub says when the last scrub was; just says that it is the one that
// was asked for.
func printScrub(w io.Writer, s client.Scrub, just bool) {
	if s.At.IsZero() {
		fmt.Fprintln(w, "never scrubbed")
	} else {
		fmt.Fprintf(w, "scrubbed at %s, which took %s\n", s.At.Local().Format(time.DateTime), s.Took)
	}
	switch {
	case s.Due:
		fmt.Fprintln(w, "something was deleted since, and may still be on the disk")
	case just:
		fmt.Fprintln(w, "nothing is left to scrub")
	default:
		fmt.Fprintln(w, "nothing was deleted since")
	}
}
