package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/carrelhost/carrel/client"
)

// output prints results: JSON if asked for, else what a person likes to read.
type output struct {
	e    env
	json bool
}

func (o *output) flag(c *cobra.Command) {
	c.Flags().BoolVar(&o.json, "json", false, "print the result as JSON")
}

// result prints v as JSON, or calls human.
func (o *output) result(v any, human func(w io.Writer)) error {
	if !o.json {
		human(o.e.stdout)
		return nil
	}
	enc := json.NewEncoder(o.e.stdout)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("print result: %w", err)
	}
	return nil
}

// table prints rows under a heading.
func table(w io.Writer, heading []string, rows [][]string) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, strings.Join(heading, "\t"))
	for _, r := range rows {
		fmt.Fprintln(t, strings.Join(r, "\t"))
	}
	_ = t.Flush() // a terminal that is gone needs no table
}

// printEvicted says which histories ended.
func printEvicted(w io.Writer, evicted []client.Evicted, pending bool) {
	for _, e := range evicted {
		fmt.Fprintf(w, "ended: memory %q of %s (%s, %s)\n", e.MemoryID, e.Plugin, counted(int(e.Messages), "message", "messages"), e.Reason)
	}
	if pending {
		fmt.Fprintln(w, "some memory could not be ended yet; the host goes on trying")
	}
}
