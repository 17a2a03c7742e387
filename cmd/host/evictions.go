package main

import (
	"errors"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/carrelhost/carrel/client"
)

func newEvictionsCommand(e env) *cobra.Command {
	n, o := connection{e: e}, output{e: e}
	var since string
	c := &cobra.Command{
		Use:     "evictions",
		Short:   "List the chat histories that ended, the oldest first",
		Example: "  carrel evictions --since 1h",
		Args:    exactly(0),
		RunE: func(c *cobra.Command, _ []string) error {
			from, err := sinceWhen(since, time.Now())
			if err != nil {
				return err
			}
			cl, err := n.client()
			if err != nil {
				return err
			}
			all, err := client.All(maxListed, func(l client.ListOptions) (client.Page[client.EvictionRecord], error) {
				return cl.Evictions(c.Context(), from, l)
			})
			if err != nil {
				return err
			}
			return o.result(all, func(w io.Writer) {
				var rows [][]string
				for _, r := range all {
					id := "-"
					if r.MemoryID != "" {
						id = strconv.Quote(r.MemoryID)
					}
					rows = append(rows, []string{
						r.At.Local().Format(time.DateTime), r.Reason, first(r.Scope, "-"), r.Plugin, id, strconv.FormatInt(r.Messages, 10),
					})
				}
				table(w, []string{"ENDED", "REASON", "SCOPE", "PLUGIN", "MEMORY ID", "MESSAGES"}, rows)
			})
		},
	}
	n.flags(c)
	o.flag(c)
	c.Flags().StringVar(&since, "since", "", "only those that ended since: a time such as 2026-01-31T12:00:00Z, or a duration such as 1h, which is up to now")
	return c
}

// sinceWhen reads a time, or a duration up to now; zero if there is none.
func sinceWhen(s string, now time.Time) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(s); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	at, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return time.Time{}, usageError{errors.New("--since is a duration such as 1h, or a time such as 2026-01-31T12:00:00Z")}
	}
	return at, nil
}
