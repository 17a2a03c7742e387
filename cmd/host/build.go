package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/carrelhost/carrel/internal/scaffold"
)

// built is what build reports.
type built struct {
	File string `json:"file"`
}

func newBuildCommand(e env) *cobra.Command {
	o := output{e: e}
	c := &cobra.Command{
		Use:   "build [DIR]",
		Short: "Compile a plugin project, or pack a prompt project, into one module",
		Long: "Compile a plugin project (Go or C), or pack a prompt project, and embed the\n" +
			"manifest. Nothing is downloaded. The module is written into DIR, which is the\n" +
			"current folder if it is left out.",
		Args: wrapArgs(cobra.MaximumNArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			dir := "."
			if len(args) == 1 {
				dir = args[0]
			}
			file, err := scaffold.Build(c.Context(), dir)
			if err != nil {
				return withFaults(dir, err)
			}
			return o.result(built{file}, func(w io.Writer) {
				fmt.Fprintf(w, "built %s; next: carrel push %s\n", file, file)
			})
		},
	}
	o.flag(c)
	return c
}
